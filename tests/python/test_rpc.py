"""Generation over the wire: streams, cancellation, counts, errors."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from backend_process import METHODS, Backend, rpc, wait_for
from conftest import Start
from google.protobuf import message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from vllm_backend import backend_pb2 as pb


def asked(backend: Backend, **fields: Any) -> dict[str, Any]:
    """The request JSON that the library gets for these fields, in the completion form."""
    made = json.loads(backend.predict("!request", **fields).message)
    assert isinstance(made, dict)
    return made


def chat_fields(text: str, **fields: Any) -> dict[str, Any]:
    return {"UseTokenizerTemplate": True, "Messages": [pb.Message(role="user", content=text)], **fields}


# ---- Size, cancellation, load ----


def test_rpc_01_large_messages_both_ways(backend: Backend) -> None:
    size = 49 * 1000 * 1000
    reply = backend.predict(f"!size={size}")
    assert len(reply.message) == size
    big = backend.predict("!count=1 " + " " * size)
    assert big.message == b"w0"


def test_rpc_01_too_large_messages(backend: Backend) -> None:
    code, _ = backend.status_of("Predict", pb.PredictOptions(Prompt=" " * (51 * 1024 * 1024)))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    code, message = backend.status_of("Predict", pb.PredictOptions(Prompt=f"!size={51 * 1024 * 1024}"))
    assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "a message may have 52428800" in message
    assert backend.predict("a").message == b"a"
    wait_for(backend.all_released)


@pytest.mark.parametrize("prompt", ["a b !hang", "!hang"])
def test_rpc_02_a_cancelled_stream_is_dropped(backend: Backend, prompt: str) -> None:
    before = len(backend.events("submit"))
    with backend.open("PredictStream") as method:
        stream = method(pb.PredictOptions(Prompt=prompt))
        for text in prompt.split()[:-1]:
            assert next(stream).message.strip() == text.encode()
        wait_for(lambda: len(backend.events("submit")) == before + 1)
        stream.cancel()
    wait_for(backend.all_released)
    assert backend.events("submit")[-1] in backend.events("cancel")
    assert backend.predict("c").message == b"c"


def test_rpc_02_a_cancelled_unary_call_is_dropped(backend: Backend) -> None:
    before = len(backend.events("submit"))
    with backend.open("Predict") as method:
        call = method.future(pb.PredictOptions(Prompt="!hang"))
        wait_for(lambda: len(backend.events("submit")) == before + 1)
        call.cancel()
    wait_for(backend.all_released)
    code, _ = backend.status_of("Predict", pb.PredictOptions(Prompt="!hang"), timeout=0.3)
    assert code == grpc.StatusCode.DEADLINE_EXCEEDED
    wait_for(backend.all_released)


def threads(backend: Backend) -> int:
    status = Path(f"/proc/{backend.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("Threads:")).split()[1])


def test_rpc_03_many_cancelled_streams(start: Start) -> None:
    backend = start(load=True)

    def storm() -> None:
        with grpc.insecure_channel(backend.address) as channel:
            method = rpc(channel, "PredictStream")
            streams = [method(pb.PredictOptions(Prompt="!hang" if i % 2 else "a !hang")) for i in range(48)]
            for stream in streams[::2]:
                assert next(stream).message == b"a"
            for stream in streams:
                stream.cancel()
        begin = time.monotonic()
        assert backend.call("Health", pb.HealthMessage(), timeout=1).message == b"OK"
        assert backend.predict("b").message == b"b"
        assert time.monotonic() - begin < 1
        wait_for(lambda: backend.all_released() and backend.state() == pb.StatusResponse.READY)

    storm()  # the pools have most of their threads now; those of gRPC and ours may still get a few
    before = threads(backend)
    storm()
    wait_for(lambda: threads(backend) <= before + 4)


def test_rpc_04_rpc_06_status_under_many_long_streams(backend: Backend) -> None:
    assert backend.state() == pb.StatusResponse.READY
    with grpc.insecure_channel(backend.address) as channel:
        method = rpc(channel, "PredictStream")
        streams = [method(pb.PredictOptions(Prompt="!delay=1 !count=100000")) for _ in range(16)]
        for stream in streams:
            assert next(stream).message == b"w0"
        for _ in range(5):
            begin = time.monotonic()
            assert backend.call("Health", pb.HealthMessage(), timeout=1).message == b"OK"
            status = backend.call("Status", pb.HealthMessage(), timeout=1)
            assert time.monotonic() - begin < 1
            assert status.state == pb.StatusResponse.BUSY
        assert status.memory.breakdown["weights"] == 8 << 20
        assert status.memory.breakdown["resident"] > 8 << 20
        assert status.memory.breakdown["on cpu (fake)"] == (8 << 20) + 1024 + 512
        assert status.memory.total >= status.memory.breakdown["resident"]
        for stream in streams:
            stream.cancel()
    wait_for(lambda: backend.state() == pb.StatusResponse.READY)


def test_rpc_05_streams_run_side_by_side(backend: Backend) -> None:
    with grpc.insecure_channel(backend.address) as channel:
        method = rpc(channel, "PredictStream")
        streams = [method(pb.PredictOptions(Prompt="a !delay=100 b c")) for _ in range(4)]
        begin = time.monotonic()
        assert [next(stream).message for stream in streams] == [b"a"] * 4
        assert [b"".join(reply.message for reply in stream) for stream in streams] == [b" b c"] * 4
        assert time.monotonic() - begin < 4 * 0.2


# ---- What a reply holds ----


@pytest.mark.parametrize(
    ("prompt", "fields"),
    [
        ("one two three", {}),
        ("one two three", {"Tokens": 2}),
        ("one", {}),
        ("one two", {"Logprobs": 1, "TopLogprobs": 1}),
        ("", chat_fields("?think @f hello there")),
        ("", chat_fields("?only thought")),
    ],
)
def test_rpc_07_rpc_08_stream_equals_unary(backend: Backend, prompt: str, fields: dict[str, Any]) -> None:
    unary, stream = backend.predict(prompt, **fields), backend.stream(prompt, **fields)
    last = stream[-1]
    assert b"".join(reply.message for reply in stream) == unary.message
    assert (last.tokens, last.prompt_tokens) == (unary.tokens, unary.prompt_tokens)
    text = prompt or fields["Messages"][0].content
    assert unary.prompt_tokens == len(text.split())
    assert unary.tokens == min(len(text.split()), fields.get("Tokens", 100))
    assert last.logprobs == unary.logprobs
    for reply in (last, unary):
        assert reply.timing_prompt_processing > 0 and reply.timing_token_generation > 0
    counts = [reply.tokens for reply in stream]
    assert counts == sorted(counts) and counts[0] > 0
    deltas = [delta for reply in stream for delta in reply.chat_deltas]
    if not prompt:
        (whole,) = unary.chat_deltas
        assert "".join(delta.content for delta in deltas) == whole.content == unary.message.decode()
        assert "".join(delta.reasoning_content for delta in deltas) == whole.reasoning_content
        assert [call for delta in deltas for call in delta.tool_calls] == list(whole.tool_calls)
        assert not any(delta.tool_calls and delta.content for delta in deltas)
    else:
        assert not deltas and not unary.chat_deltas


def test_the_first_two_chunks_differ(backend: Backend) -> None:
    first, second = [reply.message for reply in backend.stream("The capital") if reply.message][:2]
    assert first and second and first != second


def test_logprobs_are_json(backend: Backend) -> None:
    reply = backend.predict("one two", Logprobs=1, TopLogprobs=1)
    content = json.loads(reply.logprobs)["content"]
    assert [entry["token"] for entry in content] == ["one", " two"]
    assert set(content[0]) == {"id", "token", "bytes", "logprob", "top_logprobs"}
    assert backend.predict("one two").logprobs == b""


def test_rpc_10_an_error_after_some_tokens(backend: Backend) -> None:
    got = []
    with backend.open("PredictStream") as method:
        stream = method(pb.PredictOptions(Prompt="!fail=5 " + "w " * 9))
        with pytest.raises(grpc.RpcError) as error:
            for reply in stream:
                got.append(reply.message)
    assert b"".join(got).split() == [b"w"] * 5
    assert error.value.code() == grpc.StatusCode.INTERNAL
    assert error.value.details() == "the step failed at token five"
    code, _ = backend.status_of("Predict", pb.PredictOptions(Prompt="!fail=5 a b c d e f"))
    assert code == grpc.StatusCode.INTERNAL
    wait_for(backend.all_released)


def test_a_refused_request_is_invalid_argument(backend: Backend) -> None:
    code, message = backend.status_of("PredictStream", pb.PredictOptions(Prompt="!refuse"))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "context_length_exceeded: 200 tokens, the context is 128" in message


def test_rpc_11_fields_have_one_effect_in_both_forms(backend: Backend) -> None:
    fields = {
        "MinP": 0.1, "Penalty": 1.1, "IgnoreEOS": True, "LogitBias": '{"1":-100}', "Grammar": 'root ::= "yes"',
        "Seed": 7, "StopPrompts": ["x"], "Logprobs": 1, "TopLogprobs": 1, "Temperature": 0.5,
    }  # fmt: skip
    completion = asked(backend, **fields)
    chat = json.loads(backend.predict("", **chat_fields("!request", **fields)).message)
    for made in (completion, chat):
        for key in ("prompt", "messages", "logprobs", "top_logprobs"):
            made.pop(key, None)
    assert completion == chat
    assert set(chat) == {
        "min_p", "repetition_penalty", "ignore_eos", "logit_bias", "grammar", "seed", "stop", "temperature",
        "max_tokens",
    }  # fmt: skip


def test_rpc_11_unsupported_fields(start: Start) -> None:
    backend = start(load=True)
    for _ in range(2):
        assert backend.predict("a", Mirostat=2, TypicalP=0.5).message == b"a"
    assert backend.predict("a", TypicalP=1, TailFreeSamplingZ=1).message == b"a"
    assert backend.stderr.read_text().count("no effect here: Mirostat, TypicalP") == 1
    code, message = backend.status_of("Predict", pb.PredictOptions(Prompt="a", Images=["aGk="]))
    assert code == grpc.StatusCode.INVALID_ARGUMENT and message.startswith("Images holds 1 item")


def test_samp_02_on_the_wire(backend: Backend) -> None:
    assert asked(backend, TopK=-1, TopP=0, Seed=-1) == {"prompt": "!request", "temperature": 0, "max_tokens": 0}
    for field, value in (("Temperature", float("nan")), ("TopP", 1.5), ("MinP", -1), ("Temperature", -1)):
        code, message = backend.status_of("Predict", pb.PredictOptions(Prompt="a", **{field: value}))
        assert code == grpc.StatusCode.INVALID_ARGUMENT and message.startswith(f"{field} is")


def test_samp_06_logit_bias(backend: Backend) -> None:
    with backend.open("PredictStream") as method:
        running = method(pb.PredictOptions(Prompt="!delay=1 !count=100"))
        assert next(running).message == b"w0"
        for bias, words in (
            ('{"1000": 1}', "token 1000"),
            ('{"a": 1}', "'a'"),
            ('{"1": "b"}', "'b'"),
            ("{", "not JSON"),
        ):
            code, message = backend.status_of("Predict", pb.PredictOptions(Prompt="a", LogitBias=bias))
            assert code == grpc.StatusCode.INVALID_ARGUMENT and words in message
        assert len([reply for reply in running if reply.message]) == 99


def test_stop_02_empty_stop_strings_are_dropped(backend: Backend) -> None:
    assert asked(backend, StopPrompts=["", "b", "", "a"])["stop"] == ["b", "a"]
    assert "stop" not in asked(backend, StopPrompts=[""])


@pytest.mark.parametrize("chat", [False, True])
def test_utf8_characters_and_replacement_marks(backend: Backend, chat: bool) -> None:
    text = "h\u00e9llo \U0001f600 a\ufffdb \u4f60"
    shown = text.replace("\ufffd", "?")
    fields = chat_fields(text) if chat else {"Prompt": text}
    request = pb.PredictOptions(**fields)
    assert backend.call("Predict", request).message.decode() == shown
    stream = backend.call("PredictStream", request)
    assert "".join(reply.message.decode() for reply in stream) == shown
    assert "".join(d.content for reply in stream for d in reply.chat_deltas) == (shown if chat else "")


# ---- The rest of the service ----


def test_tokenize_metrics_and_metadata(backend: Backend) -> None:
    tokens = backend.call("TokenizeString", pb.PredictOptions(Prompt="h\u00e9"))
    assert (list(tokens.tokens), tokens.length) == ([256, 104, 195, 169], 4)
    assert backend.call("Detokenize", pb.DetokenizeRequest(tokens=tokens.tokens)).content == "h\u00e9"
    before = backend.call("GetMetrics", pb.MetricsRequest())
    backend.predict("a b c")
    after = backend.call("GetMetrics", pb.MetricsRequest())
    assert after.tokens_generated - before.tokens_generated == 3
    assert after.prompt_tokens_processed - before.prompt_tokens_processed == 3
    assert (after.tokens_per_second, after.prompt_json_for_slot) == (12.5, "")
    assert backend.call("ModelMetadata", pb.ModelOptions()).supports_thinking


SERVED = {
    "Health", "LoadModel", "Free", "Predict", "PredictStream", "TokenizeString", "Detokenize", "Status", "GetMetrics",
    "ModelMetadata",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(METHODS) - SERVED))
def test_every_other_rpc_is_unimplemented_by_name(backend: Backend, name: str) -> None:
    method = METHODS[name]
    request: Any = message_factory.GetMessageClass(method.input_type)()
    code, message = backend.status_of(name, iter([request]) if method.client_streaming else request)
    assert (code, message) == (grpc.StatusCode.UNIMPLEMENTED, f"{name} is not implemented by this backend")


def test_unknown_method(backend: Backend) -> None:
    with grpc.insecure_channel(backend.address) as channel, pytest.raises(grpc.RpcError) as error:
        channel.unary_unary("/backend.Backend/Nothing")(b"", timeout=5)
    assert error.value.code() == grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("name", ["Predict", "PredictStream", "LoadModel"])
def test_garbage_for_a_message(backend: Backend, name: str) -> None:
    with grpc.insecure_channel(backend.address) as channel, pytest.raises(grpc.RpcError) as error:
        list(channel.unary_stream(f"/backend.Backend/{name}")(b"\xff\xff\xff", timeout=5))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert error.value.details().startswith(f"the request of {name} is not a ")
    assert backend.predict("a").message == b"a"


def test_health_service_and_reflection(backend: Backend) -> None:
    with grpc.insecure_channel(backend.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "backend.Backend"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        requests = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol="backend.Backend"),
        ]
        listed, file = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter(requests), timeout=5)
        assert "backend.Backend" in [service.name for service in listed.list_services_response.service]
        assert pb.DESCRIPTOR.serialized_pb in list(file.file_descriptor_response.file_descriptor_proto)


def test_bearer_token(start: Start) -> None:
    good = {"authorization": "Bearer s3cret"}
    backend = start(environment={"LOCALAI_GRPC_AUTH_TOKEN": "s3cret"}, metadata=good)
    request = pb.ModelOptions(Model="good", ModelPath=str(backend.models))
    for wrong in ({}, {"authorization": "Bearer s3cre"}, {"authorization": "s3cret"}, {"token": "Bearer s3cret"}):
        for name, message in (
            ("Health", pb.HealthMessage()),
            ("LoadModel", request),
            ("PredictStream", pb.PredictOptions(Prompt="a")),
            ("Embedding", pb.PredictOptions()),
        ):
            code, _ = backend.status_of(name, message, **wrong)
            assert code == grpc.StatusCode.UNAUTHENTICATED, (name, wrong)
    with grpc.insecure_channel(backend.address) as channel, pytest.raises(grpc.RpcError) as error:
        health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
    assert error.value.code() == grpc.StatusCode.UNAUTHENTICATED
    assert backend.call("LoadModel", request, **good).success
    (first, *_) = backend.call("PredictStream", pb.PredictOptions(Prompt="a"), **good)
    assert first.message == b"a"


def test_concurrent_calls_do_not_mix(backend: Backend) -> None:
    answers: dict[int, bytes] = {}

    def one(number: int) -> None:
        answers[number] = backend.predict(f"!delay=1 a{number} b{number} c{number}").message

    workers = [threading.Thread(target=one, args=(number,)) for number in range(24)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert answers == {number: f"a{number} b{number} c{number}".encode() for number in range(24)}
