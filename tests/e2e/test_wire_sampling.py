"""Sampling, stopping and length limits as the wire's fields ask for them."""

import json
import math

import grpc
import pytest
from runs import GREEDY, streamed, unary

PROMPT = "Once upon a time, in a village between two rivers, there lived a clockmaker who"


def refused(client, *words: str, prompt: str = PROMPT, **fields) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        client.predict(prompt, **fields)
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, caught.value.details()
    for word in words:
        assert word in caught.value.details()


@pytest.mark.parametrize("tokens", [0, -5, 2**31 - 1])
def test_SAMP_01_KV_05_no_limit_is_the_rest_of_the_context(small_context, tokens):
    reply = small_context.predict(PROMPT, Tokens=tokens, IgnoreEOS=True, **GREEDY)
    assert reply.prompt_tokens + reply.tokens == 128


def test_SAMP_01_one_token(loaded):
    assert loaded.predict(PROMPT, Tokens=1, **GREEDY).tokens == 1


def test_KV_06_prompt_longer_than_the_context(small_context, oracle):
    long = next(case for case in oracle["cases"] if case["name"] == "long")["prompt"]
    text = small_context.detokenize(small_context.tokenize(long)[:200])
    count = len(small_context.tokenize(text))
    refused(small_context, "context_length_exceeded", str(count), "128", prompt=text)
    text = small_context.detokenize(small_context.tokenize(long)[:100])
    reply = small_context.predict(text, Tokens=100, IgnoreEOS=True, **GREEDY)
    assert reply.prompt_tokens + reply.tokens == 128


def test_KV_02_a_prompt_that_never_fits_does_not_block_the_next(library, smollm2):
    from runs import Run, load

    settings = {"clip_max_model_len": True}
    engine = load(library, smollm2, settings, block_size=16, num_blocks=16, max_model_len=4096)
    try:
        with pytest.raises(Exception, match=r"(?s)300.*256|256.*300"):
            Run(engine, [1] * 300, max_tokens=4).wait()
        assert len(Run(engine, [1] * 100, max_tokens=4, ignore_eos=True).wait().token_ids) == 4
    finally:
        engine.free()


def test_SAMP_02_values_that_leave_one_candidate_are_greedy(loaded):
    greedy = unary(loaded, PROMPT, Tokens=24, **GREEDY)
    hot = {"Temperature": 1.5, "TopK": 0, "TopP": 0.0, "MinP": 0.0, "Tokens": 24, "Seed": 7}
    assert unary(loaded, PROMPT, **hot) != greedy
    for fields in ({"TopK": 1}, {"TopP": 1e-6}, {"MinP": 1.0}, {"Temperature": 1e-9}):
        assert unary(loaded, PROMPT, **(hot | fields)) == greedy, fields


def test_SAMP_02_values_that_are_off(loaded):
    plain = {"Temperature": 0.9, "TopK": 0, "TopP": 0.0, "Tokens": 24, "Seed": 11}
    text = unary(loaded, PROMPT, **plain)
    for fields in ({"TopK": -1}, {"TopK": 10**6}, {"TopP": 1.0}):
        assert unary(loaded, PROMPT, **(plain | fields)) == text, fields


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Temperature", math.nan),
        ("Temperature", -0.5),
        ("Temperature", math.inf),
        ("TopP", 1.5),
        ("TopP", -0.1),
        ("MinP", 2.0),
        ("MinP", math.nan),
        ("Penalty", math.nan),
    ],
)
def test_SAMP_02_impossible_values_are_refused_by_name(loaded, field, value):
    refused(loaded, field, Tokens=4, **{field: value})


def test_SAMP_03_seeds(loaded):
    fields = {"Temperature": 0.9, "TopK": 0, "TopP": 1.0, "Tokens": 24}
    texts = [unary(loaded, PROMPT, Seed=seed, **fields) for seed in (0, 0, 1, -7, -7)]
    assert texts[0] == texts[1] and texts[3] == texts[4]
    assert len(set(texts)) == 3
    unseeded = {unary(loaded, PROMPT, Seed=-1, **fields) for _ in range(3)}
    assert len(unseeded) > 1


@pytest.mark.parametrize(
    "bias", ['{"49152": 1}', '{"-1": 1}', '{"x": 1}', '{"5": "y"}', '{"5": 1', "[1]", '{"5": null}']
)
def test_SAMP_06_bad_logit_bias_leaves_streams_alone(loaded, bias):
    wanted = unary(loaded, PROMPT, Tokens=12, **GREEDY)
    stream = loaded.stream(PROMPT, Tokens=12, **GREEDY)
    text = next(stream).message
    refused(loaded, Tokens=4, LogitBias=bias)
    assert (text + b"".join(reply.message for reply in stream)).decode() == wanted


def test_RPC_11_logit_bias_works(loaded):
    first = loaded.predict(PROMPT, Tokens=1, Logprobs=1, TopLogprobs=2, **GREEDY)
    best, second = json.loads(first.logprobs)["content"][0]["top_logprobs"]
    moved = loaded.predict(PROMPT, Tokens=1, Logprobs=1, LogitBias=json.dumps({best["id"]: -100}), **GREEDY)
    assert json.loads(moved.logprobs)["content"][0]["id"] == second["id"]


def test_SAMP_07_repetition_penalty_works_and_one_is_off(loaded):
    prompt = "the cat sat on the mat, the cat sat on the mat, the cat sat on"
    plain = unary(loaded, prompt, Tokens=24, Penalty=0.0, **GREEDY)
    assert plain.count("the mat") >= 2
    assert unary(loaded, prompt, Tokens=24, Penalty=1.0, **GREEDY) == plain
    assert unary(loaded, prompt, Tokens=24, Penalty=1.5, **GREEDY).count("the mat") < plain.count("the mat")


def test_SAMP_08_greedy_five_times(loaded):
    assert len({unary(loaded, PROMPT, Tokens=24, Temperature=0.0) for _ in range(5)}) == 1


@pytest.mark.parametrize("ask", [unary, streamed], ids=["unary", "streamed"])
def test_STOP_01_stop_strings_across_tokens(loaded, ask):
    whole = unary(loaded, PROMPT, Tokens=48, **GREEDY)
    for start, length in ((10, 5), (21, 9), (len(whole) // 2, 3)):
        stop = whole[start : start + length]
        text = ask(loaded, PROMPT, Tokens=48, StopPrompts=[stop], **GREEDY)
        assert text == whole[: whole.index(stop)], repr(stop)


@pytest.mark.parametrize("ask", [unary, streamed], ids=["unary", "streamed"])
def test_STOP_02_empty_several_and_in_the_prompt(loaded, ask):
    whole = unary(loaded, PROMPT, Tokens=48, **GREEDY)
    assert ask(loaded, PROMPT, Tokens=48, StopPrompts=["", "no such text"], **GREEDY) == whole
    early, late = whole[8:12], whole[30:36]
    assert ask(loaded, PROMPT, Tokens=48, StopPrompts=[late, early], **GREEDY) == whole[: whole.index(early)]
    assert ask(loaded, PROMPT, Tokens=48, StopPrompts=["clockmaker who"], **GREEDY) == whole


def test_FILE_11_control_tokens_in_the_prompt_are_one_id(loaded):
    assert loaded.tokenize("<|im_start|>user") == [1, *loaded.tokenize("user")]
    assert loaded.tokenize("a<|im_end|>b") == [*loaded.tokenize("a"), 2, *loaded.tokenize("b")]


def test_RPC_11_images_for_a_text_model_are_refused(loaded):
    refused(loaded, "Images", Tokens=4, Images=["aGVsbG8="])
