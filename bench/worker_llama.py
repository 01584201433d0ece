#!/usr/bin/env python3
"""One run of the workload on llama.cpp through the C calls of llama-cpp-python. Started by run.py."""

import argparse
import ctypes
import os
import time

import llama_cpp
import numpy as np
import workload

BATCH = 2048


class Context:
    """Up to 16 sequences with a greedy token each; its own default settings but for sizes and threads."""

    def __init__(self, path: str, threads: int):
        null = os.open(os.devnull, os.O_WRONLY)
        saved = os.dup(2)
        os.dup2(null, 2)  # it writes its log there
        llama_cpp.llama_backend_init()
        self._model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        if not self._model:
            os.dup2(saved, 2)
            raise SystemExit(f"worker_llama: llama.cpp cannot load {path}")
        self.vocabulary = llama_cpp.llama_n_vocab(llama_cpp.llama_model_get_vocab(self._model))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = workload.POOL, BATCH, 16
        params.n_threads = params.n_threads_batch = threads
        params.kv_unified = True
        self._context = llama_cpp.llama_init_from_model(self._model, params)
        os.dup2(saved, 2)
        if not self._context:
            raise SystemExit(f"worker_llama: llama.cpp makes no context for {path}")
        self._batch = llama_cpp.llama_batch_init(BATCH, 0, 16)

    def clear(self) -> None:
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), True)

    def step(self, rows: list[tuple[int, int, int, bool]]) -> list[int]:
        """Computes rows of (token, position, sequence, wants logits); the best token of those that want."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for index, (token, position, sequence, wants) in enumerate(rows):
            batch.token[index], batch.pos[index] = token, position
            batch.n_seq_id[index], batch.seq_id[index][0] = 1, sequence
            batch.logits[index] = wants
        if llama_cpp.llama_decode(self._context, batch) != 0:
            raise SystemExit("worker_llama: llama_decode failed")
        best = []
        for index, row in enumerate(rows):
            if row[3]:
                logits = llama_cpp.llama_get_logits_ith(self._context, index)
                values = np.ctypeslib.as_array(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float)), (self.vocabulary,))
                best.append(int(values.argmax()))
        return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    arguments = parser.parse_args()
    before = workload.resident()
    started = time.perf_counter()
    context = Context(arguments.model, arguments.threads)
    context.step([(1000, 0, 0, True)])
    load_seconds = time.perf_counter() - started

    def begin(prompts: list[list[int]]) -> list[int]:
        """Feeds the prompts in as few batches as they fit into; the first token of each."""
        context.clear()
        rows = [
            (token, position, sequence, position == len(prompt) - 1)
            for sequence, prompt in enumerate(prompts)
            for position, token in enumerate(prompt)
        ]
        return [token for at in range(0, len(rows), BATCH) for token in context.step(rows[at : at + BATCH])]

    def continue_all(tokens: list[int], position: int, steps: int) -> None:
        for _ in range(steps):
            tokens = context.step([(token, position, sequence, True) for sequence, token in enumerate(tokens)])
            position += 1

    def prefill(length: int, seed: int) -> float:
        prompt = workload.prompt(length, context.vocabulary, seed)
        start = time.perf_counter()
        begin([prompt])
        return length / (time.perf_counter() - start)

    def decode(tokens: int, seed: int) -> float:
        first = begin([workload.prompt(workload.PROMPT, context.vocabulary, seed)])
        start = time.perf_counter()
        continue_all(first, workload.PROMPT, tokens - 1)
        return (tokens - 1) / (time.perf_counter() - start)

    def streams(count: int, seed: int) -> float:
        prompts = [workload.prompt(workload.PROMPT, context.vocabulary, 1000 * seed + n) for n in range(count)]
        start = time.perf_counter()
        continue_all(begin(prompts), workload.PROMPT, workload.STREAM_TOKENS - 1)
        return count * workload.STREAM_TOKENS / (time.perf_counter() - start)

    workload.report(
        load_seconds, prefill, decode, streams, before, f"llama.cpp (llama-cpp-python {llama_cpp.__version__})"
    )


if __name__ == "__main__":
    main()
