"""Makes tests/fixtures/sampler/: what the sampler has to do, computed in float64 by PyTorch.

The list of steps is followed literally, one tensor operation a step. Where transformers has a logits processor for a
step, its result is compared with ours, so that the oracle does not rest on one reading of the list.

    python tools/make_sampler_fixtures.py

Needs numpy, torch and transformers. The output depends on the seed below alone.
"""

import json
import math
import pathlib

import numpy as np
import torch
from transformers import generation as hf

VOCAB = 70  # one block of 64 and a tail
ALLOWED = 67  # the last ids are padding
END_IDS = [2, 65]
MARGIN = 1e-5  # cases that float rounding could decide either way are not kept
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "sampler"


def f32(x):
    """The value that a float parameter really has."""
    return float(np.float32(x))


def impossible(row, ids):
    for i in ids:
        if 0 <= i < len(row):
            row[i] = -math.inf


def edit(logits, case):
    """The steps before the temperature. Returns (edited row, unmodified row without what is ruled out)."""
    row = logits[:ALLOWED].clone()
    output, prompt = case["output"], case["prompt"]
    if "mask" in case:
        impossible(row, set(range(ALLOWED)) - set(case["mask"]))
    if case.get("allowed_token_ids"):
        impossible(row, set(range(ALLOWED)) - set(case["allowed_token_ids"]))
    legal = row.clone()
    for word in case.get("bad_words", []):
        if len(word) == 1 or output[-(len(word) - 1) :] == word[:-1]:
            impossible(row, [word[-1]])
    if len(output) < case.get("min_tokens", 0):
        suppressed = row.clone()
        impossible(suppressed, END_IDS + case.get("stop_token_ids", []))
        if not torch.isinf(suppressed).all():
            row = suppressed
    for i, bias in case.get("logit_bias", []):
        if i < ALLOWED:
            row[i] += max(-100.0, min(100.0, f32(bias)))
    repetition = f32(case.get("repetition_penalty", 1.0))
    before = row.clone()
    for i in set(prompt + output):
        if i < ALLOWED:
            row[i] = row[i] / repetition if row[i] > 0 else row[i] * repetition
    if repetition != 1.0 and prompt + output:
        seen = torch.tensor([[i for i in prompt + output if i < ALLOWED]])
        theirs = hf.RepetitionPenaltyLogitsProcessor(repetition)(seen, before[None])[0]
        assert torch.equal(theirs, row)
    for i in set(output):
        if i < ALLOWED:
            row[i] -= f32(case.get("frequency_penalty", 0.0)) * output.count(i)
            row[i] -= f32(case.get("presence_penalty", 0.0))
    return row, legal


def distribution(row, case):
    """The steps from the temperature on; None when rounding could decide."""
    temperature = f32(case.get("temperature", 1.0))
    if temperature < 1e-5:
        return {int(torch.argmax(row)): 1.0}
    row = row / temperature
    p = torch.softmax(row, -1)
    min_p, top_k, top_p = f32(case.get("min_p", 0.0)), case.get("top_k", 0), f32(case.get("top_p", 1.0))
    if min_p > 0:
        if min_p < 1 and (torch.abs(p / (min_p * p.max()) - 1) < MARGIN).any():
            return None
        theirs = hf.MinPLogitsWarper(min_p)(None, row[None])[0]
        row = torch.where(p < min_p * p.max(), -math.inf, row)
        assert torch.equal(theirs, row)
    if 0 < top_k < len(row):
        theirs = hf.TopKLogitsWarper(top_k)(None, row[None])[0]
        row = torch.where(row < torch.sort(row, descending=True).values[top_k - 1], -math.inf, row)
        assert torch.equal(theirs, row)
    if top_p < 1:
        p = torch.softmax(row, -1)
        # Ascending; of equal tokens the higher ids first, so that the lower ones stay.
        order = sorted(range(len(p)), key=lambda i: (p[i].item(), -i))
        cumulative = np.cumsum([p[i].item() for i in order])
        for i, c in zip(order, cumulative, strict=False):
            if p[i] > 0 and abs(c - (1 - top_p)) < MARGIN:
                return None
        theirs = hf.TopPLogitsWarper(top_p)(None, row[None])[0]
        row = row.clone()
        impossible(row, [i for i, c in zip(order[:-1], cumulative, strict=False) if c <= 1 - top_p])
        assert torch.equal(theirs.sort().values, row.sort().values)
    p = torch.softmax(row, -1)
    return {i: p[i].item() for i in range(len(p)) if p[i] > 1e-30}


def logprobs(logits, legal, case):
    values = torch.log_softmax(logits[:ALLOWED], -1)
    ids = sorted((i for i in range(ALLOWED) if legal[i] > -math.inf), key=lambda i: (-values[i].item(), i))
    return [[i, values[i].item()] for i in ids[: case["logprobs"]]]


