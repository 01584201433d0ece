"""python -m vllm_backend serve [MODEL]: the gRPC server started by hand, with a model if one is named."""

from __future__ import annotations

from vllm_backend import command_line, server


def main(arguments: list[str]) -> int:
    parser = command_line.parser_for(
        "serve",
        "Serves LocalAI's gRPC contract. With MODEL it is loaded at once; else the first LoadModel names one.",
        model_needed=False,
    )
    parser.add_argument("--addr", default="127.0.0.1:50051", metavar="HOST:PORT", help="address to serve on")
    parsed = parser.parse_args(arguments)
    return server.run(parsed.addr, command_line.model_options(parsed))
