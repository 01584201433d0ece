"""What goes into a package, the names of packages, and the image tarball, which skopeo and umoci have to understand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import oci_image
import package
import pytest
import variants


def test_requirements_are_pinned() -> None:
    found = dict(package.requirements())
    assert {"grpcio", "protobuf", "cffi"} <= set(found)
    assert "grpcio-tools" not in found


@pytest.mark.parametrize(
    ("file", "fitting"),
    [
        ("cffi-2.1.1-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", {"3.11"}),
        ("cffi-2.1.1-cp312-abi3-manylinux_2_28_x86_64.whl", {"3.12", "3.13", "3.14"}),
        ("cffi-2.1.1-py3-none-any.whl", {"3.10", "3.11", "3.12", "3.13", "3.14"}),
        ("cffi-2.1.1-1-cp310-cp310-manylinux_2_17_x86_64.whl", {"3.10"}),
        ("cffi-2.1.0-cp311-cp311-manylinux_2_17_x86_64.whl", set()),
        ("cffi-2.1.1-cp311-cp311-manylinux_2_17_aarch64.whl", set()),
        ("cffi-2.1.1-cp311-cp311-manylinux_2_39_x86_64.whl", set()),
        ("cffi-2.1.1-cp311-cp311-musllinux_1_2_x86_64.whl", set()),
        ("cffi-2.1.1-cp314-cp314t-manylinux_2_17_x86_64.whl", set()),
        ("cffi_more-2.1.1-py3-none-any.whl", set()),
    ],
)
def test_which_wheels_fit(file: str, fitting: set[str]) -> None:
    found = {python for python in package.PYTHONS if package.fits(Path(file), "cffi", "2.1.1", python, "x86_64")}
    assert found == fitting


def wheel(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def test_wheels_of_several_pythons_lie_side_by_side(tmp_path: Path) -> None:
    for tag in ("311", "312"):
        files = {"a/__init__.py": "same", f"a/b.cpython-{tag}.so": tag, "a-1.dist-info/RECORD": tag}
        package.unpack(wheel(tmp_path / f"{tag}.whl", **files), tmp_path / "site")
    found = {
        path.relative_to(tmp_path / "site").as_posix() for path in (tmp_path / "site").rglob("*.*") if path.is_file()
    }
    assert found == {"a/__init__.py", "a/b.cpython-311.so", "a/b.cpython-312.so"}


@pytest.mark.parametrize("name", ["a.py", "../a.py", "/a.py", "a-1.data/scripts/a"])
def test_wheels_that_cannot_are_refused(tmp_path: Path, name: str) -> None:
    package.unpack(wheel(tmp_path / "one.whl", **{"a.py": "1"}), tmp_path / "site")
    with pytest.raises(package.PackageError, match=r"two\.whl"):
        package.unpack(wheel(tmp_path / "two.whl", **{name: "2"}), tmp_path / "site")
    assert {path.name for path in tmp_path.iterdir()} == {"one.whl", "two.whl", "site"}


def test_a_variant_without_its_device_is_not_packaged(tmp_path: Path) -> None:
    unbuilt = [variant for variant in variants.VARIANTS.values() if not variant.built]
    for variant in unbuilt:
        with pytest.raises(package.PackageError, match=variant.name):
            package.make_package(variant, tmp_path / "out", tmp_path / "libvllm.so")
    assert list(tmp_path.iterdir()) == []


def test_a_variant_is_made_of_a_library_with_its_device_only(tmp_path: Path) -> None:
    library = tmp_path / "libvllm.so"
    library.write_bytes(b"no library at all")
    with pytest.raises(package.PackageError, match=r"built without its device, and opens no libvulkan\.so\.1"):
        package.copy_library(library, variants.VARIANTS["vulkan"], tmp_path / "out")
    assert list(tmp_path.iterdir()) == [library]
    (tmp_path / "out").mkdir()
    with pytest.raises(package.PackageError, match=r"libvllm\.so cannot be read as a library; strip: .*not recognized"):
        package.copy_library(library, variants.VARIANTS["cpu"], tmp_path / "out")


def shown_on(name: str) -> set[str]:
    """The machines on which LocalAI shows an entry whose name and URI are this text; empty: on all."""
    return {only for words, only in variants.HIDING_WORDS.items() if any(word in name.lower() for word in words)}


@pytest.mark.parametrize(
    ("variant", "machines"),
    [("cpu", set()), ("vulkan", set()), ("cuda13", {"nvidia"}), ("metal", {"macos"}), ("l4t", {"jetson", "nvidia"})],
)
def test_names_are_shown_where_their_device_is(variant: str, machines: set[str]) -> None:
    found = variants.VARIANTS[variant]
    assert shown_on(f"{found.name} ocifile:///var/lib/local-ai/{found.name}.tar") == machines
    assert found.name == found.name.lower()


def test_no_capability_is_claimed_twice() -> None:
    keys = [key for variant in variants.VARIANTS.values() for key in variant.capabilities]
    assert len(keys) == len(set(keys))
    assert "default" in variants.VARIANTS["cpu"].capabilities


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small backend with what tar headers find hard."""
    return backend_folder(tmp_path / "backend")


