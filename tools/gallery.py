#!/usr/bin/env python3
"""Writes the backend gallery: an entry for each image that is there, and the meta backend whose map names only these.

python tools/gallery.py                        what is committed as gallery/index.yaml
python tools/gallery.py --images DIR           for the image files NAME.tar in a folder
python tools/gallery.py --registry PREFIX      for images PREFIX:latest-NAME of what is built
"""

import argparse
import sys
from pathlib import Path

from variants import BACKEND, HIDING_WORDS, VARIANTS

IMAGES = "/var/lib/local-ai/images"

HEADER = """\
# Backend gallery for LocalAI, written by tools/gallery.py: what is built, and nothing else. LocalAI reads it with
#   LOCALAI_BACKEND_GALLERIES='[{"name": "vllm", "url": "file://BACKENDS-PATH/gallery/index.yaml"}]'
# (the file has to lie below the backends path); then `local-ai backends install %s`.
"""


class GalleryError(Exception):
    """One sentence."""


def needs(name: str, uri: str) -> set[str]:
    """The machines that the host takes a concrete entry to be for; empty: all."""
    text = f"{name} {uri}".lower()
    return {machine for words, machine in HIDING_WORDS.items() if any(word in text for word in words)}


def entries(uris: dict[str, str]) -> list[dict]:
    """The gallery of the variants that have a URI, by name. Raises GalleryError."""
    published = [variant for variant in VARIANTS.values() if variant.name in uris]
    capabilities = {key: variant.name for variant in published for key in variant.capabilities}
    if "default" not in capabilities:
        raise GalleryError(f"there is no image {VARIANTS['cpu'].name}, which machines without an accelerator need")
    common = {
        "license": "apache-2.0",
        "description": "Language models on your own machine: continuous batching, paged KV cache with prefix caching.",
    }
    out = [{"name": BACKEND, "alias": BACKEND, **common, "tags": ["LLM"], "capabilities": capabilities}]
    for variant in published:
        uri = uris[variant.name]
        if needs(variant.name, uri) != needs(variant.name, ""):
            raise GalleryError(f"LocalAI would hide {variant.name} for words in its URI {uri}; choose another place")
        out.append({"name": variant.name, "alias": BACKEND, "uri": uri, **common, "tags": ["LLM"]})
    return out


def image_files(folder: Path) -> dict[str, str]:
    """URI of each variant whose image file is in the folder."""
    found = {variant.name: folder.resolve() / f"{variant.name}.tar" for variant in VARIANTS.values()}
    return {name: f"ocifile://{path}" for name, path in found.items() if path.is_file()}


def render(gallery: list[dict]) -> str:
    import yaml

    return HEADER % BACKEND + yaml.safe_dump(gallery, sort_keys=False, allow_unicode=True, width=118)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=Path, metavar="DIR", help="folder of image files")
    parser.add_argument("--registry", metavar="PREFIX", help="repository of images, without a tag")
    parsed = parser.parse_args(arguments)
    built = [variant.name for variant in VARIANTS.values() if variant.built]
    if parsed.images:
        uris = image_files(parsed.images)
    elif parsed.registry:
        uris = {name: f"{parsed.registry}:latest-{name}" for name in built}
    else:
        uris = {name: f"ocifile://{IMAGES}/{name}.tar" for name in built}
    try:
        print(render(entries(uris)), end="")
    except GalleryError as error:
        print(f"gallery: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
