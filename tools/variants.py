"""The forms in which the backend is published: their names, and which machines LocalAI offers them to.

LocalAI hides an entry from machines without the hardware that a word in its name or its URI stands for, so every name
carries the word of its device and no other; see HIDING_WORDS.
"""

from dataclasses import dataclass

BACKEND = "vllm-cpp"  # what a model's `backend:` says: the alias of all variants and the name of the meta entry


@dataclass(frozen=True)
class Variant:
    name: str  # of the folder, of the image and in the index
    capabilities: tuple[str, ...]  # keys of the meta entry's map that choose it
    systems: tuple[str, ...]  # sys.platform and machine it is built for
    built: bool  # whether the library has the device; others are neither packaged nor in the index
    opens: str = ""  # what a library that has the device opens at run time


VARIANTS = {
    "cpu": Variant(f"cpu-{BACKEND}", ("default", "cpu"), ("linux-x86_64", "linux-aarch64"), True),
    "cuda13": Variant(f"cuda13-{BACKEND}", ("nvidia", "nvidia-cuda-13"), ("linux-x86_64",), False),
    "vulkan": Variant(
        f"vulkan-{BACKEND}", ("vulkan",), ("linux-x86_64", "linux-aarch64"), True, opens="libvulkan.so.1"
    ),
    "metal": Variant(f"metal-{BACKEND}", ("metal",), ("darwin-arm64",), False),
    "l4t": Variant(f"nvidia-l4t-arm64-{BACKEND}", ("nvidia-l4t", "nvidia-l4t-cuda-13"), ("linux-aarch64",), False),
}

# Words in name or URI, and the only machines that entries with one of them are offered to.
HIDING_WORDS = {
    ("darwin", "mlx", "metal"): "macos",
    ("l4t",): "jetson",
    ("cuda", "nvidia"): "nvidia",
    ("rocm", "hip", "amd"): "amd",
    ("sycl", "intel"): "intel",
}
