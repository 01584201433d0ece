"""What LocalAI's own black-box suite asks of a backend."""

import json
import time

import grpc
import pytest
from localai_client import Backend

WEATHER = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


@pytest.fixture(scope="module")
def suite(smollm2):
    """Started with the one-word form of the address and loaded as that suite loads."""
    with Backend(one_word=True) as backend:
        fields = {"ContextSize": 512, "Threads": 4, "NBatch": 128, "ModelPath": ""}
        backend.client.load(smollm2, **fields)
        yield backend.client


def ask(**fields) -> dict:
    return {"Temperature": 0.1, "TopK": 40, "TopP": 0.9, "Tokens": 20, "timeout": 120, **fields}


def test_health(suite):
    assert suite.health()


def test_predict(suite):
    reply = suite.predict("The capital of France is", **ask())
    assert reply.message.strip()
    assert reply.tokens == 20


def test_stream(suite):
    chunks = [reply.message for reply in suite.stream("The capital of France is", **ask()) if reply.message]
    assert len(chunks) >= 2
    assert chunks[0] != chunks[1]


def test_logprobs(suite):
    reply = suite.predict("The capital of France is", **ask(Logprobs=1, TopLogprobs=1))
    content = json.loads(reply.logprobs)["content"]
    assert len(content) == reply.tokens
    for entry in content:
        assert entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 1
        assert entry["top_logprobs"][0]["logprob"] >= entry["logprob"]
    assert b"".join(bytes(entry["bytes"]) for entry in content) == reply.message


def test_logit_bias(suite):
    assert suite.predict("The capital of France is", **ask(LogitBias='{"1": -100}')).message


def test_tokenize_and_back(suite, oracle):
    for case in oracle["cases"]:
        tokens = suite.tokenize(case["prompt"])
        assert tokens == case["prompt_ids"], case["name"]
    assert suite.detokenize(suite.tokenize("The capital of France is")) == "The capital of France is"


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_tools(suite, choice):
    """So small a model may answer `auto` in words; where it has to call, it calls the tool it was given."""
    fields = {
        "Messages": [{"role": "user", "content": "What is the weather in Rome?"}],
        "Tools": json.dumps(WEATHER),
        "ToolChoice": choice,
        "UseTokenizerTemplate": True,
        "Tokens": 200,
        "Seed": 1,
    }
    reply = suite.predict(**fields)
    calls = [call for delta in reply.chat_deltas for call in delta.tool_calls]
    assert calls or (choice == "auto" and reply.message.strip())
    for call in calls:
        assert call.name == "get_weather" and call.id
    if calls and reply.tokens < 200:
        assert all(set(json.loads(call.arguments)) >= {"city"} for call in calls)


def test_embeddings_are_unimplemented(suite):
    with pytest.raises(grpc.RpcError) as caught:
        suite.call("Embedding", Embeddings="text")
    assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_RPC_01_messages_up_to_50_mib(suite):
    ballast = "x" * (49 * 1024 * 1024)
    assert suite.predict("a", Tokens=1, Metadata={"note": ballast}).tokens == 1
    from wire import MESSAGES, PACKAGE

    with grpc.insecure_channel(suite.address, options=[("grpc.max_send_message_length", -1)]) as channel:
        call = channel.unary_unary(
            f"/{PACKAGE}.Backend/Predict",
            request_serializer=MESSAGES["PredictOptions"].SerializeToString,
            response_deserializer=MESSAGES["Reply"].FromString,
        )
        with pytest.raises(grpc.RpcError) as caught:
            call(MESSAGES["PredictOptions"](Prompt="a", Metadata={"note": ballast + "x" * (2 << 20)}))
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert suite.health() == b"OK"


def test_RPC_07_counts_and_timings_are_equal_streamed_and_unary(suite):
    fields = {"Temperature": 0.0, "Tokens": 24}
    unary = suite.predict("The capital of France is", **fields)
    *_, last = suite.stream("The capital of France is", **fields)
    assert unary.prompt_tokens == len(suite.tokenize("The capital of France is"))
    assert (last.tokens, last.prompt_tokens) == (unary.tokens, unary.prompt_tokens)
    assert unary.tokens == 24
    for reply in (unary, last):
        assert reply.timing_prompt_processing > 0 and reply.timing_token_generation > 0


def test_LOAD_06_model_identity(suite, smollm2):
    assert suite.predict("a", Tokens=1, ModelIdentity=str(smollm2)).tokens == 1
    for rpc in ("Predict", "TokenizeString"):
        with pytest.raises(grpc.RpcError) as caught:
            suite.call(rpc, Prompt="a", Tokens=1, ModelIdentity="another.gguf")
        assert caught.value.code() == grpc.StatusCode.NOT_FOUND
        assert "model identity mismatch" in caught.value.details()


def test_RPC_06_status(suite):
    state, memory = suite.status()
    assert state == "READY"
    assert memory.total > 100_000_000  # the weights alone are 98 MB
    stream = suite.stream("Once upon a time", Tokens=200, Temperature=0.0, IgnoreEOS=True)
    next(stream)
    assert suite.status()[0] == "BUSY"
    stream.close()
    deadline = time.monotonic() + 5
    while suite.status()[0] != "READY":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert suite.metrics().tokens_generated > 0