def make_cases(rng, rows):
    def pick(count):
        return [int(i) for i in rng.choice(ALLOWED, count, replace=False)]

    def maybe(chance):
        return rng.random() < chance

    for _ in range(900):
        case = {"row": int(rng.integers(len(rows))), "prompt": pick(8), "output": []}
        case["output"] = [int(i) for i in rng.choice(case["prompt"][:3] + pick(4), rng.integers(0, 12))]
        if maybe(0.7):
            case["temperature"] = float(rng.choice([0.0, 0.01, 0.3, 0.7, 0.8, 1.3, 2.0]))
        if maybe(0.4):
            case["top_k"] = int(rng.choice([1, 2, 3, 5, 10, 40, 66]))
        if maybe(0.4):
            case["top_p"] = float(rng.choice([1e-6, 0.1, 0.5, 0.9, 0.95, 0.999]))
        if maybe(0.3):
            case["min_p"] = float(rng.choice([0.001, 0.05, 0.3, 1.0]))
        if maybe(0.2):
            case["mask"] = sorted(pick(int(rng.choice([1, 2, 5, 30, 60]))))
        if maybe(0.1):
            case["allowed_token_ids"] = (case.get("mask", [])[:2] or []) + pick(int(rng.choice([1, 10, 40])))
        if maybe(0.2):
            tail = case["output"][-2:]
            case["bad_words"] = [[pick(1)[0]], tail + pick(1), pick(2), [9] + tail + pick(1)]
        if maybe(0.2):
            case["min_tokens"] = int(rng.integers(1, 14))
            case["stop_token_ids"] = pick(3)
        if maybe(0.2):
            ids = pick(5)
            case["logit_bias"] = [
                [i, float(b)] for i, b in zip(ids, rng.choice([-100, -2.5, 0.75, 4, 100, 250], 5), strict=False)
            ]
        if maybe(0.3):
            case["repetition_penalty"] = float(rng.choice([0.5, 1.1, 1.8]))
        if maybe(0.3):
            case["frequency_penalty"] = float(rng.choice([-2, -0.5, 0.5, 2]))
        if maybe(0.3):
            case["presence_penalty"] = float(rng.choice([-2, -0.5, 0.5, 2]))
        if maybe(0.2):
            case["logprobs"] = int(rng.choice([0, 1, 5, 20, 70]))
        yield case


def philox4x32(counter, key, rounds=10):
    counter, key = list(counter), list(key)
    for _ in range(rounds):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [
            (b >> 32) ^ counter[1] ^ key[0],
            b & 0xFFFFFFFF,
            (a >> 32) ^ counter[3] ^ key[1],
            a & 0xFFFFFFFF,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return counter


def uniform_draws(rng):
    # The vectors published with Random123.
    assert philox4x32([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox4x32([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox4x32([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
    ]  # fmt: skip
    pairs = [(0, 0), (42, 0), (42, 1), (2**64 - 1, 2**64 - 1)]
    pairs += [tuple(int(x) for x in rng.integers(0, 2**64, 2, dtype=np.uint64)) for _ in range(12)]
    for seed, counter in pairs:

        def split(x):
            return [x & 0xFFFFFFFF, x >> 32]

        word = philox4x32(split(counter) + [0, 0], split(seed))
        yield [seed, counter, (((word[1] << 32) | word[0]) >> 11) / 2**53]


def main():
    rng = np.random.default_rng(20240)
    # Multiples of 1/16 are exact in float and have many ties.
    scale = [0.3, 1, 2, 2, 4, 4, 8, 8, 16, 30]
    rows = [np.round(rng.normal(0, s, VOCAB) * 16) / 16 for s in scale]
    rows.append(np.full(VOCAB, 1.5))
    rows.append(rows[4].copy())
    rows[-1][rng.choice(VOCAB, 30, replace=False)] = -math.inf
    kept = []
    for case in make_cases(rng, rows):
        logits = torch.tensor(rows[case["row"]])
        row, legal = edit(logits, case)
        if torch.isinf(row).all():
            case["error"] = True
        else:
            found = distribution(row, case)
            if found is None:
                continue
            case["candidates"] = [[i, float(f"{p:.9g}")] for i, p in found.items()]
            if "logprobs" in case:
                case["top"] = [[i, float(f"{v:.9g}")] for i, v in logprobs(logits, legal, case)]
        kept.append(case)
    fixture = {
        "vocab_size": VOCAB,
        "allowed_vocab": ALLOWED,
        "end_ids": END_IDS,
        "rows": [["-inf" if math.isinf(x) else float(x) for x in row] for row in rows],
        "cases": kept[:400],
    }
    OUT.mkdir(parents=True, exist_ok=True)
    lines = json.dumps(fixture, separators=(",", ":")).replace('{"row"', '\n{"row"')
    (OUT / "distributions.json").write_text(lines + "\n")
    draws = json.dumps(list(uniform_draws(rng)), separators=(",", ":"))
    (OUT / "uniform.json").write_text(draws + "\n")
    print(len(kept), "cases,", sum("error" in c for c in fixture["cases"]), "of those kept are errors")


if __name__ == "__main__":
    main()
