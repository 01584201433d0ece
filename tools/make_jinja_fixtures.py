"""Makes tests/fixtures/jinja/: what jinja2, set up as in transformers, makes of templates of ours and of two real ones.

    python tools/make_jinja_fixtures.py

Needs jinja2 and gguf; fetches the SmolLM2 model and the Qwen3 tokenizer (both Apache-2.0) for their templates. The
output depends on nothing else.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jinja_cases
import jinja_oracle
from gguf import GGUFReader
from jinja_chat_templates import CHATS
from jinja_conversations import conversations
from models import fetch

OUT = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "jinja"


def case(template: str, context: dict[str, Any]) -> dict[str, Any]:
    result = jinja_oracle.render(template, context)
    if "error" in result:
        result["error"] = result["error"].split(":")[0]  # the type: texts differ by version
    return result


def expressions() -> dict[str, Any]:
    rows = []
    for expression in jinja_cases.EXPRESSIONS:
        rows.append({"expression": expression, **case("{{ " + expression + " }}", jinja_cases.CONTEXT)})
    return {"context": jinja_cases.CONTEXT, "cases": rows}


def templates() -> list[dict[str, Any]]:
    rows = []
    for name, (template, contexts) in jinja_cases.TEMPLATES.items():
        cases = [{"context": context, **case(template, context)} for context in contexts]
        rows.append({"name": name, "template": template, "cases": cases})
    return rows


def real(template: str, with_tools: bool) -> dict[str, Any]:
    cases = []
    for context in conversations():
        if context["tools"] and not with_tools:
            continue
        result = jinja_oracle.render(template, context)
        assert "error" not in result, result
        cases.append({"context": context, **result})
    return {"template": template, "cases": cases}


def chats() -> dict[str, Any]:
    """Some conversations; tests/python/test_jinja.py renders them all."""
    contexts = list(conversations())[5::17]
    assert any(context["tools"] for context in contexts) and any(not context["tools"] for context in contexts)
    rows = []
    for name, template in CHATS.items():
        rows.append({"name": name, "template": template, "results": [case(template, one) for one in contexts]})
    return {"contexts": contexts, "cases": rows}


def one_case_a_line(content: Any) -> str:
    def rows(items: list[Any]) -> str:
        return "[\n" + ",\n".join(json.dumps(item, ensure_ascii=False) for item in items) + "\n]"

    if isinstance(content, list):
        return rows(content) + "\n"
    members = (
        f"{json.dumps(key)}: {rows(value) if key == 'cases' else json.dumps(value, ensure_ascii=False)}"
        for key, value in content.items()
    )
    return "{\n" + ",\n".join(members) + "\n}\n"


def main() -> None:
    reader = GGUFReader(fetch("smollm2"))
    smollm2 = reader.fields["tokenizer.chat_template"].contents()
    qwen3 = json.loads((fetch("qwen3-tokenizer") / "tokenizer_config.json").read_text("utf-8"))["chat_template"]
    OUT.mkdir(parents=True, exist_ok=True)
    files = {
        "expressions": expressions(),
        "templates": templates(),
        "chats": chats(),
        "smollm2": real(smollm2, False),
        "qwen3": real(qwen3, True),
    }
    for name, content in files.items():
        (OUT / f"{name}.json").write_text(one_case_a_line(content), "utf-8")


if __name__ == "__main__":
    main()
