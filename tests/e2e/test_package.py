"""A packaged backend: what is in it, and that it runs elsewhere, read-only, as another user and with other Pythons."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from localai_client import REPOSITORY
from package import LINKED, PYTHONS

PLAIN = re.compile(r"(libc|libm|libpthread|librt|libdl|libstdc\+\+|libgcc_s)\.so\.\d|ld-linux[\w.-]*\.so\.\d")
NEWEST = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13), "GCC": (12, 0)}  # of Ubuntu 22.04


def objects(folder):
    return [path for path in folder.rglob("*") if ".so" in path.suffixes or ".so" in path.name]


def selftest(package, before=(), **environment):
    env = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "", **environment}
    command = [*before, package / "run.sh", "selftest"]
    return subprocess.run(command, cwd="/", env=env, capture_output=True, text=True, timeout=60)


def read_elf(*arguments):
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def test_its_objects_need_what_every_system_has(package):
    found = objects(package)
    assert len(found) > 2 * len(PYTHONS)
    for path in found:
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", read_elf("-d", path))
        assert needed and all(PLAIN.fullmatch(name) for name in needed), f"{path.name} needs {needed}"
        for family, version in re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)", read_elf("-V", path)):
            numbers = tuple(map(int, version.split(".")))
            assert numbers <= NEWEST[family], f"{path.name} needs {family} {version}"


def test_made_again_elsewhere_the_image_is_the_same(package, tmp_path):
    command = [sys.executable, REPOSITORY / "tools/package.py", "--image", "--output", tmp_path / package.name]
    subprocess.run(command, check=True, capture_output=True)
    image = f"{package.name}.tar"
    assert (tmp_path / image).read_bytes() == (package.parent / image).read_bytes()


def test_nothing_names_the_place_where_it_was_made(package):
    place = str(REPOSITORY).encode()
    assert [path for path in package.rglob("*") if path.is_file() and place in path.read_bytes()] == []


def test_it_has_the_licences_of_all_it_carries(package):
    texts = {path.name: path.read_text(errors="replace") for path in (package / "licences").iterdir()}
    for name in [path.name.removesuffix(".dist-info") for path in (package / "site-packages").glob("*.dist-info")]:
        assert any(text.startswith(f"{name}-") for text in texts), name
    for name in LINKED:
        assert texts[f"{name.replace(' ', '-')}.txt"].strip(), name
    assert "Apache License" in texts["vllm-backend.txt"]
    assert all(len(text) > 500 for text in texts.values())


@pytest.mark.parametrize("version", PYTHONS)
def test_it_runs_with_each_python(package, tmp_path, version):
    beside = Path(sys.base_prefix).parent.glob(f"{version}*/bin/python3")  # where several are kept by version
    candidates = [shutil.which(f"python{version}"), *map(str, beside)]
    working = [
        path for path in candidates if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0
    ]
    if not working:
        pytest.skip(f"this machine has no Python {version}")
    python = working[0]
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    done = selftest(package, PATH=f"{tmp_path}:/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("selftest: OK")


def test_it_passes_by_pythons_that_it_has_no_modules_for(package, tmp_path):
    """First on PATH is a Python from long ago, then one that it can use under another name."""
    (tmp_path / "python3").write_text("#!/bin/sh\necho .cpython-39-x86_64-linux-gnu.so\n")
    (tmp_path / "python3.13").write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" "$@"\n')
    for name in ("sh", "readlink", "dirname", "uname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    for path in tmp_path.glob("python*"):
        path.chmod(0o755)
    assert selftest(package, PATH=str(tmp_path)).returncode == 0
    (tmp_path / "python3.13").unlink()
    done = selftest(package, PATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "run.sh: no Python 3.10 to 3.14 that this package has modules for is on PATH, found: python3 (modules are "
        "*.cpython-39-x86_64-linux-gnu.so); install one (Debian: apt-get install python3)\n"
    )


def test_it_passes_by_what_else_python_has_installed(package, tmp_path):
    """A package of the user's own that hides ours: google without protobuf."""
    for version in PYTHONS:
        google = tmp_path / f"lib/python{version}/site-packages/google"
        google.mkdir(parents=True)
        (google / "__init__.py").touch()
    environment = {"PATH": os.environ["PATH"], "PYTHONUSERBASE": str(tmp_path)}
    done = subprocess.run([package / "run.sh", "doctor"], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "protobuf 7." in done.stdout


def test_it_runs_read_only_as_another_user(package):
    before = {path: path.stat().st_mode for path in (package, *package.rglob("*"))}
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    try:
        for path in before:
            path.chmod(before[path] & 0o555)
        done = selftest(package, other, PATH="/usr/bin:/bin", HOME="/nonexistent")
    finally:
        for path, mode in before.items():
            path.chmod(mode)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("selftest: OK")
    assert set(before) == {package, *package.rglob("*")}
