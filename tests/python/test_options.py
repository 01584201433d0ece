"""The table of option keys and its reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm_backend import backend_pb2 as pb
from vllm_backend import options
from vllm_backend.options import OptionError
from vllm_backend.paths import PathError


def read(engine_args: Any = None, listed: tuple[str, ...] = (), **fields: Any) -> options.ModelSettings:
    text = engine_args if isinstance(engine_args, str) else "" if engine_args is None else json.dumps(engine_args)
    return options.read(pb.ModelOptions(EngineArgs=text, Options=listed, **fields), "/models/m")


def test_keys_and_aliases_are_unique() -> None:
    keys = [key for option in options.TABLE for key in (option.name, *option.aliases)]
    assert len(keys) == len(set(keys))


def test_destinations_are_fields_of_the_header() -> None:
    header = (Path(__file__).parents[2] / "native" / "include" / "vllm.h").read_text()
    struct = header.split("vllm_model_params;")[0].rsplit("struct vllm_model_params", 1)[1]
    for option in options.TABLE:
        if option.target == options.PARAM:
            assert f"{option.destination};" in struct, option.name


def test_unset_means_absent() -> None:
    found = read()
    assert found.params == {"model_path": "/models/m"}
    assert found.settings == {"clip_max_model_len": True}
    assert found.warnings == []


@pytest.mark.parametrize("entry", ["block_size:16", "--block_size:16", "--block-size=16", " Block_Size : 16"])
def test_load_08_spellings_of_an_option(entry: str) -> None:
    assert read(listed=(entry,)).params["block_size"] == 16


@pytest.mark.parametrize("entry", ["--enable_prefix_caching", "enable_radix_attention:T", "enable_prefix_caching:1"])
def test_load_08_spellings_of_a_flag(entry: str) -> None:
    assert read(listed=(entry,)).params["enable_prefix_caching"] == 1


def test_load_08_precedence() -> None:
    fields = {"ContextSize": 4096, "MaxModelLen": 2048, "Threads": 3}
    found = read(**fields)
    assert (found.params["max_model_len"], found.settings["threads"]) == (2048, 3)
    assert found.settings["clip_max_model_len"] is True
    found = read(listed=("max_model_len:1024", "threads:2"), **fields)
    assert (found.params["max_model_len"], found.settings["threads"]) == (1024, 2)
    assert found.settings["clip_max_model_len"] is False
    found = read({"max_model_len": 512, "threads": 1}, ("max_model_len:1024", "threads:2"), **fields)
    assert (found.params["max_model_len"], found.settings["threads"]) == (512, 1)
    assert found.settings["clip_max_model_len"] is False
    assert read(ContextSize=4096).params["max_model_len"] == 4096
    assert read(listed=("kv_cache_dtype:q8_0",)).settings["kv_cache_dtype"] == "q8_0"


@pytest.mark.parametrize(
    ("arguments", "key", "value"),
    [
        ({"block_size": "x"}, "block_size", "'x'"),
        ({"block_size": 0}, "block_size", "0"),
        ({"block_size": 16.5}, "block_size", "16.5"),
        ({"block_size": True}, "block_size", "true"),
        ({"max_num_seqs": -1}, "max_num_seqs", "-1"),
        ({"num_blocks": 2**31}, "num_blocks", "2147483648"),
        ({"scheduling_policy": "random"}, "scheduling_policy", "'random'"),
        ({"enable_prefix_caching": "maybe"}, "enable_prefix_caching", "'maybe'"),
        ({"speculative_config": "[1]"}, "speculative_config", "'[1]'"),
        ({"speculative_config": "{"}, "speculative_config", "'{'"),
        ({"kv_transfer_config": 5}, "kv_transfer_config", "5"),
        ({"gpu_memory_utilization": 1.5}, "gpu_memory_utilization", "1.5"),
        ({"tool_parser": ["hermes"]}, "tool_parser", '["hermes"]'),
        ({"tool_parser": "a\0b"}, "tool_parser", r"'a\x00b'"),
        ({"tool_parser": "\ud800"}, "tool_parser", r"'\ud800'"),
        ({"kv_cache_dtype": "int4"}, "kv_cache_dtype", "'int4'"),
        ({"schedule_policy": 1}, "schedule_policy", "1"),
    ],
)
def test_load_08_an_unusable_value_fails_by_key_and_value(arguments: Any, key: str, value: str) -> None:
    with pytest.raises(OptionError) as error:
        read(arguments)
    assert key in str(error.value) and f"is {value};" in str(error.value)


@pytest.mark.parametrize("entry", ["block_size:", "--block_size", "max_num_seqs:many", "enable_jump_forward:2"])
def test_load_08_an_unusable_option_fails(entry: str) -> None:
    with pytest.raises(OptionError, match="in options is"):
        read(listed=(entry,))


def test_load_08_unknown_keys_warn_once_with_the_nearest() -> None:
    found = read({"max_num_seq": 4, "zzz": 1}, ("max_num_seq:3", "max_num_seq:4"))
    assert [w for w in found.warnings if "options" in w] == [
        "options has the unknown key 'max_num_seq'; did you mean max_num_seqs?"
    ]
    assert "engine_args has the unknown key 'zzz'" in found.warnings


def test_many_unknown_keys_are_bounded() -> None:
    found = read({f"key{i}" + "x" * 1000: i for i in range(2000)})
    assert len(found.warnings) == options.MAX_WARNINGS + 1
    assert "1984 more" in found.warnings[-1]


def test_one_key_twice_in_one_place() -> None:
    with pytest.raises(OptionError, match="given twice in engine_args, as 1 and as 2"):
        read({"enable_prefix_caching": True, "enable_radix_attention": False})
    assert read(listed=("block_size:16", "block_size:16")).params["block_size"] == 16


def test_null_is_absent_and_numeric_text_is_a_number() -> None:
    found = read({"block_size": None, "num_blocks": "128", "max_num_seqs": 4.0})
    assert "block_size" not in found.params
    assert (found.params["num_blocks"], found.params["max_num_seqs"]) == (128, 4)


@pytest.mark.parametrize("text", ["{", "[1]", "5", '{"a": NaN}', '{"block_size": 1e999}', "[" * 100000])
def test_broken_engine_args_fail(text: str) -> None:
    with pytest.raises(OptionError, match="^engine_args is"):
        read(text)


def test_documents_are_handed_on() -> None:
    transfer = {"kv_connector": "LMCacheConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"port": 65432}}
    found = read({"kv_transfer_config": transfer, "speculative_config": '{"method": "ngram"}'})
    assert json.loads(found.params["kv_transfer_config"]) == transfer
    assert json.loads(found.params["speculative_config"]) == {"method": "ngram"}


def test_video_and_adapters_are_refused_by_name() -> None:
    with pytest.raises(OptionError, match="video_vae in options asks for a video model"):
        read(listed=("video_vae:a.safetensors",))
    with pytest.raises(OptionError, match="LoraAdapter is set"):
        read(LoraAdapter="a")


def test_typed_fields_without_effect_are_named_once() -> None:
    found = read(Quantization="awq", MMap=True, NGPULayers=99999999, Overrides=["a=b"], NBatch=512, Seed=7)
    assert found.warnings == ["these fields of the model's configuration have no effect here: Quantization, Overrides"]


def test_load_09_draft_is_searched_in_order(tmp_path: Path) -> None:
    def config(reference: Any, **more: Any) -> Any:
        found = read({"speculative_config": {"method": "DFlash", "model": reference, **more}}, ModelPath=str(tmp_path))
        return json.loads(found.params["speculative_config"])

    with pytest.raises(PathError) as error:
        config("org/draft")
    for place in (tmp_path / "draft", tmp_path / "org/draft"):
        assert str(place) in str(error.value)
    for place in (tmp_path / "org/draft", tmp_path / "draft", tmp_path / "elsewhere"):
        place.mkdir(parents=True)
        (place / "config.json").write_text("{}")
        reference = str(place) if place.name == "elsewhere" else "org/draft"
        assert config(reference, num_speculative_tokens=4) == {
            "method": "DFlash",
            "model": str(place),
            "num_speculative_tokens": 4,
        }
    with pytest.raises(OptionError, match="speculative_config has no model"):
        config(None)


def test_load_09_tokenizer_config_is_relative_to_the_models(tmp_path: Path) -> None:
    with pytest.raises(PathError, match=r"tokenizer_config 't/c\.json' was not found as a file; looked at "):
        read({"tokenizer_config": "t/c.json"}, ModelPath=str(tmp_path))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "c.json").write_text("{}")
    found = read(listed=("tokenizer_config_path:t/c.json",), ModelPath=str(tmp_path))
    assert found.params["tokenizer_config_path"] == str(tmp_path / "t/c.json")


def test_effective_settings_are_one_line() -> None:
    found = read({"tool_parser": "a\nb", "block_size": 16}, ContextSize=4096)
    line = found.line({"block_size": 16, "max_model_len": 256, "device": "cpu", "chat_template": "{{ x }}"})
    assert line == (
        "settings: model=/models/m block_size=16 (engine_args) max_model_len=256 (context_size has 4096) "
        "tool_parser='a\\nb' (engine_args) device='cpu'"
    )


def test_readme_table_has_every_key() -> None:
    table = options.render_table()
    for option in options.TABLE:
        assert (f"`{option.name}`" in table) == (option.target != options.VIDEO)
    assert all(line.count("|") == 5 for line in table.splitlines())
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    shown = readme.split("<!-- settings: written by python -m vllm_backend.options -->")[1]
    assert shown.split("<!-- /settings -->")[0].strip() == table.strip()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(sorted(options.BY_KEY)) | st.text(max_size=20)


def check_settled(found: options.ModelSettings) -> None:
    """What the engine is handed is plain and of the header's types."""
    for name, value in found.params.items():
        assert isinstance(value, str | int | float) and not isinstance(value, bool)
        assert not isinstance(value, int) or -(2**31) <= value < 2**63
        assert not isinstance(value, str) or ("\0" not in value and value.encode() is not None), name
    json.dumps(found.settings, allow_nan=False)
    assert "\n" not in found.line({})


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(keys, json_values, max_size=4))
def test_hostile_engine_args_settle_or_fail_in_words(arguments: dict[str, Any]) -> None:
    try:
        check_settled(read(json.dumps(arguments)))
    except (OptionError, PathError) as error:
        assert len(str(error)) < 2000


@settings(max_examples=150, deadline=None)
@given(st.text() | st.lists(st.sampled_from(list('{}[]":,0e-tru\\')), max_size=30).map("".join))
def test_hostile_texts_settle_or_fail_in_words(text: str) -> None:
    for arguments in ({"engine_args": text}, {"listed": (text,)}):
        try:
            check_settled(read(**arguments))
        except (OptionError, PathError) as error:
            assert str(error)
