"""The commands on real models, the log of a real load, and the last words of a process that dies."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import full_size
import grpc
import pytest
from localai_client import REPOSITORY, Backend
from runs import load


def command(*arguments, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [REPOSITORY / "run.sh", *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def last_line(text: str) -> str:
    return [line for line in text.splitlines() if line.strip()][-1]


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3-next"])
def test_doctor_says_what_the_load_then_does(tiny, library, name):
    done = command("doctor", tiny / name, "--engine-args", '{"num_blocks": 20, "block_size": 16}')
    assert done.returncode == 0, done.stderr
    assert last_line(done.stdout) == "verdict     the model can be loaded"
    engine = load(library, tiny / name, {"clip_max_model_len": True}, num_blocks=20, block_size=16)
    try:
        facts = engine.query({"query": "info"})
    finally:
        engine.free()
    assert f"{facts['architecture']}, {facts['num_tensors']} tensors, fingerprint {facts['fingerprint']}" in done.stdout
    assert facts["formats"] in done.stdout and facts["device"] in done.stdout
    assert "num_blocks = 20 (engine_args)" in done.stdout
    assert f"max_model_len = {facts['max_model_len']} (" in done.stdout
    assert "320 tokens" in done.stdout


def test_doctor_names_the_number_format_of_the_cache(tiny):
    done = command("doctor", tiny / "llama", "--options", "kv_cache_dtype:q8_0")
    assert "kv_cache_dtype = 'q8_0' (options)" in done.stdout, done.stderr


def test_LOAD_04_doctor_says_why_a_load_would_fail(tiny, tmp_path):
    (tmp_path / "text.gguf").write_text("this is a letter, not a model")
    for arguments, words in (
        ([tmp_path / "text.gguf"], "text.gguf"),
        ([tiny / "llama", "--engine-args", '{"speculative_config": {"method": "mtp"}}'], "speculative"),
        ([tiny / "llama", "--engine-args", '{"num_blocks": 2000000000}'], "num_blocks up to"),
        ([tiny / "llama", "--engine-args", '{"max_model_len": 4096, "num_blocks": 2}'], "needs num_blocks"),
        ([tiny / "llama", "--options", "reasoning_parser:telepathy"], "reasoning_parser"),
    ):
        done = command("doctor", *arguments)
        assert done.returncode == 1
        assert last_line(done.stderr).startswith("vllm_backend: the model cannot be loaded: ")
        assert words in last_line(done.stderr)


def test_doctor_says_which_part_of_vulkan_is_missing():
    nowhere = {"VK_DRIVER_FILES": "/nowhere", "VK_ICD_FILENAMES": "/nowhere"}
    done = command("doctor", env=os.environ | nowhere)
    reason = re.search(r"vulkan: not available: (.*)", done.stdout)[1]
    assert re.search(r"no Vulkan loader|no usable driver|not in this build", reason), reason


@pytest.mark.parametrize("form", ["Q4_K", "F16"])
def test_doctor_plans_a_model_of_30_billion_weights_at_once(tmp_path, form):
    """17 and 61 GB on a sparse disk; what is read is the header."""
    full_size.write(tmp_path / "full.gguf", form)
    started = time.monotonic()
    done = command("doctor", tmp_path / "full.gguf")
    assert time.monotonic() - started < 5
    free = float(re.search(r"memory +([\d.]+) GB free", done.stdout)[1])
    needed = {"Q4_K": 17.5, "F16": 61.1}[form]
    if done.returncode == 0:
        assert free > needed and f"{form} " in done.stdout
        assert re.search(rf"weights {needed:.1f}\d GB", done.stdout), done.stdout
    else:
        assert free < needed + 2
        assert re.search(r"vllm_backend: the model cannot be loaded: .* and [\d.]+ [GM]B are", last_line(done.stderr))


def test_bench_prints_its_table(tiny):
    done = command("bench", tiny / "llama", "--tokens", "8", "--prompt-tokens", "32")
    assert done.returncode == 0, done.stderr
    head, *rows = done.stdout.splitlines()
    assert "llama: LlamaForCausalLM, F32" in head
    assert [re.split(r"\s{2,}", row)[0] for row in rows] == [
        "load",
        "prefill, 32 tokens",
        "decode, 8 tokens",
        "2 streams of 8 tokens, together",
        "4 streams of 8 tokens, together",
        "8 streams of 8 tokens, together",
    ]
    assert all(float(row.split()[-2]) > 0 for row in rows)


def test_chat_in_a_terminal(smollm2):
    """Ctrl-C stops the answer and not the program."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [REPOSITORY / "run.sh", "chat", smollm2, "--temperature", "0", "--tokens", "2000"],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True, env={**os.environ, "TERM": "dumb"},
    )  # fmt: skip
    os.close(slave)
    shown = ""

    def read_until(pattern: str) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while not re.search(pattern, shown):
            assert time.monotonic() < deadline, shown
            if select.select([master], [], [], 1)[0]:
                shown += os.read(master, 4096).decode("utf-8", "replace")

    try:
        read_until(r"Ctrl-C stops an answer.*\n.*> ")
        os.write(master, b"Write a long story about a fox.\n")
        read_until(r"fox\.\r\n(.*\w+.*){10}")
        process.send_signal(signal.SIGINT)
        read_until(
            r"\[\d+ tokens, [\d.]+ tokens/s, first token after \d+ ms, prompt \d+ tokens \(\d+ cached\)\] stopped"
        )
        shown = ""
        os.write(master, b"What is the capital of France? One word.\n")
        read_until(r"Paris")
        read_until(r"\[\d+ tokens")
        os.write(master, b"/quit\n")
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_LOAD_08_LOAD_04_the_log_of_a_load_and_of_a_crash(tiny):
    with Backend() as backend:
        backend.client.load(tiny / "llama", engine_args={"max_num_seqs": 3})
        errors, out = backend.stderr.read_text(), backend.stdout.read_text()
        chosen = [line for line in errors.splitlines() if "chosen automatically" in line]
        assert len(chosen) == 1 and "num_blocks " in chosen[0] and "is changed by the setting of its name" in chosen[0]
        (settings,) = [line for line in out.splitlines() if "settings: " in line]
        assert "max_num_seqs=3 (engine_args)" in settings and "(context_size" in settings
        backend.process.send_signal(signal.SIGSEGV)
        assert backend.process.wait(10) == -signal.SIGSEGV
        line = backend.last_error_line()
    assert line.startswith("vllm: the process ended by SIGSEGV") and line.endswith(f"with the model {tiny / 'llama'}")


