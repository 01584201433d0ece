"""Qwen3's real template and tokenizer through the server and the engine: prompts, thoughts and calls of tools.

The model is made here (tiny_qwen3.py). Every request is answered three times, unary and streamed over the wire, and by
the library, which also tells the finish reason; its log-probabilities tell the tokens, so that what belongs to the
thought is known without the parsers.
"""

import copy
import itertools
import json
from dataclasses import dataclass

import pytest
import tiny_qwen3
from conftest import fetched
from jinja_conversations import NOW, SYSTEMS, TURNS, WEATHER
from jinja_oracle import render
from localai_client import Backend, predict_options
from runs import Run, asked_both_ways, load, said, strict_json
from tiny_qwen3 import ANSWER, BLANK, CALL, END, END_THINK, LAST_THOUGHT, THINK

GREEDY, SEEDED = {"Temperature": 0.0}, {"Temperature": 1.0, "Seed": 5}
OFF = {"enable_thinking": "false"}
LOOKUP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Schlägt <etwas> nach",
        "parameters": {
            "type": "object",
            "properties": {
                "word": {"type": "string", "minLength": 1, "maxLength": 12},
                "language": {"type": "string", "enum": ["de", "東京"]},
                "count": {"type": "integer", "minimum": 1, "maximum": 99},
            },
            "required": ["word", "language", "count"],
            "additionalProperties": False,
        },
    },
}
NAMED = '{"type": "function", "function": {"name": "look_up"}}'


@dataclass
class Outcome:
    content: str
    reasoning: str
    calls: list[tuple[str, str]]  # name and arguments
    finish: str
    ids: list[int]
    prompt: str

    def thought(self) -> list[int]:
        """The tokens behind the start of the thought and before its end."""
        assert self.ids[0] == THINK
        return self.ids[1 : self.ids.index(END_THINK) if END_THINK in self.ids else None]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen3") / "tiny"
    tiny_qwen3.make(folder, fetched("qwen3-tokenizer"))
    return folder


@pytest.fixture(scope="module")
def tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def template(folder) -> str:
    return json.loads((folder / "tokenizer_config.json").read_text("utf-8"))["chat_template"]


def engine_of(library, folder, **params):
    return load(library, folder, block_size=16, num_blocks=512, max_model_len=4096, max_num_seqs=4, **params)


@pytest.fixture(scope="module")
def engine(library, folder):
    engine = engine_of(library, folder)
    yield engine
    engine.free()


@pytest.fixture(scope="module")
def client(folder):
    with Backend() as backend:
        backend.client.load(folder)
        yield backend.client


def library_request(fields: dict) -> dict:
    """What the server makes of the wire's fields."""
    from vllm_backend.chat import request_json

    return json.loads(request_json(predict_options(**fields)))


def wire_message(message: dict) -> dict:
    """A message as the host sends it: calls as a JSON text, with their arguments as a JSON text in it."""
    fields = {key: value for key, value in message.items() if key != "tool_calls"}
    if "tool_calls" in message:
        calls = copy.deepcopy(message["tool_calls"])
        for call in calls:
            function = call["function"]
            if not isinstance(function["arguments"], str):
                function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
        fields["tool_calls"] = json.dumps(calls, ensure_ascii=False)
    return fields


def expected_prompt(template: str, messages: list, tools: list | None, **variables) -> str:
    """As jinja2 renders what apply_chat_template would pass."""
    variables = {"add_generation_prompt": True, **variables}
    return render(template, {"messages": messages, "tools": tools, **variables})["text"]


