#!/usr/bin/env python3
"""Writes a folder as the root of a container image of one layer, as one tarball that is reproducible.

    oci_image.py FOLDER IMAGE.tar --name NAME:TAG [--arch amd64|arm64] [--os linux]

The tarball is an OCI layout and what `docker save` writes at once: index.json and manifest.json name the same blobs.
So LocalAI takes it as ocifile:///PATH, and skopeo copies it to a registry. Times, owners and the order of files on disk
leave no trace; of the modes only whether a file may be executed.
"""

import argparse
import gzip
import hashlib
import io
import json
import platform
import sys
import tarfile
from pathlib import Path

ARCHITECTURES = {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
EPOCH = "1970-01-01T00:00:00Z"


class ImageError(Exception):
    """Why no image can be made; one sentence."""


def _plain(member: tarfile.TarInfo, executable: bool) -> tarfile.TarInfo:
    member.mtime = 0
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if executable or member.isdir() else 0o644
    return member


def layer(folder: Path) -> bytes:
    """The files below the folder as an uncompressed tar, in the order of their names."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).parts):
            if path.is_symlink() or not (path.is_dir() or path.is_file()):
                raise ImageError(
                    f"{path} is neither a plain file nor a folder, and an image of a backend has only those"
                )
            name = path.relative_to(folder).as_posix()
            member = tarfile.TarInfo(name)
            if path.is_dir():
                member.type = tarfile.DIRTYPE
                tar.addfile(_plain(member, True))
            else:
                content = path.read_bytes()
                member.size = len(content)
                tar.addfile(_plain(member, bool(path.stat().st_mode & 0o100)), io.BytesIO(content))
    return out.getvalue()


def _digest(blob: bytes) -> str:
    return hashlib.sha256(blob).hexdigest()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def write_image(folder: Path, output: Path, name: str, architecture: str, system: str = "linux") -> None:
    """Raises ImageError; what was at `output` is replaced only by a whole image."""
    if not (folder / "run.sh").is_file():
        raise ImageError(f"{folder} has no run.sh, so it is no backend")
    if ":" not in name:
        raise ImageError(f"the image name {name} has no tag; NAME:TAG is needed")
    content = layer(folder)
    # The file name of the gzip header would depend on where it is written.
    packed = gzip.compress(content, compresslevel=6, mtime=0)
    config = _json(
        {
            "architecture": architecture,
            "config": {"Entrypoint": ["/run.sh"]},
            "created": EPOCH,
            "history": [{"created": EPOCH, "created_by": "oci_image.py"}],
            "os": system,
            "rootfs": {"diff_ids": [f"sha256:{_digest(content)}"], "type": "layers"},
        }
    )

    def described(kind: str, blob: bytes, **more: object) -> dict:
        media_type = f"application/vnd.oci.image.{kind}"
        return {"digest": f"sha256:{_digest(blob)}", "mediaType": media_type, "size": len(blob), **more}

    manifest = _json(
        {
            "config": described("config.v1+json", config),
            "layers": [described("layer.v1.tar+gzip", packed)],
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "schemaVersion": 2,
        }
    )
    tag = name.rpartition(":")[2]
    index = {
        "manifests": [
            described(
                "manifest.v1+json",
                manifest,
                annotations={"org.opencontainers.image.ref.name": tag},
                platform={"architecture": architecture, "os": system},
            )
        ],
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "schemaVersion": 2,
    }
    saved = [
        {
            "Config": f"blobs/sha256/{_digest(config)}",
            "Layers": [f"blobs/sha256/{_digest(packed)}"],
            "RepoTags": [name],
        }
    ]
    files = {f"blobs/sha256/{_digest(blob)}": blob for blob in (config, manifest, packed)} | {
        "index.json": _json(index),
        "manifest.json": _json(saved),
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_name(output.name + ".new")
    try:
        with tarfile.open(new, "w", format=tarfile.PAX_FORMAT) as tar:
            for folder_name in ("blobs", "blobs/sha256"):
                member = tarfile.TarInfo(folder_name)
                member.type = tarfile.DIRTYPE
                tar.addfile(_plain(member, True))
            for file_name in sorted(files):
                member = tarfile.TarInfo(file_name)
                member.size = len(files[file_name])
                tar.addfile(_plain(member, False), io.BytesIO(files[file_name]))
        new.replace(output)
    finally:
        new.unlink(missing_ok=True)  # as when the disk is full


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="oci_image.py", description="a folder as a reproducible image tarball")
    parser.add_argument("folder", type=Path)
    parser.add_argument("image", type=Path)
    parser.add_argument("--name", required=True, metavar="NAME:TAG")
    parser.add_argument("--arch", choices=sorted(set(ARCHITECTURES.values())), default=None)
    parser.add_argument("--os", default="linux")
    given = parser.parse_args(arguments)
    architecture = given.arch or ARCHITECTURES.get(platform.machine(), platform.machine())
    try:
        write_image(given.folder, given.image, given.name, architecture, given.os)
    except (ImageError, OSError) as error:
        print(f"oci_image: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
