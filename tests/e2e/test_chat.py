"""Chat with the model's own template, answers under a constraint, and calls of tools, as LocalAI asks for them."""

import json
import re
import shutil
import time

import grpc
import pytest
from localai_client import Backend, BackendError
from runs import Run, asked_both_ways, at_once, joined, load, said, strict_json

QUESTION = "What is the capital of France? Answer in one short sentence."
ANSWER = "The capital of France is Paris."
SEEDS = range(20)

CITY = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 16},
        "population": {"type": "integer", "minimum": 0, "maximum": 99_999_999},
        "capital": {"type": "boolean"},
        "sights": {"type": "array", "items": {"type": "string", "maxLength": 16}, "maxItems": 2},
    },
    "required": ["city", "population", "capital", "sights"],
    "additionalProperties": False,
}

# As the host sends it for response_format json_object: a rule's text may begin on the line after `::=`, groups go over
# several lines and hold comments.
JSON_OBJECT = r"""root ::=
  object
value ::=
  object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\/bfnrt] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F]) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]*)) ("." [0-9]+)? ([eE] [-+]? [0-9]+)? ws

ws ::= ([ \t\n] ws)?
"""

# As the host makes it from a schema: rules in no order, unused ones, hyphens in names, all keys required and sorted.
FROM_SCHEMA = r"""freestring ::= ( [^\x00] | "\\" )*
root-0-city ::= "\"" ( [^"\\\x00-\x1F] | "\\" (["\\/bfnrt]) ){1,24} "\"" space
boolean ::= ("true" | "false") space
space ::= " "?
root ::= "{" space "\"capital\"" space ":" space boolean "," space "\"city\"" space ":" space root-0-city "," space
  "\"population\"" space ":" space integer "}" space
integer ::= ("-"? ([0-9] | [1-9] [0-9]{0,8})) space
""".replace("space\n  ", "space ")

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "minLength": 1, "maxLength": 24}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "get_time"}}
WEATHER_IN_ROME = "What is the weather in Rome?"


def refused(call) -> str:
    """The sentence of a request that has to be refused for its arguments."""
    with pytest.raises(grpc.RpcError) as caught:
        call()
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT, caught.value
    return caught.value.details()


def check_city(found) -> None:
    assert list(found) == list(CITY["properties"])
    assert isinstance(found["city"], str) and 1 <= len(found["city"]) <= 16
    assert type(found["population"]) is int and 0 <= found["population"] <= 99_999_999
    assert type(found["capital"]) is bool
    assert len(found["sights"]) <= 2
    assert all(isinstance(sight, str) and len(sight) <= 16 for sight in found["sights"])


@pytest.fixture(scope="module")
def ending(loaded) -> str:
    """LogitBias that ends an answer wherever its constraint lets it end, and closes JSON that goes on for long."""
    bias = {"<|im_end|>": 50.0, "}": 7.0, '"}': 7.0, "]": 7.0, '"': 6.0}
    tokens = {text: loaded.tokenize(text) for text in bias}
    return json.dumps({ids[0]: bias[text] for text, ids in tokens.items() if len(ids) == 1})


# ---- Chat ----


def test_RPC_08_chat_answers_with_the_models_template(loaded):
    message, content, reasoning, calls, tokens, prompt_tokens = asked_both_ways(loaded, said(QUESTION))
    assert message.decode() == content == ANSWER
    assert (reasoning, calls) == ("", {})
    assert tokens == len(loaded.tokenize(ANSWER)) + 1  # the end is a token too
    assert prompt_tokens > len(loaded.tokenize(QUESTION))


def test_TPL_chat_prompt_is_the_templates(loaded):
    """The template written out as a prompt gives the same answer from as many tokens."""
    prompt = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n"
    )
    plain, chat = loaded.predict(prompt, Temperature=0.0, Tokens=64), loaded.predict(**said(QUESTION))
    assert (plain.message, plain.tokens, plain.prompt_tokens) == (chat.message, chat.tokens, chat.prompt_tokens)
    assert not plain.chat_deltas


