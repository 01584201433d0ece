"""PredictOptions to the request JSON of vllm_ext_submit."""

from __future__ import annotations

import json
import math
from typing import Any

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from vllm_backend import backend_pb2 as pb
from vllm_backend import chat
from vllm_backend.errors import BackendError
from vllm_backend.replies import ReplyWriter, joined

TOOLS = json.dumps([{"type": "function", "function": {"name": "get_weather", "parameters": {}}}])


def request(**fields: Any) -> dict[str, Any]:
    fields.setdefault("Seed", -1)
    made = json.loads(chat.request_json(pb.PredictOptions(**fields)))
    assert isinstance(made, dict)
    return made


def chat_request(**fields: Any) -> dict[str, Any]:
    return request(UseTokenizerTemplate=True, Messages=[pb.Message(role="user", content="hi")], **fields)


def refusal(**fields: Any) -> str:
    with pytest.raises(BackendError) as error:
        request(**fields)
    assert error.value.code == grpc.StatusCode.INVALID_ARGUMENT
    return str(error.value)


def test_unset_fields_are_absent() -> None:
    assert request(Prompt="hi") == {"prompt": "hi", "temperature": 0, "max_tokens": 0}


@pytest.mark.parametrize("make", [request, chat_request])
def test_rpc_11_every_field_reaches_both_forms(make: Any) -> None:
    made = make(
        Temperature=0.7, TopP=0.9, TopK=40, MinP=0.1, PresencePenalty=-1.5, FrequencyPenalty=0.5, Penalty=1.1,
        Tokens=20, Seed=42, StopPrompts=["a", "b"], IgnoreEOS=True, LogitBias='{"1": -100, "2": 0.5}',
        Grammar='root ::= "yes"',
    )  # fmt: skip
    for name in ("prompt", "messages"):
        made.pop(name, None)
    assert made == {
        "temperature": 0.7, "top_p": 0.9, "top_k": 40, "min_p": 0.1, "presence_penalty": -1.5, "frequency_penalty": 0.5,
        "repetition_penalty": 1.1, "max_tokens": 20, "seed": 42, "stop": ["a", "b"], "ignore_eos": True,
        "logit_bias": {"1": -100, "2": 0.5}, "grammar": 'root ::= "yes"',
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "key", "value"),
    [
        ({"TopK": 0}, "top_k", None), ({"TopK": -1}, "top_k", None), ({"TopK": 5}, "top_k", 5),
        ({"TopP": 0.0}, "top_p", None), ({"TopP": 1.0}, "top_p", 1), ({"TopP": 1e-6}, "top_p", 1e-6),
        ({"MinP": 1.0}, "min_p", 1),
        ({"Temperature": 0.0}, "temperature", 0), ({"Temperature": 1e-9}, "temperature", 1e-9),
        ({"Penalty": 0.0}, "repetition_penalty", None), ({"PresencePenalty": 0.0}, "presence_penalty", None),
        ({"Seed": -1}, "seed", None), ({"Seed": 0}, "seed", 0), ({"Seed": -7}, "seed", -7),
        ({"Tokens": -3}, "max_tokens", 0), ({"Tokens": 2**31 - 1}, "max_tokens", 2**31 - 1),
        ({"StopPrompts": ["", "x", ""]}, "stop", ["x"]), ({"StopPrompts": [""]}, "stop", None),
        ({"Logprobs": 1, "TopLogprobs": 3}, "logprobs", 3), ({"Logprobs": 1}, "logprobs", 1), ({}, "logprobs", None),
        ({"Grammar": '{"type": "object"}'}, "json_schema", {"type": "object"}), ({"Grammar": " \n"}, "grammar", None),
        ({"Grammar": "{broken"}, "grammar", "{broken"),
    ],
)  # fmt: skip
def test_samp_02_wire_values(fields: dict[str, Any], key: str, value: Any) -> None:
    assert request(Prompt="p", **fields).get(key) == value


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"Temperature": math.nan}, "Temperature is nan"),
        ({"Temperature": -0.5}, "Temperature is -0.5"),
        ({"Temperature": math.inf}, "Temperature is inf"),
        ({"TopP": 1.5}, "TopP is 1.5; it must be a number from 0 to 1"),
        ({"TopP": -0.1}, "TopP is -0.1"),
        ({"MinP": math.nan}, "MinP is nan"),
        ({"Penalty": -1.0}, "Penalty is -1"),
        ({"FrequencyPenalty": math.nan}, "FrequencyPenalty is nan; it must be a finite number"),
        ({"Images": ["aGk="]}, "Images holds 1 item"),
        ({"Videos": ["aGk="]}, "Videos holds 1 item"),
        ({"Audios": ["aGk=", "aGk="]}, "Audios holds 2 item"),
    ],
)
def test_samp_02_values_out_of_range_are_refused_by_name(fields: dict[str, Any], words: str) -> None:
    assert words in refusal(Prompt="p", **fields)


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        ("{", "not JSON"),
        ("[1]", "is [1]"),
        ('{"x": 1}', "the key 'x'"),
        ('{"-1": 1}', "the key '-1'"),
        ('{"٣": 1}', "the key '٣'"),
        ('{"99999999999999999999": 1}', "the key '99999999999999999999'"),
        ('{"4294967296": 1}', "the key '4294967296'"),
        ('{"5": "a"}', "token 5 the value 'a'"),
        ('{"5": true}', "token 5 the value true"),
        ('{"5": NaN}', "NaN is no JSON number"),
        ('{"5": null}', "token 5 the value null"),
        ('{"5": 1' + "0" * 400 + "}", "token 5"),
        ("[" * 100000, "nested too deeply"),
    ],
)
def test_samp_06_broken_logit_bias_is_refused_by_entry(bias: str, words: str) -> None:
    message = refusal(Prompt="p", LogitBias=bias)
    assert message.startswith("LogitBias") and words in message and len(message) < 300


