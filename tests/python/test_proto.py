"""The wire contract against the facts of tests/fixtures/backend_proto.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2
from vllm_backend import backend_pb2

FACTS = json.loads((Path(__file__).parents[1] / "fixtures" / "backend_proto.json").read_text())
FILE = descriptor_pb2.FileDescriptorProto()
backend_pb2.DESCRIPTOR.CopyToProto(FILE)
Field = descriptor_pb2.FieldDescriptorProto
PREFIX = ".backend."


def described(message: descriptor_pb2.DescriptorProto) -> dict[str, Any]:
    """A message as the fixture writes it."""
    maps = {entry.name: entry for entry in message.nested_type if entry.options.map_entry}
    fields = []
    for field in message.field:
        kind = Field.Type.Name(field.type).removeprefix("TYPE_").lower()
        entry = maps.get(field.type_name.rsplit(".", 1)[-1]) if kind == "message" else None
        if entry is not None:
            key, value = (Field.Type.Name(part.type).removeprefix("TYPE_").lower() for part in entry.field)
            fields.append(
                {"name": field.name, "number": field.number, "label": "map", "key_type": key, "value_type": value}
            )
            continue
        label = "optional" if field.proto3_optional else "singular"
        if field.label == Field.LABEL_REPEATED:
            label = "repeated"
        facts = {"name": field.name, "number": field.number, "label": label}
        facts["type"] = field.type_name.removeprefix(PREFIX) if kind in ("message", "enum") else kind
        facts["kind"] = kind if kind in ("message", "enum") else "scalar"
        if field.HasField("oneof_index") and not field.proto3_optional:
            facts["oneof"] = message.oneof_decl[field.oneof_index].name
        fields.append(facts)
    facts_of_message: dict[str, Any] = {"fields": fields}
    if message.reserved_range:
        facts_of_message["reserved"] = [[part.start, part.end - 1] for part in message.reserved_range]
    return facts_of_message


def test_file_and_options() -> None:
    assert (FILE.name, FILE.package, FILE.syntax) == (FACTS["file"], FACTS["package"], FACTS["syntax"])
    options = {field.name: value for field, value in FILE.options.ListFields()}
    assert options == FACTS["options"]


def test_every_message_field_and_label() -> None:
    found: dict[str, Any] = {}

    def walk(messages: Any, prefix: str) -> None:
        for message in messages:
            if not message.options.map_entry:
                found[prefix + message.name] = described(message)
                walk(message.nested_type, f"{prefix}{message.name}.")

    walk(FILE.message_type, "")
    by_number = {
        name: {**facts, "fields": sorted(facts["fields"], key=lambda field: field["number"])}
        for name, facts in FACTS["messages"].items()
    }
    assert sorted(found) == sorted(by_number)
    for name, facts in found.items():
        facts["fields"].sort(key=lambda field: field["number"])
        assert facts == by_number[name], name
    assert len(found) == FACTS["counts"]["messages"]


def test_every_enum() -> None:
    enums = {enum.name: enum for enum in FILE.enum_type}
    enums |= {f"{message.name}.{enum.name}": enum for message in FILE.message_type for enum in message.enum_type}
    assert {name: {v.name: v.number for v in enum.value} for name, enum in enums.items()} == FACTS["enums"]


def test_every_rpc() -> None:
    (service,) = FILE.service
    (facts,) = FACTS["services"]
    assert service.name == facts["name"]
    found = [
        {
            "name": method.name,
            "path": f"/{FILE.package}.{service.name}/{method.name}",
            "request": method.input_type.removeprefix(PREFIX),
            "response": method.output_type.removeprefix(PREFIX),
            "client_streaming": method.client_streaming,
            "server_streaming": method.server_streaming,
        }
        for method in service.method
    ]
    assert found == facts["rpcs"]