def test_chat_of_two_turns(loaded):
    before = [("user", QUESTION), ("assistant", ANSWER)]
    message, *_, prompt_tokens = asked_both_ways(loaded, said("And the capital of Italy?", *before))
    assert b"Rome" in message
    assert prompt_tokens > loaded.predict(**said(QUESTION)).prompt_tokens + len(loaded.tokenize(ANSWER))


def test_RPC_11_sampling_fields_work_in_chat(loaded):
    seeded = said("Tell me a story.", Temperature=0.9, Seed=7)
    assert asked_both_ways(loaded, seeded) == asked_both_ways(loaded, seeded)
    assert loaded.predict(**seeded | {"Seed": 8}).message != loaded.predict(**seeded).message
    assert loaded.predict(**said(QUESTION, StopPrompts=[" France"])).message == b"The capital of"
    (paris,) = loaded.tokenize(" Paris")
    banned = loaded.predict(**said(QUESTION, LogitBias=json.dumps({paris: -100})))
    assert b" Paris" not in banned.message
    reply = loaded.predict(**said(QUESTION, Logprobs=1, TopLogprobs=2))
    content = json.loads(reply.logprobs)["content"]
    assert b"".join(bytes(entry["bytes"]) for entry in content).startswith(reply.message)
    assert all(len(entry["top_logprobs"]) == 2 for entry in content)
    assert loaded.predict(**said(QUESTION, IgnoreEOS=True, Tokens=40)).tokens == 40


# ---- Constrained answers ----


def seeded_answers(client, fields: dict) -> list:
    """Answers at temperature 1 to each of the seeds."""
    return at_once([lambda seed=seed: client.predict(**fields | {"Temperature": 1.0, "Seed": seed}) for seed in SEEDS])


@pytest.mark.parametrize("form", ["chat", "prompt"])
def test_GRAM_08_answers_are_valid_for_their_schema(loaded, form):
    fields = said("Describe a city as JSON.", Grammar=json.dumps(CITY), Tokens=300)
    if form == "prompt":
        fields |= {"Messages": [], "UseTokenizerTemplate": False, "prompt": "A city as JSON: "}
    found = [strict_json(reply.message.decode()) for reply in seeded_answers(loaded, fields)]
    for city in found:
        check_city(city)
    assert len({city["city"] for city in found}) > 3


def test_answers_follow_the_hosts_json_grammar(loaded, ending):
    fields = said("Give me JSON about a cat.", Grammar=JSON_OBJECT, LogitBias=ending, Tokens=500)
    for reply in seeded_answers(loaded, fields):
        assert isinstance(strict_json(reply.message.decode()), dict), reply.message


def test_answers_follow_the_hosts_grammar_of_a_schema(loaded):
    fields = said("Describe a city as JSON.", Grammar=FROM_SCHEMA, Tokens=200)
    for reply in seeded_answers(loaded, fields):
        found = strict_json(reply.message.decode())
        assert list(found) == ["capital", "city", "population"], found
        assert type(found["capital"]) is bool and type(found["population"]) is int
        assert 1 <= len(found["city"]) <= 24


def test_RPC_08_constrained_answers_are_the_same_streamed(loaded):
    for sampling in ({}, {"Temperature": 1.0, "Seed": 3}):
        message, *_ = asked_both_ways(loaded, said("A city.", Grammar=json.dumps(CITY), Tokens=300, **sampling))
        check_city(strict_json(message.decode()))


@pytest.fixture(scope="module")
def engine(library, smollm2):
    engine = load(library, smollm2, block_size=16, num_blocks=256, max_model_len=1024, max_num_seqs=8)
    yield engine
    engine.free()


def user(text: str) -> dict:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 64}


@pytest.mark.parametrize(
    "asked_as",
    [
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json_object": True}},
        {"json_object": True},
    ],
    ids=["response_format", "structured_outputs", "json_object"],
)
def test_GRAM_08_answers_are_json_objects(engine, ending, asked_as):
    fields = user("Give me JSON about a cat.") | {"logit_bias": json.loads(ending), "max_tokens": 500} | asked_as
    runs = [Run(engine, temperature=1.0, seed=seed, **fields) for seed in SEEDS]
    results = [run.wait() for run in runs]
    assert all(isinstance(strict_json(result.text), dict) for result in results), results
    assert all(result.finish == "stop" for result in results), results
    assert len({result.text for result in results}) > 3


