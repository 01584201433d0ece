"""Loading a model, seen from outside."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from backend_process import ROOT, Backend, wait_for
from conftest import Start
from vllm_backend import backend_pb2 as pb


def last_load(backend: Backend) -> dict[str, Any]:
    fields = json.loads(backend.events("load")[-1])
    assert isinstance(fields, dict)
    return fields


def test_load_01_wrong_abi_version(start: Start, fake_library: Path) -> None:
    backend = start(environment={"FAKE_VLLM_ABI": "10"})
    for _ in range(2):
        result = backend.load("good")
        assert not result.success
        assert result.message == f"the library {fake_library} has ABI version 10, this backend needs 21"
    assert backend.call("Health", pb.HealthMessage()).message == b"OK"


def test_load_01_missing_and_foreign_library(start: Start, tmp_path: Path) -> None:
    backend = start(environment={"VLLM_CPP_LIBRARY": "/nowhere/libvllm.so"})
    assert "/nowhere/libvllm.so does not exist" in backend.load("good").message
    foreign = tmp_path / "libvllm.so"
    foreign.write_text("no library")
    backend = start(environment={"VLLM_CPP_LIBRARY": str(foreign)})
    assert f"the library {foreign} cannot be opened" in backend.load("good").message
    assert backend.call("Health", pb.HealthMessage()).message == b"OK"


def test_load_01_headers_beside_the_library(start: Start, fake_library: Path, tmp_path: Path) -> None:
    """An installation has no source tree: the headers that count are those beside the library."""
    copy = tmp_path / "lib" / "libvllm.so"
    copy.parent.mkdir()
    shutil.copy(fake_library, copy)
    include = Path(__file__).parents[2] / "native" / "include"
    (copy.parent / "vllm_ext.h").write_text((include / "vllm_ext.h").read_text())
    newer = (include / "vllm.h").read_text().replace("VLLM_ABI_VERSION 21", "VLLM_ABI_VERSION 22")
    (copy.parent / "vllm.h").write_text(newer)
    backend = start(environment={"VLLM_CPP_LIBRARY": str(copy)})
    assert "has ABI version 21, this backend needs 22" in backend.load("good").message


@pytest.mark.parametrize("joined_address", [False, True])
def test_load_03_health_within_two_seconds_of_start(start: Start, joined_address: bool) -> None:
    backend = start(joined_address=joined_address)
    assert time.monotonic() - backend.started < 2
    assert backend.log.exists() is False  # nothing was asked of the library


def test_load_03_health_while_loading(start: Start) -> None:
    backend = start()
    results: list[Any] = []
    loading = threading.Thread(target=lambda: results.append(backend.load("slow")))
    loading.start()
    wait_for(lambda: backend.events("load"))
    states = []
    while not results:
        begin = time.monotonic()
        assert backend.call("Health", pb.HealthMessage(), timeout=1).message == b"OK"
        states.append(backend.state())
        assert time.monotonic() - begin < 1
        time.sleep(0.05)
    loading.join()
    assert results[0].success
    assert len(states) > 5 and set(states[:-1]) == {pb.StatusResponse.BUSY}


def last_words(environment: dict[str, str], *arguments: str, **options: Any) -> tuple[int, str]:
    """Exit code and last line of stderr of a server process that ends by itself."""
    process = subprocess.run(
        [sys.executable, "-m", "vllm_backend", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment},
        capture_output=True,
        text=True,
        timeout=20,
        **options,
    )
    return process.returncode, [line for line in process.stderr.splitlines() if line.strip()][-1]


def test_load_04_port_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, line = last_words({}, "--addr", address)
    assert code == 1
    assert line == f"vllm_backend: the address {address} cannot be used: Address already in use"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("127.0.0.1:99999", "it must be HOST:PORT, with a port up to 65535"),
        ("127.0.0.1:-1", "it must be HOST:PORT"),
        ("127.0.0.1:http", "it must be HOST:PORT"),
        ("127.0.0.1", "it must be HOST:PORT"),
        ("", "it must be HOST:PORT"),
        ("a..b:1", "the address a..b:1 cannot be used: "),
        ("203.0.113.7:1", "the address 203.0.113.7:1 cannot be used: Cannot assign requested address"),
    ],
)
def test_load_04_an_address_that_is_none(address: str, words: str) -> None:
    code, line = last_words({}, "--addr", address)
    assert code == 1 and line.startswith("vllm_backend: the address ") and words in line


def test_load_04_bad_arguments() -> None:
    code, line = last_words({}, "--adr=127.0.0.1:1")
    assert code == 2
    assert line.endswith("error: unrecognized arguments: --adr=127.0.0.1:1")


def test_load_04_missing_module(tmp_path: Path) -> None:
    (tmp_path / "grpc_reflection.py").write_text("raise ModuleNotFoundError('gone', name='grpc_reflection')")
    path = os.pathsep.join((str(tmp_path), str(ROOT / "python")))
    code, line = last_words({"PYTHONPATH": path}, "--addr", "127.0.0.1:0")
    assert (code, line) == (1, "vllm_backend: grpc_reflection cannot be imported (gone); run install.sh")


def test_load_05_what_is_no_model_is_refused_at_once(start: Start, models: Path) -> None:
    backend = start()
    cases = {
        "empty": "has no config.json",
        "files": "has no config.json; to load its file a.gguf, name that one",
        "notes.txt": "neither a .gguf file nor a directory",
        "absent": "was not found at",
        "": "no model is named",
        "broken": "the tensor output.weight is missing",
    }
    for model, words in cases.items():
        begin = time.monotonic()
        result = backend.load(model)
        assert not result.success and words in result.message and "\n" not in result.message
        assert time.monotonic() - begin < 1
    assert len(backend.events("load")) == 1  # only the last one came as far as the library
    assert backend.load("good").success
    assert backend.predict("a b").message == b"a b"


def test_load_05_where_a_model_is_looked_for(start: Start, models: Path) -> None:
    backend = start()

    def loaded(**fields: Any) -> str:
        result = backend.call("LoadModel", pb.ModelOptions(**fields))
        assert result.success, result.message
        return str(last_load(backend)["model_path"])

    good = str(models / "good")
    assert loaded(Model="org/name", ModelFile=good) == good
    assert loaded(Model="good", ModelFile="/nowhere/good", ModelPath=str(models)) == good
    assert loaded(Model="x", ModelFile="good", ModelPath=str(models)) == good
    assert loaded(Model="one.GGUF", ModelPath=str(models)) == str(models / "one.GGUF")
    result = backend.call("LoadModel", pb.ModelOptions(Model="good"))
    assert not result.success and "'good' is relative and ModelPath is empty" in result.message


def test_load_06_identity(start: Start) -> None:
    backend = start(load=True)
    requests = {
        "Predict": pb.PredictOptions(Prompt="a", ModelIdentity="other"),
        "PredictStream": pb.PredictOptions(Prompt="a", ModelIdentity="other"),
        "TokenizeString": pb.PredictOptions(Prompt="a", ModelIdentity="other"),
        "Embedding": pb.PredictOptions(Embeddings="a", ModelIdentity="other"),
        "Rerank": pb.RerankRequest(ModelIdentity="other"),
        "Score": pb.ScoreRequest(ModelIdentity="other"),
        "GenerateVideo": pb.GenerateVideoRequest(ModelIdentity="other"),
    }
    for name, request in requests.items():
        code, message = backend.status_of(name, request)
        assert code == grpc.StatusCode.NOT_FOUND and "model identity mismatch" in message
    for identity in ("", "good"):
        assert backend.predict("a", ModelIdentity=identity).message == b"a"


def test_load_07_no_model(start: Start) -> None:
    backend = start()
    calls = {
        "Predict": pb.PredictOptions(Prompt="a"),
        "PredictStream": pb.PredictOptions(Prompt="a"),
        "TokenizeString": pb.PredictOptions(Prompt="a"),
        "Detokenize": pb.DetokenizeRequest(tokens=[1]),
        "GetMetrics": pb.MetricsRequest(),
        "ModelMetadata": pb.ModelOptions(),
    }

    def check() -> None:
        assert backend.state() == pb.StatusResponse.UNINITIALIZED
        for name, request in calls.items():
            code, message = backend.status_of(name, request)
            assert code == grpc.StatusCode.FAILED_PRECONDITION and "model not loaded" in message, name

    check()
    assert backend.load("good").success
    assert backend.call("Free", pb.HealthMessage()).success
    check()


def test_load_08_settings_reach_the_library(start: Start) -> None:
    backend = start()
    arguments = {"block_size": 32, "num_blocks": 1024, "tool_parser": "hermes", "speculative_config": {"method": "mtp"}}
    result = backend.load(
        "good",
        ContextSize=32768,
        Threads=4,
        EngineArgs=json.dumps(arguments),
        Options=["block_size:16", "--enable_prefix_caching", "schedule_policy:lpm", "max_num_sqs:3"],
    )
    assert result.success
    got = last_load(backend)
    wanted = {
        "block_size": 32, "num_blocks": 1024, "max_model_len": 32768, "max_num_seqs": 0, "enable_prefix_caching": 1,
        "enable_jump_forward": 0, "tool_parser": "hermes", "scheduling_policy": "lpm", "reasoning_parser": "",
        "settings": {"threads": 4, "clip_max_model_len": True, "report_crashes": True},
    }  # fmt: skip
    assert {key: got[key] for key in wanted} == wanted
    assert json.loads(got["speculative_config"]) == {"method": "mtp"}
    log = backend.stdout.read_text() + backend.stderr.read_text()
    assert log.count("settings: ") == 1
    assert log.count("unknown key 'max_num_sqs'; did you mean max_num_seqs?") == 1

    result = backend.load("good", EngineArgs='{"max_model_len": "long"}')
    assert not result.success
    assert result.message == "max_model_len in engine_args is 'long'; it must be a whole number from 1"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hermess", "tool_parser in options is 'hermess'; it must be one of hermes, none, qwen3; did you mean hermes?"),
        ("telepathy", "tool_parser in options is 'telepathy'; it must be one of hermes, none, qwen3"),
    ],
)
def test_an_unknown_parser_is_refused_at_load(start: Start, name: str, message: str) -> None:
    backend = start()
    result = backend.load("good", Options=[f"tool_parser:{name}"])
    assert (result.success, result.message) == (False, message)
    assert backend.load("good", Options=["tool_call_parser:qwen3", "reasoning_parser:deepseek_r1"]).success


def test_cuda_on_a_build_without_it_is_said(start: Start) -> None:
    backend = start()
    assert backend.load("good").success
    assert "cuda: true" not in backend.stderr.read_text()
    assert backend.load("good", CUDA=True).success
    wait_for(lambda: "cuda: true, and this build runs it on the CPU" in backend.stderr.read_text())


def test_load_09_draft(start: Start, models: Path) -> None:
    backend = start()

    def config(model: str) -> str:
        return json.dumps({"speculative_config": {"method": "dflash", "model": model}})

    result = backend.load("good", EngineArgs=config("org/absent"))
    assert not result.success
    assert str(models / "absent") in result.message and str(models / "org/absent") in result.message
    assert not backend.events("load")
    assert backend.load("good", EngineArgs=config("org/draft"), Options=["tokenizer_config:template.json"]).success
    assert json.loads(last_load(backend)["speculative_config"])["model"] == str(models / "org/draft")
    assert last_load(backend)["tokenizer_config_path"] == str(models / "template.json")


def test_a_cancelled_load_leaves_nothing(start: Start) -> None:
    backend = start()
    with pytest.raises(grpc.RpcError):
        backend.load("slow", timeout=0.3)
    wait_for(lambda: backend.events("load"))
    assert backend.state() == pb.StatusResponse.BUSY
    wait_for(lambda: backend.state() == pb.StatusResponse.UNINITIALIZED)
    assert len(backend.events("engine_free")) == 1
    assert backend.load("good").success


def test_a_second_load_replaces_the_model(start: Start) -> None:
    backend = start(load=True)
    with backend.open("PredictStream") as method:
        stream = method(pb.PredictOptions(Prompt="a !hang"))
        assert next(stream).message == b"a"
        assert backend.load("one.GGUF").success
        with pytest.raises(grpc.RpcError) as error:
            list(stream)
        assert error.value.code() == grpc.StatusCode.ABORTED
    assert backend.predict("b", ModelIdentity="one.GGUF").message == b"b"
    assert len(backend.events("engine_free")) == 1
    assert not backend.load("empty").success
    assert backend.state() == pb.StatusResponse.UNINITIALIZED
