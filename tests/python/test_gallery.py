"""The galleries, read as LocalAI reads them."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from vllm_backend import model_yaml, options
from vllm_backend.options import OptionError

import gallery

ROOT = Path(__file__).resolve().parents[2]

# What the host detects, and which kinds of machine its filter then takes it for.
HOSTS = {
    "default": set(),
    "nvidia": {"nvidia"},
    "nvidia-cuda-12": {"nvidia"},
    "nvidia-cuda-13": {"nvidia"},
    "nvidia-l4t": {"nvidia", "jetson"},
    "nvidia-l4t-cuda-13": {"nvidia", "jetson"},
    "amd": {"amd"},
    "intel": {"intel"},
    "vulkan": set(),
    "metal": {"macos"},
    "darwin-x86": {"macos"},
}  # type: dict[str, set[str]]


def read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load((ROOT / "gallery" / name).read_text(encoding="utf-8")))


def installed(index: list[dict[str, Any]], capability: str) -> str:
    """The concrete entry that installing the meta backend gives on a host, as LocalAI looks it up."""
    meta = next(entry for entry in index if "uri" not in entry)
    chosen = meta["capabilities"]
    name = chosen.get(capability) or chosen.get("default") or chosen.get("cpu")
    (entry,) = [entry for entry in index if entry["name"] == name]
    assert gallery.needs(entry["name"], entry["uri"]) <= HOSTS[capability], "the host would hide it"
    return str(name)


# ---- Backends ----


def test_the_index_is_what_its_tool_writes() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "gallery.py"], capture_output=True, text=True, check=True, cwd="/"
    )
    assert done.stdout == (ROOT / "gallery" / "index.yaml").read_text(encoding="utf-8")


def test_the_index_names_only_what_is_built() -> None:
    index = read("index.yaml")
    built = [variant.name for variant in gallery.VARIANTS.values() if variant.built]
    assert [entry["name"] for entry in index] == ["vllm-cpp", *built]
    assert set(index[0]["capabilities"].values()) == set(built)
    for capability in HOSTS:
        assert installed(index, capability) in built


def test_every_machine_gets_its_variant_once_all_are_built(tmp_path: Path) -> None:
    for variant in gallery.VARIANTS.values():
        (tmp_path / f"{variant.name}.tar").touch()
    index = gallery.entries(gallery.image_files(tmp_path))
    assert len(index) == 6
    wanted = {
        "default": "cpu-vllm-cpp", "darwin-x86": "cpu-vllm-cpp", "nvidia-cuda-12": "cpu-vllm-cpp",
        "nvidia": "cuda13-vllm-cpp", "nvidia-cuda-13": "cuda13-vllm-cpp",
        "nvidia-l4t": "nvidia-l4t-arm64-vllm-cpp", "nvidia-l4t-cuda-13": "nvidia-l4t-arm64-vllm-cpp",
        "amd": "cpu-vllm-cpp", "intel": "cpu-vllm-cpp", "vulkan": "vulkan-vllm-cpp", "metal": "metal-vllm-cpp",
    }  # fmt: skip
    assert {capability: installed(index, capability) for capability in HOSTS} == wanted
    (tmp_path / "vulkan-vllm-cpp.tar").unlink()
    index = gallery.entries(gallery.image_files(tmp_path))
    assert "vulkan" not in index[0]["capabilities"] and installed(index, "vulkan") == "cpu-vllm-cpp"


@pytest.mark.parametrize("name", [variant.name for variant in gallery.VARIANTS.values()])
def test_names_tell_the_host_where_they_run(name: str) -> None:
    wanted = {"cuda13": {"nvidia"}, "nvidia": {"nvidia", "jetson"}, "metal": {"macos"}}
    assert gallery.needs(name, "") == wanted.get(name.split("-")[0], set())


@pytest.mark.parametrize("place", ["/srv/amd64", "/ships", "/Intel", "/nvidia"])
def test_a_place_that_would_hide_an_image_is_refused(place: str) -> None:
    with pytest.raises(gallery.GalleryError, match="would hide cpu-vllm-cpp"):
        gallery.entries({"cpu-vllm-cpp": f"ocifile://{place}/cpu-vllm-cpp.tar"})


def test_a_gallery_without_an_image_for_every_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(gallery.GalleryError, match="no image cpu-vllm-cpp"):
        gallery.entries({"cuda13-vllm-cpp": "registry.example/x:latest-cuda13-vllm-cpp"})
    assert gallery.main(["--images", str(tmp_path)]) == 1
    assert gallery.main(["--registry", "registry.example/amd64"]) == 1
    assert gallery.main(["--registry", "registry.example/x"]) == 0


# ---- Models ----

TEXT_ARGS = {"block_size": 32, "num_blocks": 4096, "max_num_seqs": 8, "tool_parser": "hermes",
             "reasoning_parser": "think_auto"}  # fmt: skip
SMALL_ARGS = {**TEXT_ARGS, "num_blocks": 1024}
MTP = {"speculative_config": {"method": "mtp", "num_speculative_tokens": 1}}
DFLASH = {"speculative_config": {"method": "dflash", "model": "z-lab/Qwen3.6-27B-DFlash", "num_speculative_tokens": 16}}
TEXT = {
    "qwen3.6-27b-nvfp4-vllm-cpp": ("unsloth/Qwen3.6-27B-NVFP4", TEXT_ARGS),
    "qwen3.6-27b-nvfp4-mtp-vllm-cpp": ("unsloth/Qwen3.6-27B-NVFP4", {**TEXT_ARGS, **MTP}),
    "qwen3.6-27b-nvfp4-dflash-vllm-cpp": ("unsloth/Qwen3.6-27B-NVFP4", {**TEXT_ARGS, **DFLASH}),
    "qwen3.6-35b-a3b-nvfp4-vllm-cpp": ("nvidia/Qwen3.6-35B-A3B-NVFP4", TEXT_ARGS),
    "qwen3.6-35b-a3b-nvfp4-mtp-vllm-cpp": ("nvidia/Qwen3.6-35B-A3B-NVFP4", {**TEXT_ARGS, **MTP}),
    "qwen3-coder-30b-a3b-vllm-cpp": (
        "Qwen/Qwen3-Coder-30B-A3B-Instruct",
        {"block_size": 32, "num_blocks": 2048, "max_num_seqs": 4, "tool_parser": "qwen3_coder"},
    ),
    "qwen3-4b-vllm-cpp": ("Qwen/Qwen3-4B", SMALL_ARGS),
    "qwen3-0.6b-vllm-cpp": ("Qwen/Qwen3-0.6B", SMALL_ARGS),
}
VIDEO = ("minimax-h3-fl2va-q4", "minimax-h3-ref2va-q4")


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    out = copy.deepcopy(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = merged(out[key], value) if both else copy.deepcopy(value)
    return out


def configuration(name: str) -> dict[str, Any]:
    """The model YAML that installing an entry makes."""
    (entry,) = [entry for entry in read("models.yaml") if entry["name"] == name]
    return merged(entry["config_file"], entry["overrides"])


def test_the_models_are_those_of_localai() -> None:
    entries = read("models.yaml")
    assert [entry["name"] for entry in entries] == [*TEXT, *VIDEO]
    for entry in entries:
        assert entry["config_file"]["backend"] == "vllm-cpp" and entry["description"]
        assert len(entry["description"]) < 120


@pytest.mark.parametrize("name", TEXT)
def test_a_text_model_loads_with_its_settings_and_no_warning(name: str, tmp_path: Path) -> None:
    config = configuration(name)
    model, arguments = TEXT[name]
    assert config["known_usecases"] == ["chat", "completion"]
    assert config["function"]["grammar"]["disable"] is True
    assert config["template"]["use_tokenizer_template"] is True
    (artifact,) = config["artifacts"]
    assert (artifact["name"], artifact["source"]["type"], artifact["source"]["repo"]) == ("model", "huggingface", model)
    if "27b" in name:  # under this name the repository holds something else since
        assert artifact["source"]["revision"] == "890bdef7a42feba6d83b6e17a03315c694112f2a"
    (entry,) = [entry for entry in read("models.yaml") if entry["name"] == name]
    for file in entry.get("files", []):  # as the host puts them
        path = tmp_path / file["filename"]
        path.parent.mkdir(exist_ok=True)
        path.touch()
        assert file["uri"].startswith("huggingface://") and file["uri"].endswith(path.name)

    request = model_yaml.model_options(config, str(tmp_path))
    assert (request.Model, request.ContextSize) == (model, 32768)
    found = options.read(request, str(tmp_path / "snapshot"))
    assert found.warnings == []
    given = {key: value for key, (place, value) in found.sources.items() if place == "engine_args"}
    wanted = dict(arguments)
    if "dflash" in name:
        draft = {**wanted["speculative_config"], "model": str(tmp_path / "Qwen3.6-27B-DFlash")}
        wanted["speculative_config"] = draft
        assert json.loads(found.params["speculative_config"]) == draft
    assert given == wanted
    assert found.sources["max_model_len"] == ("context_size", 32768)
    assert found.settings["clip_max_model_len"] is True


@pytest.mark.parametrize("name", VIDEO)
def test_a_video_model_has_known_settings(name: str) -> None:
    config = configuration(name)
    assert config["cuda"] is True and config["known_usecases"] == ["video"]
    partition = name.split("-")[2]
    assert config["parameters"]["model"] == f"minimax-h3/MiniMax-H3-{partition.upper()}-Q4_K_M.gguf"
    pairs = dict(options.from_options(config["options"]))
    assert pairs == {
        "video_encoder": "minimax-h3/qwen3vl-32B-MiniMax-H3-Q4_K_M.gguf",
        "video_tokenizer": "minimax-h3/tokenizer.json",
        "video_vae": "minimax-h3/video_vae.safetensors",
        "video_vae_config": "minimax-h3/video_vae_config.json",
        "audio_vae": "minimax-h3/audio_vae.safetensors",
        "audio_vae_config": "minimax-h3/audio_vae_config.json",
        "video_partition": partition,
        "video_device": "cuda",
        "video_dequant_bf16": "true",
        "video_width": "1344",
        "video_height": "768",
        "video_num_frames": "124",
    }
    assert all(options.BY_KEY[key].target == options.VIDEO for key in pairs)
    request = model_yaml.model_options(config, "/models")
    # Known settings of an engine that this build lacks: refused by name, not warned of.
    with pytest.raises(OptionError, match="asks for a video model, and this build has no video engine"):
        options.read(request, request.ModelFile)