def test_answers_match_their_regex(engine):
    pattern = r"(\+[1-9][0-9]{0,2} )?[0-9]{3}-[0-9]{4}|none (given|known)"
    runs = [Run(engine, regex=pattern, temperature=1.0, seed=seed, **user("Your number?")) for seed in SEEDS]
    texts = [run.wait().text for run in runs]
    assert all(re.fullmatch(pattern, text) for text in texts), texts
    assert len(set(texts)) > 3


def test_answers_are_one_of_their_choices(engine):
    choices = ["yes", "no", "maybe", "maybe not", "ça dépend"]
    asked = user("Will it rain?")
    runs = [Run(engine, choice=choices, temperature=1.0, seed=seed, **asked) for seed in SEEDS]
    results = [run.wait() for run in runs]
    assert all(result.text in choices and result.finish == "stop" for result in results), results
    assert len({result.text for result in results}) > 1
    assert Run(engine, "Will it rain? Answer:", choice=choices, max_tokens=16).wait().text in choices


# ---- Tools ----


def with_tools(choice: str, *tools: dict, **fields) -> dict:
    return said(WEATHER_IN_ROME, Tools=json.dumps(tools or [WEATHER]), ToolChoice=choice, Tokens=200, **fields)


def check_weather(call: list) -> None:
    name, arguments = call
    assert name == "get_weather"
    found = strict_json(arguments)
    assert list(found) == ["city"] and 1 <= len(found["city"]) <= 24


@pytest.mark.parametrize(
    "choice",
    [
        "required",
        '"required"',
        '{"type": "function", "function": {"name": "get_weather"}}',
        '{"type": "function", "name": "get_weather"}',
    ],
)
def test_TOOL_09_a_call_that_has_to_be_made(loaded, ending, choice):
    for sampling in ({}, {"Temperature": 1.0, "Seed": 1}, {"Temperature": 1.0, "Seed": 2}):
        message, _, _, calls, tokens, _ = asked_both_ways(loaded, with_tools(choice, LogitBias=ending, **sampling))
        assert message == b"" and list(calls) == [0] and tokens < 200
        check_weather(calls[0])


def test_TOOL_04_ids_are_there_and_differ(loaded):
    whole = loaded.predict(**with_tools("required"))
    calls = whole.chat_deltas[0].tool_calls
    ids = [call.id for call in calls]
    assert ids and all(ids) and len(set(ids)) == len(ids)
    assert [call.index for call in calls] == list(range(len(calls)))
    check_weather([calls[0].name, calls[0].arguments])


def test_TOOL_09_the_named_tool_is_called(loaded, ending):
    choice = '{"type": "function", "function": {"name": "get_time"}}'
    message, _, _, calls, *_ = asked_both_ways(loaded, with_tools(choice, WEATHER, CLOCK, LogitBias=ending))
    assert message == b"" and calls[0][0] == "get_time"
    assert isinstance(strict_json(calls[0][1]), dict)


@pytest.mark.parametrize("choice", ["auto", '"auto"', ""])
def test_TOOL_05_a_call_that_may_be_made(loaded, choice):
    for sampling in ({}, {"Temperature": 1.0, "Seed": 5}):
        message, _, _, calls, *_ = asked_both_ways(loaded, with_tools(choice, **sampling))
        assert message or calls
        assert b"<tool_call>" not in message
        for call in calls.values():
            check_weather(call)


def test_TOOL_09_none_is_as_without_tools(loaded):
    plain = asked_both_ways(loaded, said(WEATHER_IN_ROME, Tokens=200))
    assert asked_both_ways(loaded, with_tools("none")) == plain
    assert asked_both_ways(loaded, said(WEATHER_IN_ROME, Tokens=200, Tools="[]", ToolChoice="auto")) == plain


