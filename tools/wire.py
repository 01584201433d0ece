"""The messages of LocalAI's contract, built from the facts in tests/fixtures/backend_proto.json.

They do not come from backend.proto or the stubs made of it, so that a client of these speaks what LocalAI speaks even
where ours were wrong.
"""

import json
from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FACTS = json.loads(
    (Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "backend_proto.json").read_text(encoding="utf-8")
)
_FIELD = descriptor_pb2.FieldDescriptorProto
PACKAGE = _FACTS["package"]


def _scalar(field, kind: str) -> None:
    field.type = getattr(_FIELD, f"TYPE_{kind.upper()}")


def _place(file, name: str):
    """The descriptor that a dotted enum name is nested in, and its own last part."""
    *outer, last = name.split(".")
    scope = file
    for part in outer:
        found = [m for m in (scope.message_type if scope is file else scope.nested_type) if m.name == part]
        scope = found[0]
    return scope, last


def _build():
    file = descriptor_pb2.FileDescriptorProto(name="localai_wire.proto", package=PACKAGE, syntax="proto3")
    for name in _FACTS["messages"]:
        file.message_type.add(name=name)
    for name, values in _FACTS["enums"].items():
        scope, last = _place(file, name)
        enum = scope.enum_type.add(name=last)
        for label, number in sorted(values.items(), key=lambda item: item[1] != 0):  # proto3 wants 0 first
            enum.value.add(name=label, number=number)
    for message, (name, facts) in zip(file.message_type, _FACTS["messages"].items(), strict=True):
        for fact in facts["fields"]:
            field = message.field.add(name=fact["name"], number=fact["number"], label=_FIELD.LABEL_OPTIONAL)
            if fact["label"] == "map":
                entry = message.nested_type.add(name=_entry_name(fact["name"]))
                entry.options.map_entry = True
                for number, part in enumerate(("key", "value"), 1):
                    _scalar(
                        entry.field.add(name=part, number=number, label=_FIELD.LABEL_OPTIONAL), fact[f"{part}_type"]
                    )
                field.label = _FIELD.LABEL_REPEATED
                field.type = _FIELD.TYPE_MESSAGE
                field.type_name = f".{PACKAGE}.{name}.{entry.name}"
                continue
            if fact["label"] == "repeated":
                field.label = _FIELD.LABEL_REPEATED
            if fact["kind"] == "scalar":
                _scalar(field, fact["type"])
            else:
                field.type = _FIELD.TYPE_MESSAGE if fact["kind"] == "message" else _FIELD.TYPE_ENUM
                field.type_name = f".{PACKAGE}.{fact['type']}"
            if fact["label"] == "optional":
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{fact['name']}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _FACTS["messages"]
    }


def _entry_name(field: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"


MESSAGES = _build()
RPCS = {rpc["name"]: rpc for rpc in _FACTS["services"][0]["rpcs"]}
STATES = {number: name for name, number in _FACTS["enums"]["StatusResponse.State"].items()}
