#!/usr/bin/env python3
"""Calls a running backend by hand; needs nothing but its address, since the server describes itself (reflection).

client.py HOST:PORT                      the services and their calls
client.py HOST:PORT RPC                  the fields of a call's request
client.py HOST:PORT RPC '{"Field": 1}'   calls it and prints each answer as JSON
"""

import argparse
import json
import os
import sys

try:
    import grpc
    from google.protobuf import descriptor_pool, json_format, message_factory
    from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
except ImportError as missing:
    sys.exit(f"client: {missing}; run ./install.sh and use venv/bin/python")

MESSAGE_LIMIT = 50 * 1024 * 1024


class Refused(Exception):
    """What is wrong with the arguments, in one sentence."""


def methods(channel) -> dict:
    """RPC name to descriptor; a name of several services goes to the first that is not of gRPC itself."""
    database = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)
    found: dict = {}
    for service in sorted(database.get_services(), key=lambda name: name.startswith("grpc.")):
        for method in pool.FindServiceByName(service).methods:
            found.setdefault(method.name, method)
    return found


def kind(field) -> str:
    names = {number: name for name, number in vars(type(field)).items() if name.startswith("TYPE_")}
    name = (
        (field.message_type or field.enum_type).name
        if field.message_type or field.enum_type
        else names[field.type].removeprefix("TYPE_").lower()
    )
    return f"{name}[]" if field.is_repeated else name


def call(channel, method, text: str) -> None:
    if method.client_streaming:
        raise Refused(f"{method.name} takes a stream of requests, which this client does not send")
    try:
        fields = json.loads(text)
        request = json_format.ParseDict(fields, message_factory.GetMessageClass(method.input_type)())
    except (ValueError, json_format.ParseError) as error:
        raise Refused(f"the request is not JSON of a {method.input_type.name}: {str(error).splitlines()[0]}") from error
    make = channel.unary_stream if method.server_streaming else channel.unary_unary
    stub = make(
        f"/{method.containing_service.full_name}/{method.name}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
    )
    answers = stub(request)
    for answer in answers if method.server_streaming else [answers]:
        print(json.dumps(readable(answer), ensure_ascii=False), flush=True)


def readable(message) -> dict:
    """As JSON, with bytes that are UTF-8 shown as text instead of base64."""
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    for field, value in message.ListFields():
        if field.type == field.TYPE_BYTES and not field.is_repeated:
            try:
                fields[field.name] = value.decode("utf-8")
            except UnicodeDecodeError:
                continue
    return fields


def run(arguments) -> None:
    options = [("grpc.max_send_message_length", MESSAGE_LIMIT), ("grpc.max_receive_message_length", MESSAGE_LIMIT)]
    with grpc.insecure_channel(arguments.address, options=options) as channel:
        known = methods(channel)
        if arguments.rpc is None:
            for method in known.values():
                stream = "stream " if method.server_streaming else ""
                print(f"{method.full_name}({method.input_type.name}) -> {stream}{method.output_type.name}")
            return
        method = known.get(arguments.rpc)
        if method is None:
            raise Refused(f"the server has no call {arguments.rpc}; without one this client lists what it has")
        if arguments.request is None and method.input_type.fields:
            for field in method.input_type.fields:
                print(f"{field.name}: {kind(field)}")
            return
        call(channel, method, arguments.request or "{}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("rpc", nargs="?", metavar="RPC")
    parser.add_argument("request", nargs="?", metavar="JSON")
    try:
        run(parser.parse_args())
    except Refused as error:
        print(f"client: {error}", file=sys.stderr)
        return 1
    except grpc.RpcError as error:
        print(f"client: {error.code().name}: {error.details()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader, head for one, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


if __name__ == "__main__":
    sys.exit(main())