def test_TOOL_08_two_calls_after_some_text(loaded):
    """The model is made to say this, so it is known what is in it."""
    grammar = r'''root ::= "Sure, I look." nl call nl call
call ::= "<tool_call>" nl "{\"name\": \"get_" "weather\", \"arguments\": {\"city\": \"" city "\"}}" nl "</tool_call>"
city ::= "</tool_call> Rome {[" | "\\\"Paris\\\" ]}"
nl ::= "\n"'''
    (sure,) = loaded.tokenize("Sure")  # or it might begin with a call
    for seed in (1, 2, 3):
        bias = json.dumps({sure: 100})
        fields = with_tools("auto", Grammar=grammar, Temperature=1.0, Seed=seed, LogitBias=bias)
        message, _, _, calls, *_ = asked_both_ways(loaded, fields)
        assert message.decode().strip() == "Sure, I look."
        assert list(calls) == [0, 1]
        for name, arguments in calls.values():
            assert name == "get_weather"
            assert strict_json(arguments)["city"] in ("</tool_call> Rome {[", '"Paris" ]}')


@pytest.mark.parametrize("grammar", [json.dumps(CITY), JSON_OBJECT, FROM_SCHEMA])
def test_TOOL_09_GRAM_09_tools_and_a_response_format(loaded, ending, grammar):
    """As the host sends them together: the answer is a call, or what the format asks for."""
    (brace,), (less,) = loaded.tokenize("{"), loaded.tokenize("<")
    kinds = set()
    for first in (brace, less):
        for seed in (1, 2, 3):
            bias = json.dumps(json.loads(ending) | {first: 6.0})
            fields = with_tools("auto", Grammar=grammar, LogitBias=bias, Temperature=1.0, Seed=seed)
            message, _, _, calls, tokens, _ = asked_both_ways(loaded, fields)
            if tokens == 200:
                continue
            kinds.add(bool(calls))
            if calls:
                assert message == b""
                check_weather(calls[0])
            elif grammar.startswith("{"):
                check_city(strict_json(message.decode()))
            else:
                assert isinstance(strict_json(message.decode()), dict), message
    assert kinds == {True, False}


def test_a_tools_answer_is_part_of_the_chat(loaded):
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    fields = said("", Tools=json.dumps([WEATHER]), ToolChoice="auto")
    fields["Messages"] = [
        {"role": "user", "content": WEATHER_IN_ROME},
        {"role": "assistant", "content": "", "tool_calls": json.dumps([call])},
        {"role": "tool", "content": "22 degrees, sunny", "tool_call_id": "call_1", "name": "get_weather"},
    ]
    assert asked_both_ways(loaded, fields)[0]


def test_RPC_02_cancelled_constraints_give_all_blocks_back(engine):
    tools = {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 500}
    kinds = [{"json_schema": CITY}, {"grammar": JSON_OBJECT}, tools, {"regex": "[a-z ]{900}"}]
    solo = [Run(engine, **{**user("Describe a city."), "max_tokens": 40, **kind}) for kind in kinds[:2]]
    wanted = [run.wait().text for run in solo]
    runs = [Run(engine, **{**user("Describe a city."), "max_tokens": 900, **kinds[n % 4]}) for n in range(16)]
    stay = [Run(engine, **{**user("Describe a city."), "max_tokens": 40, **kind}) for kind in kinds[:2]]
    for number, run in enumerate(runs):
        if number % 3:
            assert run.first.wait(60)
        run.cancel()
    assert [run.wait().text for run in stay] == wanted
    deadline = time.monotonic() + 5
    while True:
        found = engine.query({"query": "metrics"})
        if (found["running"], found["waiting"], found["kv_blocks_free"]) == (0, 0, found["kv_blocks_total"]):
            break
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_RPC_02_clients_that_leave_a_constrained_answer(loaded):
    wanted = loaded.predict(**said(QUESTION)).message
    for fields in (
        said("A city.", Grammar=JSON_OBJECT, Tokens=900, LogitBias=json.dumps({loaded.tokenize("}")[0]: -100})),
        with_tools("required"),
    ):
        stream = loaded.stream(**fields)
        next(stream)
        assert loaded.predict(**said(QUESTION)).message == wanted  # beside it
        stream.close()
    deadline = time.monotonic() + 5
    while loaded.status()[0] != "READY":
        assert time.monotonic() < deadline, "a cancelled request is still running"
        time.sleep(0.05)
    assert loaded.predict(**said(QUESTION)).message == wanted


# ---- Refusals ----


