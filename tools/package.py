#!/usr/bin/env python3
"""Makes a backend folder that needs nothing but a Python and glibc 2.35 or newer, or an image tarball of it.

    package.py [--variant cpu] [--output dist/cpu-vllm-cpp] [--image]

LocalAI copies or unpacks a backend and starts run.sh, with no step between in which something could be installed, from
a folder that may be read-only. So the folder has the binary wheels of every Python it supports side by side: in one
site-packages, since extension modules carry their Python's version in their names and everything else is the same.
run.sh finds it by its path, so nothing names where it was made. Of libstdc++, which the wheels need, the system's own
is used: every Debian and Ubuntu has it for apt, and a newer one that is carried would need a newer glibc.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

from models import find_pip
from oci_image import ARCHITECTURES, ImageError, write_image
from variants import BACKEND, VARIANTS, Variant

REPOSITORY = Path(__file__).resolve().parent.parent
WHEELS = REPOSITORY / ".cache" / "wheels"
PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
PLATFORMS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")  # all at or below the library's own glibc
HEADERS = ("vllm.h", "vllm_ext.h")

# What libvllm.so has linked in, and the Debian packages it is from.
LINKED = {
    "libstdc++ and libgcc": "libstdc++-*-dev",
    "nlohmann-json": "nlohmann-json3-dev",
    "PCRE2": "libpcre2-dev",
    "utf8proc": "libutf8proc-dev",
    "xxHash": "libxxhash-dev",
}
DOCUMENTATION = Path("/usr/share/doc")
NOTICES = Path(__file__).resolve().with_name("wheel_notices.txt")

# What wheels have for installers alone, or for the Python they were built for.
LEFT_OUT = re.compile(r"[^/]+\.dist-info/(RECORD|WHEEL|INSTALLER|REQUESTED|entry_points\.txt|top_level\.txt)$")
LICENCE = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*$", re.IGNORECASE)


class PackageError(Exception):
    """Why no package can be made; one sentence."""


def requirements() -> list[tuple[str, str]]:
    """Name and version of everything the backend runs on."""
    lines = [line.split("#")[0].strip() for line in (REPOSITORY / "requirements.txt").read_text().splitlines()]
    pinned = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line) for line in lines if line]
    if not pinned or None in pinned:
        raise PackageError("requirements.txt has a line that is not NAME==VERSION")
    return [(found[1], found[2]) for found in pinned if found]


def fits(wheel: Path, name: str, version: str, python: str, machine: str) -> bool:
    """Whether the wheel is that package for that Python."""
    parts = wheel.stem.split("-")
    if parts[0].lower() != re.sub(r"[-_.]+", "_", name).lower() or parts[1] != version:
        return False
    interpreter, abi, system = parts[-3:]
    minor = int(python.split(".")[1])
    if system != "any" and not any(f"{kind}_{machine}" in system.split(".") for kind in PLATFORMS):
        return False
    stable = re.fullmatch(r"cp3(\d+)", interpreter)
    return (
        (abi == "none" and interpreter in ("py3", "py2.py3"))
        or abi == interpreter == f"cp3{minor}"
        or bool(abi == "abi3" and stable and int(stable[1]) <= minor)
    )


def wheels(machine: str) -> list[Path]:
    """The wheels of all requirements for all Pythons; those not in the cache are downloaded."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    found: dict[Path, None] = {}
    for python in PYTHONS:
        missing = [wanted for wanted in requirements() if cached(*wanted, python, machine) is None]
        if missing:
            download(missing, python, machine)
        for name, version in requirements():
            wheel = cached(name, version, python, machine)
            if wheel is None:
                raise PackageError(
                    f"pip downloaded no wheel of {name} {version} that fits Python {python} on {machine}"
                )
            found[wheel] = None
    return list(found)


def cached(name: str, version: str, python: str, machine: str) -> Path | None:
    return next((wheel for wheel in sorted(WHEELS.glob("*.whl")) if fits(wheel, name, version, python, machine)), None)