def test_chat_needs_the_flag_and_messages() -> None:
    messages = [pb.Message(role="user", content="hi")]
    assert "prompt" in request(Prompt="p", Messages=messages)
    assert "prompt" in request(Prompt="p", UseTokenizerTemplate=True)
    assert "messages" in request(Messages=messages, UseTokenizerTemplate=True)


def test_messages_hold_what_was_sent() -> None:
    calls = [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    made = request(
        UseTokenizerTemplate=True,
        Messages=[
            pb.Message(role="assistant", reasoning_content="hm", tool_calls=json.dumps(calls)),
            pb.Message(role="tool", content="22", name="f", tool_call_id="c"),
        ],
    )["messages"]
    assert made == [
        {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": calls},
        {"role": "tool", "content": "22", "name": "f", "tool_call_id": "c"},
    ]


def test_broken_tool_calls_and_tools_are_refused() -> None:
    broken = [pb.Message(role="assistant", tool_calls="[{")]
    assert "tool_calls of message 0 is not JSON" in refusal(UseTokenizerTemplate=True, Messages=broken)
    message = [pb.Message(role="user", content="hi")]
    for tools in ("{}", "x", "5"):
        assert refusal(UseTokenizerTemplate=True, Messages=message, Tools=tools).startswith("Tools is")


NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("", None), ("auto", "auto"), ('"auto"', "auto"), ("none", "none"), ('"required"', "required"),
        (json.dumps(NAMED), NAMED), ('{"type": "function", "name": "get_weather"}', NAMED),
        (json.dumps(json.dumps(NAMED)), NAMED), ('"\\"none\\""', "none"),
    ],
)  # fmt: skip
def test_tool_choice_shapes(text: str, choice: Any) -> None:
    assert chat_request(Tools=TOOLS, ToolChoice=text).get("tool_choice") == choice


@pytest.mark.parametrize("text", ["sometimes", "{}", "[]", "5", '{"function": {"name": ""}}', '{"name": 1}'])
def test_unreadable_tool_choice_is_refused(text: str) -> None:
    fields = {"UseTokenizerTemplate": True, "Messages": [pb.Message(role="user")]}
    assert refusal(Tools=TOOLS, ToolChoice=text, **fields).startswith("ToolChoice is")


def test_empty_tools_are_no_tools() -> None:
    made = chat_request(Tools="[]", ToolChoice="auto")
    assert "tools" not in made and "tool_choice" not in made
    assert chat_request(ToolChoice="required")["tool_choice"] == "required"  # for the engine to refuse


def test_a_grammar_made_from_the_tools_gives_way_to_the_engines_own() -> None:
    from_tools = r'root-0-name ::= "\"get_weather\""'
    assert "grammar" not in chat_request(Tools=TOOLS, Grammar=from_tools)
    assert chat_request(Tools=TOOLS, ToolChoice="none", Grammar=from_tools)["grammar"] == from_tools
    assert chat_request(Tools=TOOLS, Grammar='root ::= "yes"')["grammar"] == 'root ::= "yes"'


TWO_TOOLS = json.dumps([{"type": "function", "function": {"name": name}} for name in ("get_weather", "now")])
NAMED_WEATHER = json.dumps({"type": "function", "function": {"name": "get_weather"}})


@pytest.mark.parametrize("choice", ["required", NAMED_WEATHER])
@pytest.mark.parametrize("grammar", ['root ::= "yes"', '{"type": "object"}'])
def test_a_grammar_beside_a_call_that_must_be_made_is_dropped_with_one_warning(
    choice: str, grammar: str, caplog: pytest.LogCaptureFixture
) -> None:
    chat.warn_of_dropped_grammar.cache_clear()
    for _ in range(2):
        made = chat_request(Tools=TWO_TOOLS, ToolChoice=choice, Grammar=grammar)
    assert "grammar" not in made and "json_schema" not in made
    assert "tool_choice" in made
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "ToolChoice asks for a tool call" in caplog.text
    caplog.clear()
    kept = chat_request(Tools=TWO_TOOLS, ToolChoice="auto", Grammar=grammar)
    assert "grammar" in kept or "json_schema" in kept
    assert not caplog.records


