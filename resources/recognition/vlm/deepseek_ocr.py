"""A GPU recognizer: DeepSeek-OCR on a model server."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from resources.code_version import CodeVersion
from resources.layout.regions import Task
from resources.recognition.vlm.deepseek_answers import clean
from resources.recognition.vlm.deepseek_images import MAX_TOKENS, VERSION, tiled_image
from resources.recognition.vlm.recognizer import VlmRecognizer, by_name
from resources.recognition.vlm.region_images import ImageMaker

_CONTEXT = 8192
"""Positions that the model was trained with; vLLM starts with no more."""
LOGITS_PROCESSOR = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
_FLAG = "--logits-processors"
RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""The environment that makes vLLM take its older model runner: the newer one refuses this logits processor."""

# vLLM puts the image and a line break before the prompt, as the authors do. The authors read documents with the
# prompt for grounded markdown: its tables are HTML, its formulas LaTeX.
_MARKDOWN = "<|grounding|>Convert the document to markdown."
_PROMPTS: Mapping[Task, str] = MappingProxyType(
    {Task.TEXT: "Free OCR.", Task.TABLE: _MARKDOWN, Task.FORMULA: _MARKDOWN}
)
_SAMPLING: Mapping[str, Any] = MappingProxyType(
    {
        # The tags of grounding and of table cells are special tokens; skipped, a table's cells would run together.
        "skip_special_tokens": False,
        # The authors' own against loops: no 30 tokens twice among the last 90, but for <td> and </td>.
        "vllm_xargs": {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128_821, 128_822]},
    }
)


class DeepSeekOcrRecognizer(VlmRecognizer):
    """Reads regions with DeepSeek-OCR: text, tables as HTML, formulas as LaTeX; pictures are kept as crops.

    Prompts, images and sampling are the authors' own (Wei et al., 2025, arXiv 2510.18234). The
    server must run with the logits processor that keeps the model out of loops; whether an external
    server does cannot be checked.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.deepseek_ocr", {1: "the first release"})
    image_version: ClassVar[CodeVersion] = VERSION
    default_prompts: ClassVar[Mapping[Task, str]] = _PROMPTS
    default_sampling: ClassVar[Mapping[str, Any]] = _SAMPLING
    limits: ClassVar[tuple[str, ...]] = (
        "A region is seen at 1024 pixels and in at most six tiles of 640, A4 at about 155 dpi: "
        "smaller print of a region that fills the page is not read well.",
        "A table too long for an answer is read in strips from top to bottom; a cell that spans a cut is two cells.",
    )

    prompts: dict[str, str] = Field(default=by_name(_PROMPTS), description="The prompt of each task.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        server = self.server
        if server.max_model_len > _CONTEXT:
            raise ValueError(f"server.max_model_len: DeepSeek-OCR takes {_CONTEXT} tokens, not {server.max_model_len}")
        if server.max_image_tokens < MAX_TOKENS:
            raise ValueError(
                f"server.max_image_tokens: {server.max_image_tokens} is less than the {MAX_TOKENS} of its images"
            )
        if server.mode == "managed" and not any(LOGITS_PROCESSOR in flag for flag in server.extra_flags):
            raise ValueError(f"server.extra_flags: DeepSeek-OCR falls into loops without {_FLAG}={LOGITS_PROCESSOR}")
        if server.mode == "managed" and not RUNNER.items() <= server.env.items():
            raise ValueError(
                "server.env: vLLM's newer model runner refuses DeepSeek-OCR's logits processor; "
                'set VLLM_USE_V2_MODEL_RUNNER: "0"'
            )
        return self

    def most_image_tokens(self) -> int:
        return MAX_TOKENS

    def image_maker(self) -> ImageMaker:
        return tiled_image

    def answer_cleaner(self) -> Callable[[str, Task], str]:
        return clean
