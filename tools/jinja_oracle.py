"""jinja2 set up as transformers compiles chat templates: what our interpreter is compared with."""

from __future__ import annotations

import copy
import json
import warnings
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

NOW = datetime(2024, 7, 26, 9, 5, 3)


class Raised(jinja2.TemplateError):
    """What raise_exception raises; its text stands alone."""


class Generation(Extension):
    """{% generation %}...{% endgeneration %} renders its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.CallBlock:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller: Any) -> str:
        return caller()


class ChatNamespace(Namespace):
    """Takes no attribute with an underscore in front."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        values = dict(*rest, **kwargs)
        for name in values:
            ChatNamespace.check(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        ChatNamespace.check(name)
        Namespace.__setitem__(self, name, value)

    @staticmethod
    def check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)


class ChatDict:
    def __call__(self, *args: Any, **kwargs: Any) -> dict:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict:
        return dict.fromkeys(*args, **kwargs)


def raise_exception(message: Any) -> None:
    raise Raised(message)


def tojson(
    value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def make_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals.update(
        raise_exception=raise_exception,
        strftime_now=lambda format: NOW.strftime(format),
        dict=ChatDict(),
        namespace=ChatNamespace,
    )
    del environment.globals["lipsum"]
    return environment


ENVIRONMENT = make_environment()


@lru_cache(maxsize=16)
def compiled(template: str) -> jinja2.Template:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Python about the code that jinja2 makes
        return ENVIRONMENT.from_string(template)


def render(template: str, context: dict[str, Any]) -> dict[str, str]:
    """{"text": ...}, {"raised": the text of raise_exception} or {"error": ...}."""
    try:
        text = compiled(template).render(copy.deepcopy(context))  # indent changes a list that it gets
        text.encode()
        return {"text": text}
    except Raised as error:
        return {"raised": str(error)}
    except Exception as error:  # jinja2 lets any error of Python through
        return {"error": f"{type(error).__name__}: {error}"}
