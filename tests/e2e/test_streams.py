"""Many streams, clients that go away, and what must not be disturbed by them."""

import threading
import time

import grpc
import pytest
from localai_client import Backend
from runs import GREEDY, Run, at_once, load, unary

STREAMS = 32
LATE_WORKERS = 8  # of the backend's few fixed pools, which start a worker when they first need it


def wait_for(condition, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_RPC_03_half_of_many_streams_cancelled(smollm2):
    """None of the others is lost or changed, nothing is left behind, and the next request is served at once."""
    with Backend() as backend:
        client = backend.client
        client.load(smollm2, engine_args={"max_num_seqs": 8})
        prompts = [f"Item {number} of the list is" for number in range(STREAMS)]
        solo = [lambda n=n: unary(client, prompts[n], Tokens=32, **GREEDY) for n in range(STREAMS)]
        wanted = at_once(solo)
        at_once([client.status] * 8)  # with this all worker threads have come into being
        threads = backend.threads()

        def stay(number: int):
            text = b"".join(reply.message for reply in client.stream(prompts[number], Tokens=32, **GREEDY))
            return text.decode() == wanted[number]

        def leave(number: int):
            stream = client.stream(prompts[number], Tokens=2000, IgnoreEOS=True, **GREEDY)
            if number % 4 == 1:  # before its first token: it waits for its turn
                time.sleep(0.02 * number)
            else:
                for _ in range(number % 5 + 1):
                    next(stream)
            stream.close()
            return True

        for _ in range(2):
            assert all(at_once([lambda n=n: (leave if n % 2 else stay)(n) for n in range(STREAMS)]))
            started = time.monotonic()
            assert client.predict("The", Tokens=1).tokens == 1
            assert client.health() == b"OK"
            assert time.monotonic() - started < 2
        wait_for(lambda: client.status()[0] == "READY", 5, "a cancelled request is still running")
        most = threads + LATE_WORKERS  # a thread left by every cancelled stream would be 32 more
        wait_for(lambda: backend.threads() <= most, 5, f"more than {most} threads, and {threads} before")


def test_RPC_02_cancelled_before_the_first_token(smollm2):
    """Calls that are cancelled, or whose time is up, while their long prompt is still being computed."""
    with Backend() as backend:
        client = backend.client
        client.load(smollm2, engine_args={"max_num_batched_tokens": 64})
        prompt = "word " * 3000
        stream = client.stream(prompt, Tokens=10, **GREEDY)
        wait_for(lambda: client.status()[0] == "BUSY", 5, "the request did not start")
        stream.close()
        wait_for(lambda: client.status()[0] == "READY", 3, "the cancelled request is still running")
        with pytest.raises(grpc.RpcError) as caught:
            list(client.stream(prompt, Tokens=10, timeout=0.3, **GREEDY))
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_for(lambda: client.status()[0] == "READY", 3, "the request is still running after its deadline")
        assert client.metrics().prompt_tokens_processed < 2 * len(client.tokenize(prompt))


def test_RPC_02_cancelled_requests_give_all_blocks_back(library, smollm2):
    engine = load(library, smollm2, block_size=16, num_blocks=128, max_model_len=1024, max_num_seqs=8)
    try:
        solo = Run(engine, "Item 0 of the list is", max_tokens=24).wait().text
        runs = [Run(engine, f"Item {n % 4} of the list is", max_tokens=900 if n % 2 else 24) for n in range(STREAMS)]
        for number, run in enumerate(runs):
            if number % 2:
                if number % 4 == 1:
                    run.first.wait(0.2)
                run.cancel()
        texts = [run.wait().text for number, run in enumerate(runs) if number % 2 == 0]
        assert texts[0] == solo and all(texts)

        def idle() -> bool:
            found = engine.query({"query": "metrics"})
            return (found["running"], found["waiting"], found["kv_blocks_free"]) == (0, 0, found["kv_blocks_total"])

        wait_for(idle, 5, f"not all blocks came back: {engine.query({'query': 'metrics'})}")
    finally:
        engine.free()


def test_RPC_04_health_and_status_under_load(smollm2):
    with Backend() as backend:
        client = backend.client
        client.load(smollm2, engine_args={"max_num_seqs": 4})
        stop = threading.Event()

        def long_stream(number: int):
            stream = client.stream(f"Tale {number}:", Tokens=3000, IgnoreEOS=True, **GREEDY)
            for _ in stream:
                if stop.is_set():
                    stream.close()
                    return

        workers = [threading.Thread(target=_ignore_errors(long_stream, n), daemon=True) for n in range(12)]
        for worker in workers:
            worker.start()
        time.sleep(1)
        slowest = 0.0
        for _ in range(10):
            for call in (client.health, client.status):
                started = time.monotonic()
                call(timeout=5)
                slowest = max(slowest, time.monotonic() - started)
        assert client.status()[0] == "BUSY"
        stop.set()
        assert slowest < 1
        client.free()  # ends those that wait


def _ignore_errors(work, *arguments):
    def run():
        try:
            work(*arguments)
        except Exception:
            return

    return run


def test_RPC_05_four_streams_are_batched(loaded):
    """Each has its first token before any ends."""
    firsts, ends = {}, {}

    def one(number: int):
        for reply in loaded.stream(f"Story {number}: once", Tokens=64, IgnoreEOS=True, **GREEDY):
            if reply.message:
                firsts.setdefault(number, time.monotonic())
        ends[number] = time.monotonic()

    at_once([lambda n=n: one(n) for n in range(4)])
    assert max(firsts.values()) < min(ends.values())


def test_UTF8_01_characters_arrive_whole(loaded):
    for prompt in (
        "Reactions: 😀 😃 😄 😁 😆 🎉 👍 ❤️ 🔥",
        "从前有一座山，山上有一座庙，庙里有一个老和尚在讲故事。他说：",
    ):
        pieces = [reply.message for reply in loaded.stream(prompt, Tokens=40, **GREEDY)]
        text = "".join(piece.decode("utf-8") for piece in pieces)  # raises where a character is cut
        assert "\ufffd" not in text
        assert any(ord(character) > 0x2000 for character in text)
        assert text == unary(loaded, prompt, Tokens=40, **GREEDY)