def download(wanted: list[tuple[str, str]], python: str, machine: str) -> None:
    """Puts wheels for one Python into the cache."""
    pip = find_pip()
    if pip is None:
        raise PackageError("no pip was found to download wheels with; install pip (Debian: python3-pip) and try again")
    names = [f"{name}=={version}" for name, version in wanted]
    print(f"Downloading for Python {python}: {' '.join(names)}", flush=True)
    with tempfile.TemporaryDirectory(prefix=".download-", dir=WHEELS) as folder:
        command = [*pip, "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", python, *(f"--platform={kind}_{machine}" for kind in PLATFORMS)]
        done = subprocess.run([*command, "--dest", folder, *names], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["nothing"]
            raise PackageError(f"the wheels for Python {python} could not be downloaded; pip says: {said[0]}")
        for wheel in Path(folder).glob("*.whl"):
            wheel.replace(WHEELS / wheel.name)


def unpack(wheel: Path, site: Path) -> None:
    """Adds the files of the wheel. What is there already has to be the same."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            name = PurePosixPath(member.filename)
            if member.is_dir() or LEFT_OUT.fullmatch(member.filename):
                continue
            if name.is_absolute() or ".." in name.parts or name.parts[0].endswith(".data"):
                raise PackageError(f"{wheel.name} has the file {name}, which belongs elsewhere than in site-packages")
            content = archive.read(member)
            place = site / name
            if place.exists() and place.read_bytes() != content:
                raise PackageError(f"{wheel.name} and the same package for another Python differ in {name}")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)


def collect_licences(site: Path, out: Path) -> None:
    """The licence texts of everything in the package, each in a file of its own."""
    out.mkdir()
    shutil.copyfile(REPOSITORY / "LICENSE", out / "vllm-backend.txt")
    for information in sorted(site.glob("*.dist-info")):
        texts = [path for path in sorted(information.rglob("*")) if path.is_file() and LICENCE.match(path.name)]
        if not texts:
            raise PackageError(f"{information.name} has no licence text")
        for path in texts:
            shutil.copyfile(path, out / f"{information.name.removesuffix('.dist-info')}-{path.name}")
    shutil.copyfile(NOTICES, out / NOTICES.name)
    for name, package in LINKED.items():
        found = sorted(DOCUMENTATION.glob(f"{package}/copyright"))
        if not found:
            raise PackageError(f"the licence of {name} was not found at {DOCUMENTATION}/{package}/copyright")
        shutil.copyfile(found[-1], out / f"{name.replace(' ', '-')}.txt")


def copy_sources(folder: Path) -> None:
    for name in ("run.sh", "LICENSE", "VERSION"):
        shutil.copyfile(REPOSITORY / name, folder / name)
    (folder / "include").mkdir()
    for name in HEADERS:
        shutil.copyfile(REPOSITORY / "native/include" / name, folder / "include" / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.pyi")
    shutil.copytree(REPOSITORY / "python/vllm_backend", folder / "python/vllm_backend", ignore=ignored)
    if not (folder / "python/vllm_backend/backend_pb2.py").exists():
        raise PackageError("the gRPC stubs are missing; run install.sh first")


def copy_library(library: Path, variant: Variant, folder: Path) -> None:
    """The library without its symbol table, which nothing reads at run time."""
    if not library.exists():
        raise PackageError(f"{library} does not exist; run install.sh first")
    if variant.opens.encode() not in library.read_bytes():
        raise PackageError(
            f"{variant.name} cannot be packaged: {library} was built without its device, and opens no {variant.opens}; "
            "run install.sh, which installs what the device needs"
        )
    (folder / "lib").mkdir()
    target = folder / "lib" / library.name
    done = subprocess.run(
        ["strip", "--strip-unneeded", "-o", target, library], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise PackageError(f"{library} cannot be read as a library; {' '.join(done.stderr.split())}")


def set_modes(folder: Path) -> None:
    """Everyone may read, whatever the umask was."""
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.name == "run.sh" else 0o644)


def make_package(variant: Variant, output: Path, library: Path) -> None:
    """Raises PackageError; what was at `output` is replaced only by a whole package."""
    machine = platform.machine()
    if f"{sys.platform}-{machine}" not in variant.systems:
        raise PackageError(f"{variant.name} is for {' or '.join(variant.systems)}, this is {sys.platform}-{machine}")
    if not variant.built:
        raise PackageError(f"{variant.name} cannot be packaged: the library has no such device yet")
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as temporary:
        folder = Path(temporary) / "new"
        folder.mkdir()
        copy_sources(folder)
        copy_library(library, variant, folder)
        site = folder / "site-packages"
        for wheel in wheels(machine):
            unpack(wheel, site)
        collect_licences(site, folder / "licences")
        # LocalAI writes its own over it; this one serves a folder that is copied by hand.
        about = {"alias": BACKEND, "name": variant.name, "version": project_version()}
        (folder / "metadata.json").write_text(json.dumps(about, indent=2) + "\n")
        set_modes(folder)
        if output.exists():
            output.rename(Path(temporary) / "old")
        folder.rename(output)


def project_version() -> str:
    return (REPOSITORY / "VERSION").read_text().strip()


def size(path: Path) -> str:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return f"{sum(file.stat().st_size for file in files) / 1e6:.0f} MB"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="package.py", description="a backend folder or image that needs no installation"
    )
    parser.add_argument("--variant", choices=list(VARIANTS), default="cpu")
    parser.add_argument("--output", type=Path, help="the folder; default: dist/ and the variant's name")
    parser.add_argument("--library", type=Path, default=REPOSITORY / "lib/libvllm.so", help="default: lib/libvllm.so")
    parser.add_argument("--image", action="store_true", help="also write the folder's image beside it, as FOLDER.tar")
    given = parser.parse_args(arguments)
    variant = VARIANTS[given.variant]
    output = (given.output or REPOSITORY / "dist" / variant.name).resolve()
    try:
        make_package(variant, output, given.library)
        print(f"{output}: {size(output)}")
        if given.image:
            image = output.with_name(output.name + ".tar")
            write_image(output, image, f"{variant.name}:{project_version()}", ARCHITECTURES[platform.machine()])
            print(f"{image}: {size(image)}")
    except (PackageError, ImageError, OSError) as error:
        print(f"package: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main(sys.argv[1:]))