def test_a_grammar_made_from_the_tool_that_is_named_gives_way_unsaid(caplog: pytest.LogCaptureFixture) -> None:
    from_one = r'root-0-name ::= "\"get_weather\""'
    assert "grammar" not in chat_request(Tools=TWO_TOOLS, ToolChoice=NAMED_WEATHER, Grammar=from_one)
    assert not caplog.records
    assert chat_request(Tools=TWO_TOOLS, ToolChoice="auto", Grammar=from_one)["grammar"] == from_one


def test_tpl_07_metadata_reaches_the_template() -> None:
    def kwargs(**metadata: str) -> Any:
        return chat_request(Metadata=metadata).get("chat_template_kwargs")

    assert kwargs() is None
    assert kwargs(mcp="x") is None
    assert kwargs(enable_thinking="false") == {"enable_thinking": False}
    assert kwargs(enable_thinking="true", reasoning_effort="low") == {
        "enable_thinking": True,
        "reasoning_effort": "low",
    }
    assert kwargs(chat_template_kwargs='{"a": 1, "enable_thinking": false}', enable_thinking="true") == {
        "a": 1,
        "enable_thinking": False,
    }
    for broken in ("[1]", "{", "text", "[" * 100000):
        assert kwargs(chat_template_kwargs=broken, enable_thinking="false") == {"enable_thinking": False}


def test_a_thinking_budget_is_a_count_of_tokens() -> None:
    assert "thinking_budget" not in chat_request(Metadata={"thinking_budget": " "})
    for word, budget in (("0", 0), (" 128 ", 128)):
        assert chat_request(Metadata={"thinking_budget": word})["thinking_budget"] == budget
    for word in ("-1", "many", "1.5", "9" * 100, "²"):
        with pytest.raises(BackendError, match="thinking_budget"):
            chat_request(Metadata={"thinking_budget": word})


def test_chat_logprobs_are_openais() -> None:
    made = chat_request(Logprobs=2, TopLogprobs=2)
    assert (made["logprobs"], made["top_logprobs"]) == (True, 2)


def test_lone_surrogates_of_json_texts_stay_escaped() -> None:
    assert b"\\ud800" in chat.request_json(
        pb.PredictOptions(
            UseTokenizerTemplate=True,
            Messages=[pb.Message(role="user")],
            Tools=r'[{"function": {"name": "\ud800"}}]',
        )
    )


@settings(max_examples=100, deadline=None)
@given(st.text(), st.text(), st.text(), st.text())
def test_hostile_texts_are_mapped_or_refused(tools: str, choice: str, bias: str, kwargs: str) -> None:
    fields = {"Tools": tools, "ToolChoice": choice, "LogitBias": bias, "Metadata": {"chat_template_kwargs": kwargs}}
    try:
        chat_request(**fields)
    except BackendError as error:
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT


# ---- Chunks to replies ----


def chunk(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_rpc_08_unary_merges_the_streams_deltas() -> None:
    writer = ReplyWriter(chat=True)
    pieces = [
        {"role": "assistant", "content": ""}, {"reasoning": "a"}, {"reasoning": "b"}, {"content": "c"},
        {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '{"k":'}}]},
        {"tool_calls": [{"index": 1, "id": "y", "function": {"name": "g", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}, {},
    ]  # fmt: skip
    replies = []
    for index, delta in enumerate(pieces):
        last = index == len(pieces) - 1
        usage = {"prompt_tokens": 4, "completion_tokens": index}
        reply = writer.reply(chunk(choices=[{"delta": delta}], usage=usage), last)
        if reply is not None:
            replies.append(reply)
            assert len(reply.chat_deltas) == (0 if last else 1)
    whole = joined(replies)
    assert (whole.message, whole.tokens, whole.prompt_tokens) == (b"c", 8, 4)
    (delta,) = whole.chat_deltas
    assert (delta.content, delta.reasoning_content) == ("c", "ab")
    assert [(c.index, c.id, c.name, c.arguments) for c in delta.tool_calls] == [
        (0, "x", "f", '{"k":1}'),
        (1, "y", "g", "{}"),
    ]


def test_a_broken_chunk_is_an_error() -> None:
    for broken in (b"", b"{", b"[1]", b"[" * 100000):
        with pytest.raises(BackendError):
            ReplyWriter(chat=False).reply(broken, last=False)
    with pytest.raises(BackendError) as error:
        ReplyWriter(chat=False).reply(chunk(error={"status": 1, "message": "bad"}), last=True)
    assert (error.value.code, str(error.value)) == (grpc.StatusCode.INVALID_ARGUMENT, "bad")