@pytest.fixture
def ask(client, engine, tokenizer, template):
    """Asks in every way; the answers have to be the same, and the prompt that of jinja2."""

    def ask(messages: list | None = None, tools: list | None = None, thinking=None, **fields) -> Outcome:
        messages = messages or [{"role": "user", "content": "Grüße?"}]
        fields = said("", Logprobs=1, **{"Tokens": 120, **fields})
        fields["Messages"] = [wire_message(message) for message in messages]
        if tools:
            fields["Tools"] = json.dumps(tools, ensure_ascii=False)
        message, content, reasoning, calls, tokens, prompt_tokens = asked_both_ways(client, fields)
        request = library_request(fields)
        result = Run(engine, **request).wait()
        assert (result.text, result.reasoning) == (content, reasoning)
        assert [(call["name"], call["arguments"]) for call in result.calls.values()] == list(map(tuple, calls.values()))
        assert (result.usage["completion_tokens"], result.usage["prompt_tokens"]) == (tokens, prompt_tokens)
        ids = [entry["id"] for entry in result.logprobs]
        assert len(ids) == tokens
        assert [e["id"] for e in json.loads(client.predict(**fields).logprobs)["content"]] == ids
        rendered = engine.query({"query": "render", **request})
        variables = {} if thinking is None else {"enable_thinking": thinking}
        assert rendered["prompt"] == expected_prompt(template, messages, tools, **variables)
        assert rendered["tokens"] == tokenizer.encode(rendered["prompt"], add_special_tokens=False).ids
        assert prompt_tokens == len(rendered["tokens"])
        outcome = Outcome(content, reasoning, list(map(tuple, calls.values())), result.finish, ids, rendered["prompt"])
        if ids[0] == THINK:
            assert reasoning == tokenizer.decode(outcome.thought(), skip_special_tokens=True).strip("\r\n")
        else:
            assert reasoning == ""
        return outcome

    return ask


def bias(**by_name: float) -> str:
    """LogitBias by the names of tiny_qwen3."""
    return json.dumps({getattr(tiny_qwen3, name): value for name, value in by_name.items()})


def check_lookup(call: tuple[str, str]) -> None:
    name, arguments = call
    assert name == "look_up"
    found = strict_json(arguments)
    assert list(found) == ["word", "language", "count"]
    assert 1 <= len(found["word"]) <= 12 and found["language"] in ("de", "東京")
    assert type(found["count"]) is int and 1 <= found["count"] <= 99


# ---- Prompts ----


def nested(message: dict) -> dict:
    """Calls in the form of the protocol: a few of the conversations have them without `function`."""
    if "tool_calls" not in message:
        return message
    calls = [
        call if "function" in call else {"type": "function", "function": dict(call)} for call in message["tool_calls"]
    ]
    return message | {"tool_calls": calls}


def test_TPL_01_prompts_and_their_tokens_are_the_references(engine, tokenizer, template):
    count = 0
    for system, turns, tools, thinking in itertools.product(
        SYSTEMS, TURNS, (None, [WEATHER, NOW]), (None, "true", "false")
    ):
        messages = [nested(message) for message in system + turns]
        fields = said("", Messages=[wire_message(message) for message in messages])
        variables = {}
        if tools:
            fields["Tools"] = json.dumps(tools)
        if thinking:
            fields["Metadata"] = {"enable_thinking": thinking}
            variables["enable_thinking"] = thinking == "true"
        for generation in (True, False):
            request = library_request(fields) | {"query": "render", "add_generation_prompt": generation}
            wanted = expected_prompt(template, messages, tools, add_generation_prompt=generation, **variables)
            found = engine.query(request)
            assert found["prompt"] == wanted
            assert found["tokens"] == tokenizer.encode(wanted, add_special_tokens=False).ids, wanted
            count += 1
    assert count == 576


# ---- Thoughts ----


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
def test_REAS_01_a_thought_and_the_answer(ask, tokenizer, sampling):
    (word,) = tokenizer.encode(LAST_THOUGHT).ids
    for metadata in ({}, {"enable_thinking": "true"}, {"thinking_budget": "1"}, {"thinking_budget": "30"}):
        thinking = True if "enable_thinking" in metadata else None
        found = ask(thinking=thinking, Metadata=metadata, LogitBias=json.dumps({word: 14}), **sampling)
        assert (found.reasoning, found.content, found.finish) == (LAST_THOUGHT, ANSWER, "stop")
        assert found.ids[:4] == [THINK, word, END_THINK, BLANK] and len(found.ids) == 7