def test_GRAM_03_refused_while_others_go_on(loaded):
    other = {"Tokens": 300, "Temperature": 0.0, "IgnoreEOS": True}
    wanted = loaded.predict("Once upon a time", **other).message
    stream = loaded.stream("Once upon a time", **other)
    pieces = [next(stream).message]
    started = time.monotonic()
    for grammar, place in (
        ('root ::= "yes" | nope', "1:18"),
        ('start ::= "yes"', "root"),
        ('root ::= "yes', "1:"),
        ('{"type": "objec"}', "#/type"),
        ('{"type": "object", "properties": {"a": {"$ref": "#/nope"}}}', "#/properties/a"),
        ("root ::= " + "(" * 60_000, ""),
        (json.dumps({"type": "string", "pattern": "(a"}), "pattern"),
    ):
        for fields in (said("x", Grammar=grammar), {"prompt": "x", "Grammar": grammar}):
            assert place in refused(lambda fields=fields: loaded.predict(**fields)), grammar[:80]
    assert time.monotonic() - started < 10
    assert "item" in refused(lambda: loaded.predict(**said("x", Images=["aGVsbG8="])))
    assert "list" in refused(lambda: loaded.predict(**said("x", Tools='{"name": "get_weather"}')))
    assert "JSON" in refused(lambda: loaded.predict(**said("x", Tools="[{")))
    named = '{"type": "function", "function": {"name": "get_tide"}}'
    assert "get_tide" in refused(lambda: loaded.predict(**with_tools(named)))
    assert "tools" in refused(lambda: loaded.predict(**said("x", ToolChoice="required")))
    assert "ToolChoice" in refused(lambda: loaded.predict(**with_tools("perhaps")))
    pieces += [reply.message for reply in stream]
    assert b"".join(pieces) == wanted


def test_GRAM_03_regex_and_choice_are_refused_by_name(engine):
    from vllm_backend.errors import BackendError

    for fields, word in (
        ({"regex": "(a"}, "Regular expression"),
        ({"regex": "a{3,2}"}, "Regular expression"),
        ({"choice": []}, "choice"),
        ({"choice": ["a"], "regex": "a"}, "constraint"),
        ({"structured_outputs": {"jsn": {}}}, "jsn"),
    ):
        for form in (user("x"), {"prompt": "x", "max_tokens": 4}):
            with pytest.raises(BackendError, match=word) as caught:
                Run(engine, **form, **fields)
            assert caught.value.code == grpc.StatusCode.INVALID_ARGUMENT


# ---- Metadata ----

SHOWS_THINKING = (
    "{{ raise_exception('thinking is ' ~ (enable_thinking if enable_thinking is defined else 'not said')"
    " ~ (' as a text' if enable_thinking is string else '')) }}"
)


def with_template(tiny, folder, template: str):
    """A copy of a tiny model with another chat template."""
    shutil.copytree(tiny / "qwen3", folder)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"chat_template": template}))
    return folder


def test_TPL_07_thinking_reaches_the_template_as_boolean(tiny, tmp_path):
    """And TPL-04: what a template raises is the refusal's text."""
    with Backend() as backend:
        client = backend.client
        client.load(with_template(tiny, tmp_path / "model", SHOWS_THINKING), ContextSize=128)

        def thinking(**metadata: str) -> str:
            text = refused(lambda: client.predict(**said("x", Metadata=metadata)))
            return re.search(r"thinking is (.*?)\.?$", text)[1]

        assert thinking() == "not said"
        assert thinking(enable_thinking="false") == "False"
        assert thinking(enable_thinking="true") == "True"
        assert thinking(chat_template_kwargs='{"enable_thinking": false}', enable_thinking="true") == "False"
        assert thinking(chat_template_kwargs="{broken", enable_thinking="false") == "False"
        assert thinking(chat_template_kwargs="[1]") == "not said"
        assert client.predict("x", Tokens=2, IgnoreEOS=True).tokens == 2  # a prompt of its own needs no template


def test_chat_template_kwargs_that_are_no_object_do_no_harm(loaded):
    for text in ("{", "[1]", "null", "word", "[" * 100_000):
        assert loaded.predict(**said(QUESTION, Metadata={"chat_template_kwargs": text})).message.decode() == ANSWER


