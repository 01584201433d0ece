#!/usr/bin/env python3
"""Writes the backend gallery: an entry for each image that is there, and the meta backend whose map names only these.

    python tools/gallery.py                        what is committed as gallery/index.yaml
    python tools/gallery.py --images DIR           for the image files NAME.tar in a folder
    python tools/gallery.py --registry PREFIX      for images PREFIX:latest-NAME; --built says which there are

The host shows a concrete entry on the machines that words of its name and URI stand for: see needs().
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

META = "vllm-cpp"
IMAGES = "/var/lib/local-ai/images"

HEADER = """\
# Backend gallery for LocalAI, written by tools/gallery.py: what is built, and nothing else. LocalAI reads it with
#   LOCALAI_BACKEND_GALLERIES='[{"name": "vllm", "url": "file://BACKENDS-PATH/gallery/index.yaml"}]'
# (the file has to lie below the backends path); then `local-ai backends install vllm-cpp`.
"""


class GalleryError(Exception):
    """One sentence."""


@dataclass(frozen=True)
class Variant:
    name: str
    capabilities: tuple[str, ...]  # of the host, that choose it
    tags: tuple[str, ...]


# The first is the one for every machine. Names decide what a host offers: "nvidia" alone would hide the Jetson's.
VARIANTS = (
    Variant("cpu-vllm-cpp", ("default",), ("CPU",)),
    Variant("cuda13-vllm-cpp", ("nvidia", "nvidia-cuda-13"), ("GPU", "CUDA")),
    Variant("vulkan-vllm-cpp", ("vulkan", "amd", "intel"), ("GPU", "Vulkan")),
    Variant("metal-vllm-cpp", ("metal",), ("GPU", "Metal")),
    Variant("nvidia-l4t-arm64-vllm-cpp", ("nvidia-l4t", "nvidia-l4t-cuda-13"), ("GPU", "CUDA", "Jetson")),
)
BUILT = ("cpu-vllm-cpp",)

# The host's filter: words in name and URI, and the machines that an entry with one of them is shown on.
FILTER = (
    (("darwin", "mlx", "metal"), "macos"),
    (("l4t",), "jetson"),
    (("cuda", "nvidia"), "nvidia"),
    (("rocm", "hip", "amd"), "amd"),
    (("sycl", "intel"), "intel"),
)


def needs(name: str, uri: str) -> set[str]:
    """The machines that the host takes a concrete entry to be for; empty: all."""
    text = f"{name} {uri}".lower()
    return {machine for words, machine in FILTER if any(word in text for word in words)}


def entries(uris: dict[str, str]) -> list[dict]:
    """The gallery of the variants that have a URI. Raises GalleryError."""
    common = {
        "license": "apache-2.0",
        "description": "Language models on your own machine: continuous batching, paged KV cache with prefix caching.",
    }
    published = [variant for variant in VARIANTS if variant.name in uris]
    if not published or published[0] is not VARIANTS[0]:
        raise GalleryError(f"there is no image {VARIANTS[0].name}, which machines without an accelerator need")
    capabilities = {key: variant.name for variant in published for key in variant.capabilities}
    out = [{"name": META, "alias": META, **common, "tags": ["LLM"], "capabilities": capabilities}]
    for variant in published:
        uri = uris[variant.name]
        if needs(variant.name, uri) != needs(variant.name, ""):
            raise GalleryError(f"LocalAI would hide {variant.name} for words in its URI {uri}; choose another place")
        out.append({"name": variant.name, "alias": META, "uri": uri, **common, "tags": ["LLM", *variant.tags]})
    return out


def image_files(folder: Path) -> dict[str, str]:
    found = {variant.name: folder.resolve() / f"{variant.name}.tar" for variant in VARIANTS}
    return {name: f"ocifile://{path}" for name, path in found.items() if path.is_file()}


def render(gallery: list[dict]) -> str:
    import yaml

    return HEADER + yaml.safe_dump(gallery, sort_keys=False, allow_unicode=True, width=118)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--images", type=Path, metavar="DIR", help="folder of image files")
    parser.add_argument("--registry", metavar="PREFIX", help="repository of images, without a tag")
    parser.add_argument("--built", nargs="+", default=list(BUILT), metavar="NAME", help="variants in the registry")
    parsed = parser.parse_args(arguments)
    try:
        if parsed.images:
            uris = image_files(parsed.images)
        elif parsed.registry:
            uris = {name: f"{parsed.registry}:latest-{name}" for name in parsed.built}
        else:
            uris = {name: f"ocifile://{IMAGES}/{name}.tar" for name in BUILT}
        unknown = sorted(set(uris) - {variant.name for variant in VARIANTS})
        if unknown:
            raise GalleryError(f"no variant is called {unknown[0]}")
        print(render(entries(uris)), end="")
    except GalleryError as error:
        print(f"gallery: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