def test_the_library_keeps_quiet_at_level_error(tiny):
    with Backend(environment={"VLLM_LOG_LEVEL": "error"}) as backend:
        backend.client.load(tiny / "llama", engine_args={"num_blocks": 2})
        assert backend.stderr.read_text() == ""


def test_LOAD_04_a_model_file_that_shrinks_under_the_process(tmp_path, tiny):
    """Pages of the embedding are read from the mapped file: without them the process cannot go on."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (tiny / "llama").iterdir():
        if file.suffix in (".json", ".safetensors"):
            (folder / file.name).write_bytes(file.read_bytes())
    with Backend() as backend:
        backend.client.load(folder)
        (file,) = folder.glob("*.safetensors")
        os.truncate(file, 0)
        with pytest.raises(grpc.RpcError):
            backend.client.predict("Hello", Tokens=4)
        assert backend.process.wait(10) == -signal.SIGBUS
        line = backend.last_error_line()
    assert line.startswith("vllm: the process ended by SIGBUS, as when a file in use was cut short")
    assert line.endswith(f"with the model {folder}")


def test_queue_and_kv_use_are_metrics(tiny, library):
    engine = load(library, tiny / "llama", num_blocks=16, block_size=16, max_model_len=256)
    try:
        metrics = engine.query({"query": "metrics"})
        assert (metrics["running"], metrics["waiting"], metrics["kv_usage"]) == (0, 0, 0.0)
        assert json.dumps(engine.query({"query": "plan"}))
    finally:
        engine.free()
