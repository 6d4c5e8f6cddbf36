"""Measure the host cost of DeepSeek-OCR's guard against loops: vLLM's own and the plugin's.

    PYTHONPATH=. PYTHON_OF_VLLM benchmarks/servers/ngram_guard.py [--requests N] [--tokens N]

It uses made-up answers of `tokens` tokens, on one core of a CPU, without a model or a server. Both guards take turns
with the same steps, and must leave the same logits. The medians of thread CPU time are reported; with a GPU, the card
writes the logits.
"""

import argparse
import itertools
import random
import statistics
import time
from collections.abc import Callable, Iterator

import torch
from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate

from kopub.vllm.plugin.ngram_guard import NGramGuard

VOCABULARY = 129_280
CELL, CELL_END = 128_821, 128_822
ASKED = {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [CELL, CELL_END]}
"""The guard's options in every request of the platform."""
STEPS = 40
GUARDS = {"vLLM's own": NGramPerReqLogitsProcessor, "the plugin's": NGramGuard}

Tokens = Iterator[int]


def prose(draw: random.Random) -> Tokens:
    """Yield words as frequent as in texts: first 7 % of all, second half that."""
    ranks = range(1, 20_000)
    weights = list(itertools.accumulate(1 / rank for rank in ranks))
    while True:
        yield from draw.choices(ranks, cum_weights=weights, k=500)


def table(draw: random.Random) -> Tokens:
    """Yield cells of one or two tokens of numbers, between their tags."""
    while True:
        yield from (CELL, *(draw.randrange(1000) for _ in range(draw.randint(1, 2))), CELL_END)


def loop(draw: random.Random) -> Tokens:
    """Repeat ten tokens, so that every request bans one in every step."""
    return itertools.cycle([draw.randrange(VOCABULARY) for _ in range(10)])


def step_milliseconds(requests: int, tokens: int, write: Callable[[random.Random], Tokens]) -> dict[str, list[float]]:
    """Return the CPU milliseconds of every step by guard; raise if their logits differ."""
    streams = [write(random.Random(number)) for number in range(requests)]
    answers = [list(itertools.islice(stream, tokens - STEPS)) for stream in streams]
    params = SamplingParams(extra_args=dict(ASKED))
    added = [(row, params, None, answer) for row, answer in enumerate(answers)]
    guards = {name: kind(None, torch.device("cpu"), False) for name, kind in GUARDS.items()}
    for guard in guards.values():
        guard.update_state(BatchUpdate(requests, [], added, []))
    spent: dict[str, list[float]] = {name: [] for name in guards}
    logits = {name: torch.zeros(requests, VOCABULARY) for name in guards}
    for _ in range(STEPS):
        for name, guard in guards.items():
            logits[name].zero_()
            began = time.thread_time()
            guard.update_state(None)
            guard.apply(logits[name])
            spent[name].append((time.thread_time() - began) * 1000)
        if not torch.equal(*logits.values()):
            raise SystemExit("the guards ban different tokens")
        for answer, stream in zip(answers, streams, strict=True):
            answer.append(next(stream))
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=192)
    parser.add_argument("--tokens", type=int, default=1500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{options.requests} requests of {options.tokens} tokens, CPU milliseconds of a step (median of {STEPS})")
    for write in (prose, table, loop):
        spent = step_milliseconds(options.requests, options.tokens, write)
        theirs, ours = (statistics.median(spent[name]) for name in GUARDS)
        print(f"{write.__name__:6} vLLM's own {theirs:7.2f}  the plugin's {ours:6.2f}  {theirs / ours:5.1f} times")


if __name__ == "__main__":
    main()