def test_REAS_05_thoughts_are_free_and_the_answer_is_constrained(tiny, tmp_path):
    """A random model thinks until its budget ends that; then the grammar holds."""
    template = (
        "{{ messages[0].content }}\n<think>\n"
        "{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}"
    )
    folder = with_template(tiny, tmp_path / "model", template)
    fields = said("x", Grammar='root ::= "yes" | "no"', Tokens=60)
    with Backend() as backend:
        client = backend.client
        client.load(folder, ContextSize=128, Options=["reasoning_parser:qwen3"])
        _, content, reasoning, *_ = asked_both_ways(client, fields | {"Metadata": {"thinking_budget": "9"}})
        assert content.strip() in ("yes", "no") and reasoning
        _, content, reasoning, *_ = asked_both_ways(client, fields | {"Metadata": {"enable_thinking": "false"}})
        assert content in ("yes", "no") and not reasoning


def test_REAS_02_and_05_with_a_template_that_opens_a_thought(smollm2, tmp_path):
    """SmolLM2 knows no thinking: what it says is a thought until something closes that."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n<think>\n"
        "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}"
    )
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"chat_template": template}))
    off, budget = {"enable_thinking": "false"}, {"thinking_budget": "5"}
    with Backend() as backend:
        client = backend.client
        settings = {"tokenizer_config": str(config), "reasoning_parser": "qwen3"}
        client.load(smollm2, engine_args=settings)

        def ask(**fields) -> tuple:
            message, content, reasoning, _, tokens, _ = asked_both_ways(client, said(QUESTION, **fields))
            assert b"think>" not in message and "think>" not in reasoning
            return content, reasoning, tokens

        assert ask()[0] == ANSWER  # ended without a closing tag
        assert ask(Tokens=4) == ("", "The capital of France", 4)
        assert ask(Metadata=off)[:2] == (ANSWER, "")
        content, reasoning, _ = ask(Metadata=budget, Grammar=json.dumps(CITY), Tokens=300)
        check_city(strict_json(content))
        assert ANSWER.startswith(reasoning.strip()) and len(client.tokenize(reasoning)) == 5
        content, reasoning, _ = ask(Metadata=off, Grammar=json.dumps(CITY), Tokens=300)
        check_city(strict_json(content))
        assert not reasoning


def test_unknown_parsers_are_refused_at_load(smollm2):
    with Backend() as backend:
        names = (("tool_parser", "hermez", "hermes"), ("reasoning_parser", "deepseek-r1", "deepseek_r1"))
        for name, near, nearest in names:
            for word, hint in (("nonsense", ""), (near, f"; did you mean {nearest}?")):
                needed = f"{name} in options is '{word}'; it must be one of .*{nearest}.*{re.escape(hint)}$"
                with pytest.raises(BackendError, match=needed):
                    backend.client.load(smollm2, Options=[f"{name}:{word}"])
            assert backend.client.status()[0] == "UNINITIALIZED"
        backend.client.load(smollm2, engine_args={"tool_parser": "llama3_json", "reasoning_parser": "none"})
        message, _, _, calls, *_ = asked_both_ways(backend.client, with_tools("required", LogitBias='{"2": 50}'))
        assert message == b""
        check_weather(calls[0])


# ---- Jump-forward ----


def test_jump_forward_changes_no_answer(smollm2):
    work = [
        said("Describe a city as JSON.", Grammar=json.dumps(CITY), Tokens=200),
        said("Give me JSON about a cat.", Grammar=JSON_OBJECT, Tokens=60),
        said("Describe a city as JSON.", Grammar=FROM_SCHEMA, Tokens=100),
        with_tools('{"type": "function", "function": {"name": "get_weather"}}'),
    ]
    work += [fields | {"Temperature": 1.0, "Seed": seed} for fields in work for seed in (1, 2)]
    answers = {}
    for jump in (False, True):
        with Backend() as backend:
            backend.client.load(smollm2, engine_args={"enable_jump_forward": jump})
            answers[jump] = [joined([backend.client.predict(**fields)]) for fields in work]
    assert answers[True] == answers[False]
    assert all(tokens > 5 for *_, tokens, _ in answers[True])
