"""One request, one text: alone, in a batch, streamed, from the prefix cache, in chunks, after preemptions."""

import pytest
from localai_client import Backend
from runs import GREEDY, SEEDED, Run, at_once, load, streamed, unary

NAMES = ["story", "list", "letter", "python", "chinese", "emoji", "digits", "chat-poem"]
TOKENS = 48


@pytest.fixture(scope="module")
def prompts(oracle) -> list[str]:
    return [case["prompt"] for case in oracle["cases"] if case["name"] in NAMES]


@pytest.fixture(scope="module")
def alone(loaded, prompts) -> dict[str, list[str]]:
    """The texts that everything else has to give."""
    texts = {kind: [unary(loaded, prompt, Tokens=TOKENS, **fields) for prompt in prompts] for kind, fields in KINDS}
    assert all(any(text.strip() for text in found) for found in texts.values())
    assert texts["greedy"] != texts["seeded"]
    return texts


KINDS = [("greedy", GREEDY), ("seeded", SEEDED)]
both = pytest.mark.parametrize(("kind", "fields"), KINDS, ids=[kind for kind, _ in KINDS])


@both
def test_SAMP_08_repeated(loaded, prompts, alone, kind, fields):
    for _ in range(2):  # the second finds the prompt in the prefix cache
        assert [unary(loaded, prompt, Tokens=TOKENS, **fields) for prompt in prompts] == alone[kind]


@both
def test_RPC_08_streamed(loaded, prompts, alone, kind, fields):
    assert [streamed(loaded, prompt, Tokens=TOKENS, **fields) for prompt in prompts] == alone[kind]


@both
def test_SAMP_03_sixteen_at_once(loaded, prompts, alone, kind, fields):
    def one(number: int):
        ask = streamed if number % 3 else unary
        return lambda: ask(loaded, prompts[number % len(prompts)], Tokens=TOKENS, **fields)

    texts = at_once([one(number) for number in range(16)])
    assert texts == [alone[kind][number % len(prompts)] for number in range(16)]


def test_SAMP_03_greedy_and_seeded_mixed_with_others(loaded, prompts, alone):
    """Requests of other lengths and settings around them change nothing."""
    work = []
    for number, prompt in enumerate(prompts):
        for kind, fields in KINDS:
            work.append((alone[kind][number], lambda p=prompt, f=fields: unary(loaded, p, Tokens=TOKENS, **f)))
        work.append((None, lambda p=prompt: unary(loaded, p[:40], Tokens=13, Temperature=1.0)))
    for text, (wanted, _) in zip(at_once([call for _, call in work]), work, strict=True):
        assert wanted is None or text == wanted


@pytest.mark.parametrize(
    "engine_args",
    [
        {"enable_prefix_caching": False},
        {"block_size": 16, "max_num_batched_tokens": 32},
        {"threads": 1, "max_num_seqs": 3},
    ],
    ids=["no-prefix-cache", "chunked-prefill", "one-thread"],
)
def test_SAMP_03_other_settings_same_text(smollm2, prompts, alone, engine_args):
    with Backend() as backend:
        backend.client.load(smollm2, engine_args=engine_args)
        for kind, fields in KINDS:
            texts = at_once([lambda p=p, f=fields: unary(backend.client, p, Tokens=TOKENS, **f) for p in prompts])
            assert texts == alone[kind], kind


def test_KV_03_preempted_requests_give_their_solo_text(library, smollm2, prompts, alone):
    """Sixteen requests over a pool that holds a sixth of them."""
    sampling = {"seeded": {"temperature": 0.8, "top_p": 0.95, "seed": 42}, "greedy": {}}
    engine = load(library, smollm2, block_size=16, num_blocks=20, max_model_len=320, max_num_seqs=16)
    try:
        for kind in ("greedy", "seeded"):
            runs = [Run(engine, prompts[n % len(prompts)], max_tokens=TOKENS, **sampling[kind]) for n in range(16)]
            results = [run.wait() for run in runs]
            # A reply has a question mark where a text was cut inside a character.
            assert [r.text.replace("\ufffd", "?") for r in results] == [
                alone[kind][n % len(prompts)] for n in range(16)
            ], kind
        metrics = engine.query({"query": "metrics"})
        assert metrics["preemptions"] > 0, "the pool was too large for this test to mean anything"
        assert metrics["kv_blocks_free"] == metrics["kv_blocks_total"] == 20
    finally:
        engine.free()


@pytest.mark.parametrize("length", [15, 16, 17, 32, 160])
def test_KV_04_prefix_cache_at_block_borders(library, smollm2, oracle, length):
    ids = next(case for case in oracle["cases"] if case["name"] == "long")["prompt_ids"][:length]
    texts = {}
    for caching in (2, 1):
        engine = load(library, smollm2, block_size=16, num_blocks=64, max_model_len=512, enable_prefix_caching=caching)
        try:
            results = [Run(engine, ids, max_tokens=16).wait() for _ in range(3)]
            texts[caching] = [result.token_ids for result in results]
            cached = [result.usage["prompt_tokens_details"]["cached_tokens"] for result in results]
            assert cached[0] == 0
            part = (length - 1) % 16  # of a block that is copied from 8 tokens on
            assert cached[2] == (length - 1 - (part if part < 8 else 0) if caching == 1 else 0)
        finally:
            engine.free()
    assert texts[1] == texts[2]
    assert texts[1][0] == texts[1][1] == texts[1][2]
