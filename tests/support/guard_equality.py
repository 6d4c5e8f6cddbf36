"""Compare the plugin's n-gram guard with vLLM's own on changing batches; run by vLLM's interpreter."""

from random import Random
from typing import Any

import torch
from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

from kopub.vllm.plugin.ngram_guard import NGramGuard

VOCABULARY = 12
MOST = 8
STEPS = 400
REFUSED: tuple[dict[str, Any], ...] = (
    {},
    {"ngram_size": 0},
    {"ngram_size": "30"},
    {"ngram_size": 30, "window_size": -1},
    {"ngram_size": 30, "window_size": 9.5},
    {"ngram_size": 30, "whitelist_token_ids": 5},
)
TAKEN: tuple[dict[str, Any] | None, ...] = (None, {"window_size": 0}, {"ngram_size": 30, "whitelist_token_ids": [5]})


def compared() -> dict[str, Any]:
    """Return the counts of differing steps and banned tokens, and both guards' validation errors."""
    draw = Random(0)
    theirs, ours = (kind(None, torch.device("cpu"), False) for kind in (NGramPerReqLogitsProcessor, NGramGuard))  # type: ignore[arg-type]
    batch: list[list[int]] = []
    different = banned = 0
    for _ in range(STEPS):
        update = _changed(draw, batch)
        before = torch.zeros(len(batch), VOCABULARY)
        expected, found = before.clone(), before.clone()
        for guard, logits in ((theirs, expected), (ours, found)):
            guard.update_state(update)
            guard.apply(logits)
        different += not torch.equal(expected, found)
        banned += int((found != before).sum())
        for tokens in batch:
            # vLLM puts -1 for a token that is not sampled yet, and replaces it in place later.
            if tokens and tokens[-1] == -1 and draw.random() < 0.8:
                tokens[-1] = draw.randrange(3)
            tokens.append(draw.choice([0, 1, 2, 2, 2, -1]))
    said = [[_refusal(kind, values) for kind in (NGramPerReqLogitsProcessor, NGramGuard)] for values in REFUSED + TAKEN]
    return {"different": different, "banned": banned, "said": said}


def _changed(draw: Random, batch: list[list[int]]) -> BatchUpdate | None:
    """Return a random change as vLLM makes it (requests leave, join or swap), or None."""
    removed, added, moved = [], [], []
    if len(batch) == MOST and draw.random() < 0.2:
        gone, last = draw.randrange(MOST), MOST - 1
        removed.append(gone)
        batch[gone] = batch[last]
        batch.pop()
        if gone != last:
            moved.append((last, gone, MoveDirectionality.UNIDIRECTIONAL))
    elif len(batch) < MOST and draw.random() < 0.4:
        size = draw.choice([None, 1, 2, 3, 3, 4, 6])
        asked = {"ngram_size": size, "window_size": draw.choice([2, 5, 20, 60]), "whitelist_token_ids": [1]}
        if draw.random() < 0.5:
            asked = {"ngram_size": size}
        # A request that resumes after preemption has tokens already.
        batch.append([draw.randrange(3) for _ in range(draw.choice([0, 0, 30]))])
        added.append((len(batch) - 1, SamplingParams(extra_args=asked), None, batch[-1]))
    elif len(batch) > 1 and draw.random() < 0.2:
        first, second = draw.sample(range(len(batch)), 2)
        batch[first], batch[second] = batch[second], batch[first]
        moved.append((first, second, MoveDirectionality.SWAP))
    if not (removed or added or moved):
        return None
    return BatchUpdate(len(batch), removed, added, moved)


def _refusal(kind: type[NGramPerReqLogitsProcessor], values: dict[str, Any] | None) -> str:
    try:
        kind.validate_params(SamplingParams(extra_args=values))
    except ValueError as error:
        return str(error)
    return ""
