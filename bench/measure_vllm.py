#!/usr/bin/env python3
"""Measures a group of figures on vLLM's CPU build and prints them as JSON. Started by run.py in vLLM's environment."""

import argparse
import json
import os
import threading
import time
import uuid

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("group")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", f"0-{arguments.threads - 1}")

    import asyncio

    import workload
    from vllm import AsyncEngineArgs, SamplingParams
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    out = os.dup(1)
    os.dup2(2, 1)
    engine = AsyncLLM.from_engine_args(
        AsyncEngineArgs(model=arguments.model, dtype="bfloat16", max_model_len=4096, max_num_seqs=workload.CLIENTS)
    )
    vocabulary = 40000

    async def run(prompt, tokens: int) -> tuple[int, float, float]:
        """Tokens of prompt and output, times of the first and the last."""
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, output_kind=RequestOutputKind.DELTA)
        first = count = 0
        if not isinstance(prompt, str):
            prompt = {"prompt_token_ids": prompt}
        async for output in engine.generate(prompt, params, uuid.uuid4().hex):
            first = first or time.perf_counter()
            count += len(output.outputs[0].token_ids)
            total = count + len(output.prompt_token_ids)
        return total, first, time.perf_counter()

    async def speed(seed: int) -> dict:
        def ids(length: int, number: int) -> list[int]:
            return workload.token_ids(length, vocabulary, number)

        await run(ids(8, 1), 8)
        await run(ids(2000, seed + 1), 1)  # unmeasured, as for the others
        figures = {}
        for length, number in ((512, 2), (2000, 3)):
            begin = time.perf_counter()
            figures[f"prefill {length}"] = length / ((await run(ids(length, seed + number), 1))[2] - begin)
        _, first, last = await run(ids(workload.PROMPT, seed + 4), workload.DECODE)
        figures["decode"] = (workload.DECODE - 1) / (last - first)
        for streams, number in ((4, 5), (16, 6)):
            begin = time.perf_counter()
            prompts = [ids(workload.PROMPT, 1000 * (seed + number) + n) for n in range(streams)]
            await asyncio.gather(*(run(prompt, workload.STREAM_TOKENS) for prompt in prompts))
            figures[f"streams {streams}"] = streams * workload.STREAM_TOKENS / (time.perf_counter() - begin)
        return figures

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()

    def wait(coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()

    def send(prompt: str, tokens: int) -> tuple[int, float]:
        return wait(run(prompt, tokens))[:2]

    if arguments.group == "speed":
        figures = wait(speed(100 * arguments.seed))
    else:
        figures = workload.served(arguments.group, send, arguments.seed)
    os.write(out, (json.dumps(figures) + "\n").encode())
    engine.shutdown()  # ends its other processes, which would go on computing beside what is measured next
    os._exit(0)


if __name__ == "__main__":
    main()
