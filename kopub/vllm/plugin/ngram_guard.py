"""DeepSeek-OCR's guard against loops for vLLM, cheaper for the host than vLLM's own.

vLLM's guard compares every n-gram of the window for each request and token, and handles each request's row of logits,
even without banned tokens. Here a request's window is searched for its last token, and the logits are written at most
once per step. The parameters of a request and their validation are vLLM's.
"""

import math

import numpy as np
import torch  # noqa: TID253 - a logits processor's module is only imported by the server
from vllm.config import VllmConfig  # noqa: TID253
from vllm.model_executor.models.deepseek_ocr import (  # noqa: TID253
    NGramPerReqLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
)
from vllm.sampling_params import SamplingParams  # noqa: TID253
from vllm.v1.sample.logits_processor import BatchUpdate  # noqa: TID253
from vllm.v1.sample.logits_processor.builtin import process_dict_updates  # noqa: TID253

from kopub.vllm.plugin import find_repeating
from kopub.vllm.plugin.encoder_steps import on_device

_Guarded = tuple[NoRepeatNGramLogitsProcessor, list[int]]
"""The parameters of a request, and the tokens of its answer: the very list to which vLLM appends."""


class NGramGuard(NGramPerReqLogitsProcessor):
    """The logits processor of all requests of a server; those without `ngram_size` are not guarded."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._guarded: dict[int, _Guarded] = {}

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Add or remove requests, or move them to another row of the batch."""
        process_dict_updates(self._guarded, batch_update, self._new_guarded)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Set the `logits` (requests, vocabulary) of tokens that repeat an n-gram to minus infinity."""
        rows: list[int] = []
        columns: list[int] = []
        for row, (asked, tokens) in self._guarded.items():
            banned = find_repeating(tokens, asked.ngram_size, asked.window_size, asked.whitelist_token_ids)
            rows += [row] * len(banned)
            columns += banned
        if rows:
            places = on_device(np.array([rows, columns]), logits.device)
            logits[places[0], places[1]] = -math.inf
        return logits

    def _new_guarded(self, params: SamplingParams, _prompt: list[int] | None, tokens: list[int]) -> _Guarded | None:
        asked = self.new_req_logits_processor(params)
        return (asked, tokens) if isinstance(asked, NoRepeatNGramLogitsProcessor) else None