@pytest.mark.parametrize(
    "metadata", [OFF, {"chat_template_kwargs": '{"enable_thinking": false}'}, OFF | {"thinking_budget": "5"}]
)
def test_TPL_07_thinking_off(ask, metadata):
    found = ask(thinking=False, Metadata=metadata)
    assert (found.reasoning, found.content, found.finish) == ("", ANSWER, "stop")
    assert found.prompt.endswith("<think>\n\n</think>\n\n") and len(found.ids) == 3
    assert THINK in ask(Tokens=4).ids  # of that request only


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
@pytest.mark.parametrize("budget", [0, 1, 2, 7, 33])
def test_a_thought_has_as_many_tokens_as_its_budget(ask, budget, sampling):
    found = ask(Metadata={"thinking_budget": str(budget)}, **sampling)
    assert len(found.thought()) == budget
    assert (found.content, found.finish) == (ANSWER, "stop")
    assert len(found.ids) == 1 + budget + 1 + 4  # start, thought, end, then the blank line, two words and the end
    assert bool(found.reasoning) == (budget > 0)


def test_REAS_02_cut_inside_a_thought(ask):
    found = ask(Tokens=6)
    assert (found.content, found.finish, len(found.thought())) == ("", "length", 5)
    for tokens, thought in ((1, 0), (2, 1), (4, 3), (5, 3), (6, 3)):  # the end of the thought is the fifth token
        found = ask(Tokens=tokens, Metadata={"thinking_budget": "3"})
        assert (found.content, found.finish, len(found.thought())) == ("", "length", thought)
    found = ask(Tokens=7, Metadata={"thinking_budget": "3"})
    assert (found.content, found.finish) == (ANSWER.removesuffix("."), "length")


def test_REAS_02_an_end_inside_a_thought(ask, tokenizer):
    (dot,) = tokenizer.encode(".").ids
    found = ask(LogitBias=json.dumps({dot: 14}))
    assert (found.ids, found.content, found.finish) == ([THINK, dot, END], ".", "stop")


def test_STOP_01_in_the_answer_behind_a_thought(ask):
    for fields in ({"Metadata": {"thinking_budget": "2"}}, {"Metadata": OFF, "thinking": False}):
        found = ask(StopPrompts=["s."], **fields)
        assert (found.content, found.finish) == ("Ye", "stop")


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
@pytest.mark.parametrize("grammar", ['root ::= "left" | "right"', json.dumps({"enum": ["left", "right"]})])
def test_REAS_05_thoughts_are_free_and_the_answer_is_constrained(ask, grammar, sampling):
    found = ask(Grammar=grammar, Metadata={"thinking_budget": "4"}, **sampling)
    assert found.content.strip('"') in ("left", "right") and found.finish == "stop"
    assert len(found.thought()) == 4
    found = ask(Grammar=grammar, Metadata=OFF, thinking=False, **sampling)
    assert found.content.strip('"') in ("left", "right") and found.finish == "stop"
    assert not found.reasoning


def test_a_budget_counts_alike_for_a_parser_that_takes_all_for_a_thought(library, folder):
    """With `qwen3` the output begins as a thought; the start that the model writes all the same is not part of it."""
    engine = engine_of(library, folder, reasoning_parser="qwen3")
    try:
        for budget in (0, 1, 5):
            fields = said("Hi", Logprobs=1, Metadata={"thinking_budget": str(budget)})
            result = Run(engine, **library_request(fields)).wait()
            ids = [entry["id"] for entry in result.logprobs]
            assert ids.index(END_THINK) - (ids[0] == THINK) == budget
            assert (result.text, result.finish, bool(result.reasoning)) == (ANSWER, "stop", budget > 0)
        off = Run(engine, **library_request(said("Hi", Metadata=OFF))).wait()
        assert (off.text, off.reasoning, off.finish) == (ANSWER, "", "stop")
    finally:
        engine.free()


