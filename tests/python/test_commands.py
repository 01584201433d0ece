"""The commands beside serving the host, on the fake library, and what they are made of."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from backend_process import ROOT, Backend, wait_for
from localai_client import free_port
from vllm_backend import backend_pb2 as pb
from vllm_backend import command_line, doctor, ending, logs, model_yaml, options, terminal
from vllm_backend.ending import StartError, sentence_of


def command(
    fake_library: Path, *arguments: str | Path, text: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vllm_backend", *map(str, arguments)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "python"),
            "VLLM_CPP_LIBRARY": str(fake_library),
            **environment,
        },
        input=text,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def last_line(text: str) -> str:
    return [line for line in text.splitlines() if line.strip()][-1]


# ---- doctor ----


def test_doctor_without_a_model(fake_library: Path) -> None:
    done = command(fake_library, "doctor", LOCALAI_GRPC_AUTH_TOKEN="s3cret")
    assert done.returncode == 0, done.stderr
    assert f"library     {fake_library}, version 0.0.0-fake, ABI 21" in done.stdout
    assert "Fake 1, 2 cores, 4 hardware threads" in done.stdout
    assert "2.00 GB free of 4.00 GB" in done.stdout
    assert "cuda: not available: this build has no CUDA device" in done.stdout
    assert "s3cret" not in done.stdout and "LOCALAI_GRPC_AUTH_TOKEN=(set)" in done.stdout


def test_doctor_shows_every_setting_with_its_source(fake_library: Path, models: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = command(
        fake_library, "doctor", models / "good", "--context", "9000", "--options", "max_num_seqs:3",
        "--engine-args", '{"scheduling_policy": "priority"}',
        FAKE_VLLM_LOG=str(log), VT_ENABLE_JUMP_FORWARD="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert last_line(done.stdout) == "verdict     the model can be loaded"
    for line in (
        "max_model_len = 4096 (host field context_size has 9000)",
        "max_num_seqs = 8 (options has 3)",
        "scheduling_policy = 'priority' (engine_args)",
        "num_blocks = 256 (automatic: from the 2.00 GB of free memory)",
        "enable_jump_forward = off (environment VT_ENABLE_JUMP_FORWARD)",
        "block_size = 32 (default)",
        "tool_parser = 'none' (automatic: from the chat template)",
        "KV pool 8.2 MB: 8192 tokens, 1.0 kB a token",
        "2 sequences of 4096 tokens\n",
        "memory allows one sequence a context of 32768",
    ):
        assert line in done.stdout, done.stdout
    shown = [line.split(" = ")[0].split()[-1] for line in done.stdout.splitlines() if " = " in line]
    assert shown == [option.name for option in options.TABLE if option.target != options.VIDEO]
    load, free = log.read_text().splitlines()
    assert json.loads(load.removeprefix("load "))["settings"]["plan_only"] is True
    assert free == "engine_free"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["absent"], "was not found at"),
        (["broken"], "the tensor output.weight is missing"),
        (["good", "--options", "block_size:x"], "block_size in options is 'x'"),
        (["good", "--engine-args", "{"], "engine_args is not JSON"),
        (["good", "--options", "tool_parser:hermess"], "did you mean hermes?"),
        (["good", "--context", "0"], "ContextSize is 0; it must be a whole number from 1"),
        (["good", "--config", "absent.yaml"], "cannot be read: No such file"),
        (["b\udce4d"], "b\\xe4d' is not UTF-8; rename it"),
        (["good/config.json/x"], "good/config.json/x (Not a directory)"),
    ],
)
def test_load_04_doctor_ends_with_the_reason(
    fake_library: Path, models: Path, arguments: list[str], words: str
) -> None:
    done = command(fake_library, "doctor", models / arguments[0], *arguments[1:])
    assert done.returncode == 1
    assert last_line(done.stderr).startswith("vllm_backend: ") and words in last_line(done.stderr)
    assert "Traceback" not in done.stderr


def test_load_04_doctor_names_an_unusable_library(fake_library: Path) -> None:
    done = command(Path("/nowhere/libvllm.so"), "doctor")
    assert (done.returncode, done.stdout) == (1, "")
    assert last_line(done.stderr).startswith("vllm_backend: the library /nowhere/libvllm.so does not exist")
    done = command(fake_library, "doctor", FAKE_VLLM_ABI="10")
    assert last_line(done.stderr).endswith("has ABI version 10, this backend needs 21")


def test_doctor_reads_a_model_yaml_as_the_host_does(fake_library: Path, models: Path) -> None:
    config = models / "good.yaml"
    config.write_text("name: x\nparameters:\n  model: good\noptions: ['block_size:16']\nthreads: 3\n")
    done = command(fake_library, "doctor", "--config", config)
    assert done.returncode == 0, done.stderr
    assert "block_size = 16 (options)" in done.stdout
    assert "threads = 2 (host field model configuration has 3)" in done.stdout
    assert "max_model_len = 4096 (host field context_size)" in done.stdout  # what the host sends without one


def test_accelerators_that_the_system_shows(tmp_path: Path) -> None:
    assert list(doctor.accelerators(tmp_path)) == []
    card = tmp_path / "proc/driver/nvidia/gpus/0000:01:00.0/information"
    card.parent.mkdir(parents=True)
    card.write_text("Model: \t NVIDIA H200\nIRQ: 1\n")
    for name, vendor in (("renderD128", "0x10de"), ("renderD129", "0x1002"), ("renderD130", "0xbad")):
        file = tmp_path / "sys/class/drm" / name / "device/vendor"
        file.parent.mkdir(parents=True)
        file.write_text(vendor + "\n")
    assert list(doctor.accelerators(tmp_path)) == [
        "NVIDIA GPU (NVIDIA H200)", "AMD GPU (renderD129)", "unknown GPU (renderD130)",
    ]  # fmt: skip


# ---- Settings from the command line and from a YAML ----


def parsed(*arguments: str) -> Any:
    parser = command_line.parser_for("doctor", "", model_needed=False)
    return command_line.model_options(parser.parse_args(arguments))


def test_later_places_win(tmp_path: Path) -> None:
    config = tmp_path / "m.yaml"
    config.write_text(
        "parameters: {model: org/name}\ncontext_size: 100\nengine_args: {max_num_seqs: 2, a: {b: [1]}}\n"
        "options: ['x:1']\ncuda: true\n"
    )
    request = parsed("--config", str(config))
    assert request == pb.ModelOptions(
        Model="org/name", ModelFile=str(tmp_path / "org/name"), ModelPath=str(tmp_path), ContextSize=100, CUDA=True,
        Options=["x:1"], EngineArgs='{"max_num_seqs": 2, "a": {"b": [1]}}',
    )  # fmt: skip
    request = parsed("/m/f.gguf", "--config", str(config), "--context", "7", "--options", "y:2", "--engine-args", "{}")
    assert (request.Model, request.ModelFile, request.ContextSize) == ("org/name", "/m/f.gguf", 7)
    assert (list(request.Options), request.EngineArgs) == (["x:1", "y:2"], "{}")
    assert parsed() is None
    assert parsed("/m/f.gguf").ModelPath == "/m"


@pytest.mark.parametrize(
    "text",
    [
        "[1]", "a: [", "parameters: 5", "parameters: {model: [a]}", "context_size: many", "context_size: 99999999999",
        "options: {a: b}", "options: [1]", "engine_args: [1]", "cuda: 3", "engine_args: {1: .nan}", "parameters: {}",
        "engine_args: {a: 2026-01-01}", "a: " + "[" * 3000, "context_size: true",
        "a: &a [x, x]\nb: &b [*a, *a]\nname: 1", "!!python/object/apply:os.system ['true']", "\x00",
    ],
)  # fmt: skip
def test_a_yaml_that_is_no_model_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    config = tmp_path / "m.yaml"
    config.write_text(text)
    with pytest.raises(StartError):
        parsed("--config", str(config))


def test_a_yaml_that_multiplies_itself_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "m.yaml"
    layers = [f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i in range(1, 12)]
    config.write_text("\n".join(["parameters: {model: x}", "l0: &l0 [x]", *layers, "engine_args: {a: *l11}"]))
    with pytest.raises(StartError, match="more than 100000 values"):
        parsed("--config", str(config))


def test_a_huge_yaml_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "m.yaml"
    config.write_text("a: " + "x" * model_yaml.MAX_BYTES)
    with pytest.raises(StartError, match="more than 1048576 bytes"):
        model_yaml.read_file(str(config))


# ---- serve ----


def served(fake_library: Path, tmp_path: Path, *arguments: str | Path) -> tuple[subprocess.Popen[str], str]:
    address = f"127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm_backend", "serve", *map(str, arguments), "--addr", address],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "VLLM_CPP_LIBRARY": str(fake_library)},
        stdout=(tmp_path / "out").open("w"),
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, address


def test_serve_loads_the_model_it_is_given(fake_library: Path, models: Path, tmp_path: Path) -> None:
    process, _ = served(fake_library, tmp_path, models / "good", "--context", "512")
    try:
        wait_for(lambda: "the model is loaded" in (tmp_path / "out").read_text(), 20)
        assert "max_model_len=4096 (context_size has 512)" in (tmp_path / "out").read_text()
    finally:
        process.terminate()
        assert process.wait(10) == 0


def test_load_04_serve_ends_when_its_model_cannot_be_loaded(fake_library: Path, models: Path, tmp_path: Path) -> None:
    process, _ = served(fake_library, tmp_path, models / "broken")
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    wanted = f"vllm_backend: the model cannot be loaded: the tensor output.weight is missing in {models / 'broken'}"
    assert last_line(errors) == wanted


# ---- chat ----


def test_chat_talks_until_quit(fake_library: Path, models: Path) -> None:
    lines = "?hmm one two\n!request\n/what\n/clear\n!fail=1 a b\n!request\n/quit\nnever\n"
    done = command(fake_library, "chat", models / "good", "--system", "be kind", "--seed", "3", text=lines)
    assert done.returncode == 0, done.stderr
    answers = done.stdout
    assert "hmm\n\none two\n[3 tokens, " in answers
    first, second = (json.loads(line) for line in answers.splitlines() if line.startswith("{"))
    assert [message["role"] for message in first["messages"]] == ["system", "user", "assistant", "user"]
    assert first["messages"][2]["content"] == "one two"  # the thought is not repeated
    assert (first["seed"], first["temperature"]) == (3, 0.7)
    assert terminal.HELP in answers
    assert "the request was refused: the step failed at token five" in answers
    assert [message["content"] for message in second["messages"]] == ["be kind", "!request"]
    assert "never" not in answers


def test_ctrl_c_ends_a_command_while_the_model_loads(fake_library: Path, models: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    environment = {"PYTHONPATH": str(ROOT / "python"), "VLLM_CPP_LIBRARY": str(fake_library), "FAKE_VLLM_LOG": str(log)}
    process = subprocess.Popen(
        [sys.executable, "-m", "vllm_backend", "bench", str(models / "slow")], env={**os.environ, **environment}
    )
    wait_for(lambda: log.exists() and log.read_text().startswith("load"), 20)
    begin = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130
    assert time.monotonic() - begin < 1  # the load takes two seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def chunk(delta: dict[str, Any], tokens: int = 1) -> dict[str, Any]:
    usage = {"prompt_tokens": 9, "completion_tokens": tokens, "prompt_tokens_details": {"cached_tokens": 4}}
    return {
        "choices": [{"delta": delta}],
        "usage": usage,
        "timings": {"queue_ms": 1, "prompt_ms": 20, "generation_ms": 10 * (tokens - 1)},
    }


def test_chat_shows_thoughts_dimmed_and_the_timing_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    chunks = [chunk({"reasoning": "well"}), chunk({"content": "yes"}, 2), chunk({"content": "!"}, 3)]
    assert terminal.show(chunks, terminal.Screen(out)) == "yes!"
    timing = "[3 tokens, 100.0 tokens/s, first token after 21 ms, prompt 9 tokens (4 cached)]"
    assert out.getvalue() == f"\x1b[2mwell\x1b[0m\n\nyes!\n\x1b[2m{timing}\x1b[0m\n"


def test_chat_ctrl_c_keeps_what_was_said() -> None:
    def interrupted() -> Any:
        yield chunk({"content": "so f"})
        raise KeyboardInterrupt

    out = io.StringIO()
    assert terminal.show(interrupted(), terminal.Screen(out)) == "so f"
    assert out.getvalue().splitlines()[-1].endswith("] stopped")
    assert "\x1b" not in out.getvalue()


# ---- Dispatch, logs, last words ----


def test_a_command_needs_its_model(fake_library: Path) -> None:
    for name in ("chat", "bench"):
        done = command(fake_library, name)
        assert done.returncode == 2 and last_line(done.stderr).endswith("error: MODEL or --config is needed")


def test_an_unknown_command_is_refused(fake_library: Path) -> None:
    done = command(fake_library, "docter")
    wanted = "error: there is no command 'docter'; there are serve, doctor, chat, bench, selftest"
    assert done.returncode == 2 and last_line(done.stderr).endswith(wanted)


@pytest.mark.parametrize("name", ["--tokens", "--prompt-tokens"])
def test_bench_refuses_a_length_that_measures_nothing(fake_library: Path, models: Path, name: str) -> None:
    done = command(fake_library, "bench", models / "good", name, "0")
    assert done.returncode == 2 and f"{name} is 0, needed is at least" in last_line(done.stderr)


def test_load_04_a_command_whose_module_is_missing(fake_library: Path, models: Path, tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise ModuleNotFoundError('gone', name='yaml')")
    (tmp_path / "m.yaml").write_text("parameters: {model: good}")
    path = os.pathsep.join((str(tmp_path), str(ROOT / "python")))
    done = command(fake_library, "doctor", "--config", tmp_path / "m.yaml", PYTHONPATH=path)
    assert done.returncode == 1
    assert last_line(done.stderr) == "vllm_backend: yaml cannot be imported (gone); run install.sh"


def test_a_reader_that_has_seen_enough_ends_a_command_quietly(fake_library: Path) -> None:
    """As in `doctor | head -1`."""
    environment = {"PYTHONPATH": str(ROOT / "python"), "VLLM_CPP_LIBRARY": str(fake_library)}
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "vllm_backend", "doctor"],
        env={**os.environ, **environment}, stdout=writer, stderr=subprocess.PIPE, timeout=30, check=False,
    )  # fmt: skip
    os.close(writer)
    assert (process.returncode, process.stderr) == (ending.READER_GONE, b"")


def test_load_04_last_words_of_a_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has no install.sh to run."""
    monkeypatch.setattr(ending, "INSTALLER", tmp_path / "install.sh")
    error = ImportError("libstdc++.so.6: cannot open shared object file", name="cygrpc")
    assert sentence_of(error) == (
        "cygrpc cannot be imported (libstdc++.so.6: cannot open shared object file); needed are libstdc++ and glibc "
        "2.35 or newer"
    )


