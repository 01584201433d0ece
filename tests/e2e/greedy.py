"""Greedy tokens over the wire, held against another engine's for the same weights."""

import json

# How far two right engines may differ. The fixture has llama.cpp's and the exact logits of every step: the distance
# between best and second token is off by 0.150 rms and 0.875 at most in llama.cpp alone (tools/add_exact_logits.py
# prints it), for activations and keys are rounded. Two engines that each err by 0.15 differ by 0.21 rms: among these
# 1633 steps about 40 differ in their token, and one beyond a gap of 0.6 is to be expected once in sixteen fixtures.
TIE = 0.6
ALTERNATIVES = 20


def answer(client, prompt: str, tokens: int) -> list[dict]:
    reply = client.predict(
        prompt, Temperature=0.0, TopK=0, TopP=1.0, Tokens=tokens, Logprobs=ALTERNATIVES, TopLogprobs=ALTERNATIVES
    )
    return json.loads(reply.logprobs)["content"]


def case_of(client, name: str, prompt: str, tokens: int) -> dict:
    """What `client` answers, as a case for another one to follow."""
    steps = answer(client, prompt, tokens)
    return {
        "name": name,
        "prompt": prompt,
        "prompt_ids": client.tokenize(prompt),
        "tokens": [step["id"] for step in steps],
        "top": [[[other["id"], other["logprob"]] for other in step["top_logprobs"]] for step in steps],
    }


def follow(client, case: dict) -> tuple[list[tuple[int, float]], int]:
    """Feeds the other engine's answer and checks each next token. Returns the steps compared, each with our distance
    between the other's best two tokens, and how many had another token."""
    wanted, done, ties, compared = case["tokens"], 0, 0, []
    while done < len(wanted):
        prompt = case["prompt"] + client.detokenize(wanted[:done])
        if done and client.tokenize(prompt) != case["prompt_ids"] + wanted[:done]:
            done += 1  # the text up to here cannot be fed: it makes other tokens
            continue
        for entry in answer(client, prompt, len(wanted) - done):
            step = case["top"][done]
            ours = {other["id"]: other["logprob"] for other in entry["top_logprobs"]}
            where = f"{case['name']}, step {done}: {entry['id']} instead of {wanted[done]}"
            assert step[0][0] in ours and entry["id"] in ours, where
            if step[1][0] in ours:
                compared.append((done, ours[step[0][0]] - ours[step[1][0]]))
            done += 1
            if entry["id"] != step[0][0]:
                theirs = dict(map(tuple, step))
                assert entry["id"] in theirs, f"{where}, which is not among the other's best {len(step)}"
                gap = step[0][1] - theirs[entry["id"]]
                assert gap < TIE, f"{where}, which the other holds {gap:.2f} below"
                ties += 1
                break  # from here on the texts part: go on from the other's
    return compared, ties
