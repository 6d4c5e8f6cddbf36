"""What every request to DeepSeek-OCR holds, and what its server must be like."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from resources.recognition.vlm.deepseek.deepseek_images import TiledImage, TiledImage2
from resources.vllm.server_fields import VLLMServerFields

CONTEXT = 8192
"""Positions that the model was trained with; vLLM starts with no more."""
LOGITS_PROCESSOR = "resources.vllm.plugin.ngram_guard:NGramGuard"
"""The guard against loops that a server is to load."""
VLLM_LOGITS_PROCESSOR = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
"""vLLM's own, with the same results at more of the host's time: for a vLLM whose environment lacks this project."""
_FLAG = "--logits-processors"
_FIRST, _SECOND = "deepseek-ocr", "deepseek-ocr-2"
"""How the names of repositories and folders of the two generations are, or begin."""
RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""The environment that makes vLLM take its older model runner: the newer one refuses this logits processor."""

MARKDOWN = "<|grounding|>Convert the document to markdown."
"""The prompt that the authors read documents with; vLLM puts the image and a line break before it, as they do."""
SAMPLING: Mapping[str, Any] = MappingProxyType(
    {
        # The tags of grounding and of table cells are special tokens; skipped, a table's cells would run together.
        "skip_special_tokens": False,
        # The authors' own against loops: no 30 tokens twice among the last 90, but for <td> and </td>.
        "vllm_xargs": {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128_821, 128_822]},
    }
)


def image_kind(ocr2: bool) -> type[TiledImage]:
    """How a crop is sent to DeepSeek-OCR, or to DeepSeek-OCR-2."""
    return TiledImage2 if ocr2 else TiledImage


def check_server(server: VLLMServerFields, ocr2: bool = False) -> None:
    """Raise `ValueError` for a server that cannot serve the model, or serves it without its guard against loops."""
    name = Path(server.model).name.lower()
    if ocr2 and name == _FIRST:
        raise ValueError(f"ocr2: {server.model} is the first DeepSeek-OCR; leave ocr2 out, or serve DeepSeek-OCR-2")
    if not ocr2 and name.startswith(_SECOND):
        raise ValueError(f"ocr2: {server.model} has larger tiles than the first DeepSeek-OCR; set ocr2 to true")
    most = image_kind(ocr2).views.most_tokens
    if server.max_model_len > CONTEXT:
        raise ValueError(f"server.max_model_len: DeepSeek-OCR takes {CONTEXT} tokens, not {server.max_model_len}")
    if server.max_image_tokens < most:
        raise ValueError(f"server.max_image_tokens: {server.max_image_tokens} is less than the {most} of its images")
    guards = (LOGITS_PROCESSOR, VLLM_LOGITS_PROCESSOR)
    if server.mode == "managed" and not any(guard in flag for guard in guards for flag in server.extra_flags):
        raise ValueError(f"server.extra_flags: DeepSeek-OCR falls into loops without {_FLAG}={LOGITS_PROCESSOR}")
    if server.mode == "managed" and not RUNNER.items() <= server.env.items():
        raise ValueError(
            "server.env: vLLM's newer model runner refuses DeepSeek-OCR's logits processor; "
            'set VLLM_USE_V2_MODEL_RUNNER: "0"'
        )