def test_load_04_last_words() -> None:
    assert sentence_of(MemoryError()) == "the process ran out of memory"
    assert sentence_of(ValueError("x")) == "the process ended: ValueError: x"
    assert sentence_of(StartError("the port is taken")) == "the port is taken"


@pytest.mark.parametrize(
    ("environment", "level"),
    [
        ({}, "info"),
        ({"VLLM_LOG_LEVEL": "WARN", "LOCALAI_LOG_LEVEL": "debug"}, "warning"),
        ({"LOCALAI_LOG_LEVEL": "debug"}, "debug"),
        ({"LOCALAI_LOG_LEVEL": "loud", "DEBUG": "true"}, "debug"),
        ({"LOCALAI_LOG_LEVEL": "fatal"}, "error"),
    ],
)
def test_log_level(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], level: str) -> None:
    for name in ("VLLM_LOG_LEVEL", "LOCALAI_LOG_LEVEL", "DEBUG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert logs.level() == level


def test_requests_are_logged_at_debug_level_only(start: Any) -> None:
    quiet: Backend = start(load=True)
    quiet.predict("a b")
    debug: Backend = start(load=True, environment={"VLLM_LOG_LEVEL": "debug"})
    debug.predict("a b")
    debug.status_of("Predict", pb.PredictOptions(Prompt="!fail=1 a b"))
    wait_for(lambda: "request 2" in debug.stdout.read_text())
    lines = [line for line in debug.stdout.read_text().splitlines() if "request " in line]
    assert lines == [
        "DEBUG request 1, completion, done: 2 prompt tokens (0 cached), 2 tokens, queued 0 ms, prompt 6 ms, "
        "generation 2 ms (500.0 tokens/s), stop",
        "DEBUG request 2, completion, failed (the step failed at token five): 3 prompt tokens (0 cached), 1 tokens, "
        "queued 0 ms, prompt 9 ms, generation 0 ms (0.0 tokens/s), unfinished",
    ]
    assert "request 1" not in quiet.stdout.read_text()