# ---- Tools ----


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED])
@pytest.mark.parametrize(("choice", "finish"), [("required", "tool_calls"), (NAMED, "stop")])
def test_TOOL_09_a_call_behind_a_thought(ask, choice, finish, sampling):
    tools = [NOW, LOOKUP] if choice == NAMED else [LOOKUP]
    asked = {"tools": tools, "ToolChoice": choice, "LogitBias": bias(END_CALL=12), **sampling}
    found = ask(Metadata={"thinking_budget": "3"}, **asked)
    assert len(found.thought()) == 3
    assert (found.content, found.finish, len(found.calls)) == ("", finish, 1)
    check_lookup(found.calls[0])
    found = ask(Metadata=OFF, thinking=False, **asked)
    assert (found.content, found.reasoning, found.finish, len(found.calls)) == ("", "", finish, 1)
    check_lookup(found.calls[0])


def test_TOOL_10_a_marker_in_a_thought_is_no_call(ask):
    """The marker of a call wherever noise would be, and behind the thought, where the call is one."""
    steer = bias(CALL=17, BLANK=-12, END_CALL=12)
    found = ask(tools=[LOOKUP], ToolChoice="auto", Metadata={"thinking_budget": "3"}, LogitBias=steer)
    assert found.thought() == [CALL] * 3 and found.reasoning == "<tool_call>" * 3
    assert (found.content, found.finish, len(found.calls)) == ("", "tool_calls", 1)
    check_lookup(found.calls[0])


def test_TOOL_06_calls_behind_text_until_the_limit(ask):
    fields = {"tools": [LOOKUP], "ToolChoice": "auto", "thinking": False, "Metadata": OFF, "Tokens": 150}
    found = ask(LogitBias=bias(CALL=17, END=-20, END_CALL=12), **fields)
    assert found.content.startswith(ANSWER) and found.finish == "length"
    assert len(found.calls) >= 2
    for call in found.calls:
        check_lookup(call)


def test_TOOL_09_none_shows_no_tools(ask):
    found = ask(Metadata={"thinking_budget": "2"})
    fields = {"Tools": json.dumps([LOOKUP]), "ToolChoice": "none"}
    assert ask(Metadata={"thinking_budget": "2"}, **fields) == found


# ---- Conversations ----


def test_TPL_05_a_conversation_with_calls_and_their_results(ask):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Schlag nach: Zug"}]
    tools = [LOOKUP, NOW]
    for turn in range(3):
        found = ask(messages, tools, ToolChoice=NAMED, Metadata={"thinking_budget": str(3 + turn)})
        check_lookup(found.calls[0])
        call = {"name": found.calls[0][0], "arguments": strict_json(found.calls[0][1])}
        calls = [{"id": f"call_{turn}", "type": "function", "function": call}]
        said_then = {"role": "assistant", "content": "", "reasoning_content": found.reasoning, "tool_calls": calls}
        result = {"role": "tool", "content": '{"hits": ["東", 1.5]}', "tool_call_id": f"call_{turn}", "name": "look_up"}
        messages += [said_then, result]
        follow = ask(messages, tools, Metadata={"thinking_budget": "2"})
        assert (follow.content, follow.finish) == (ANSWER, "stop")
        assert f"<think>\n{found.reasoning}\n</think>" in follow.prompt  # kept while the question is the same
    answered = [*messages, {"role": "assistant", "content": follow.content, "reasoning_content": follow.reasoning}]
    found = ask([*answered, {"role": "user", "content": "Danke"}], tools, Metadata=OFF, thinking=False)
    assert found.content == ANSWER and found.prompt.count("<think>") == 1  # the empty one of this turn