def backend_folder(folder: Path, backwards: bool = False) -> Path:
    files = {
        "run.sh": b"#!/bin/sh\n",
        "lib/libvllm.so": bytes(range(256)) * 5000,
        "python/empty.py": b"",
        f"deep/{'x' * 120}/{'y' * 120}.txt": b"long",
        "names/\u00e4\u4e2d.txt": b"letters",
    }
    for name, content in sorted(files.items(), reverse=backwards):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "run.sh").chmod(0o755)
    return folder


def test_images_are_the_same_wherever_and_whenever_they_are_made(folder: Path, tmp_path: Path) -> None:
    other = backend_folder(tmp_path / "elsewhere" / "again", backwards=True)
    for path in other.rglob("*"):
        os.utime(path, (1e9, 1e9))
        path.chmod(path.stat().st_mode & 0o700)
    first, second = tmp_path / "first.tar", tmp_path / "new" / "second.tar"
    oci_image.write_image(folder, first, "cpu-vllm-cpp:1", "amd64")
    oci_image.write_image(other, second, "cpu-vllm-cpp:1", "amd64")
    assert first.read_bytes() == second.read_bytes()
    (other / "python/empty.py").write_bytes(b"1")
    oci_image.write_image(other, second, "cpu-vllm-cpp:1", "amd64")
    assert first.read_bytes() != second.read_bytes()


def test_an_image_that_cannot_be_finished_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "image.tar").mkdir()
    with pytest.raises(OSError):
        oci_image.write_image(folder, tmp_path / "image.tar", "cpu-vllm-cpp:1", "amd64")
    assert {path.name for path in tmp_path.iterdir()} == {"backend", "image.tar"}


def tool(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.mark.parametrize("form", ["oci-archive", "docker-archive"])
def test_skopeo_and_umoci_take_the_image(folder: Path, tmp_path: Path, form: str) -> None:
    image = tmp_path / "image.tar"
    oci_image.write_image(folder, image, "cpu-vllm-cpp:1.2", "arm64")
    about = json.loads(tool("skopeo", "--insecure-policy", "inspect", f"{form}:{image}"))
    assert (about["Architecture"], about["Os"], len(about["Layers"])) == ("arm64", "linux", 1)
    if form == "docker-archive":
        tool("skopeo", "--insecure-policy", "inspect", f"{form}:{image}:cpu-vllm-cpp:1.2")

    tool("skopeo", "--insecure-policy", "copy", "--quiet", f"{form}:{image}", f"oci:{tmp_path}/layout:t")
    tool("umoci", "unpack", "--rootless", "--image", f"{tmp_path}/layout:t", f"{tmp_path}/bundle")
    root = tmp_path / "bundle" / "rootfs"
    made, unpacked = ({path.relative_to(at): path for path in at.rglob("*")} for at in (folder, root))
    assert set(made) == set(unpacked)
    for name, path in made.items():
        if path.is_file():
            assert path.read_bytes() == unpacked[name].read_bytes(), name
            assert os.access(path, os.X_OK) == os.access(unpacked[name], os.X_OK) == (name.name == "run.sh")


def test_what_is_no_backend_gets_no_image(folder: Path, tmp_path: Path) -> None:
    def refusal(*more: str) -> str:
        command = [sys.executable, str(package.REPOSITORY / "tools/oci_image.py"), str(folder), str(tmp_path / "i.tar")]
        done = subprocess.run([*command, "--name", *(more or ["n:1"])], capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert not list(tmp_path.glob("i.tar*"))
        return done.stderr

    assert "no tag" in refusal("vllm-cpp")
    (folder / "python/link").symlink_to("empty.py")
    assert "python/link is neither a plain file nor a folder" in refusal()
    (folder / "python/link").unlink()
    (folder / "run.sh").unlink()
    assert "has no run.sh" in refusal()
