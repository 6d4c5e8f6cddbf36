"""The recognizer by PaddleOCR-VL on a model server."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Task
from kopub.recognition.vlm.client.paddle import (
    MAX_TOKENS,
    MIN_TOKENS,
    VERSION,
    clean,
    parts_needed,
    sized_image,
)
from kopub.recognition.vlm.client.reader import RequestSettings
from kopub.recognition.vlm.client.region_images import ImageMaker
from kopub.recognition.vlm.recognizer import VlmRecognizer, by_name
from kopub.vllm.served_engine import ModelMemory

_REMOTE_CODE = "--trust-remote-code"
_PROMPTS: Mapping[str, str] = MappingProxyType(
    {
        Task.TEXT: "OCR:",
        Task.TABLE: "Table Recognition:",
        Task.FORMULA: "Formula Recognition:",
        "chart": "Chart Recognition:",
        "seal": "Seal Recognition:",
    }
)


class PaddleOcrVlRecognizer(VlmRecognizer):
    """Reads regions with PaddleOCR-VL: text, tables as HTML, formulas as LaTeX; pictures become crops.

    Versions 1.5 and 1.6 differ only in their weights, which the pin chooses. Prompts, picture sizes and answer lengths
    are the authors' own (Cui et al., 2025, arXiv 2510.14528, and PaddleX 3.7). A chart whose task is `table` is read
    with the prompt for charts and becomes a table; a seal whose task is `text` is read with the prompt for seals.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "recognition.paddleocr_vl",
        {
            1: "the first release",
            2: "tags and signs printed in a table are text, a row without own cells stays; "
            "tables and formulas of which nothing is read are blank, captions of parts are words apart, "
            "several displays are the lines of one formula",
        },
    )
    clean_answer: ClassVar[Callable[[str, Task], str]] = staticmethod(clean)
    image_version: ClassVar[CodeVersion] = VERSION
    default_prompts: ClassVar[Mapping[Any, str]] = _PROMPTS
    # 18 layers of 2 heads of 128; an encoder of GLM-OCR's size.
    model_memory: ClassVar[ModelMemory | None] = ModelMemory(
        weights=1_920_000_000, cached_token=18_432, step_token=223_000
    )
    # The authors use this for every task, and it limits the cost of a runaway table.
    first_answer: ClassVar[int | None] = 4096
    limits: ClassVar[tuple[str, ...]] = (
        "PaddleOCR-VL sees a region at no more than a million pixels. Larger text and tables whose lines would become "
        "too small are read in strips from top to bottom; a cell that spans a cut is two cells.",
    )

    prompts: dict[str, str] = Field(
        default=by_name(_PROMPTS), description="The prompt of each task, and those of charts and seals."
    )
    least_line_height: int | None = Field(
        default=24,
        ge=8,
        description="Pixels that a line of text must keep, about the size of its type: a text or table so large that "
        "the model would see its lines smaller is read in parts, cut between lines, from top to bottom. 10 points have "
        "42 at 300 dpi, 24 at 170 dpi. null shrinks every region to the model's million pixels, as the authors do.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        server = self.server
        if server.max_image_tokens < MIN_TOKENS:
            raise ValueError(
                f"server.max_image_tokens: {server.max_image_tokens} is less than the {MIN_TOKENS} of the smallest "
                "picture of PaddleOCR-VL"
            )
        if any(_REMOTE_CODE in flag for flag in server.extra_flags):
            raise ValueError(
                f"server.extra_flags: with {_REMOTE_CODE} vLLM takes the Hub's own Python for PaddleOCR-VL, which does "
                "not load; leave it out"
            )
        return self

    def recipe(self) -> dict[str, Any]:
        return {**super().recipe(), "max_image_tokens": self.most_image_tokens()}

    def most_image_tokens(self) -> int:
        return min(MAX_TOKENS, self.server.max_image_tokens)

    def picture_settings(self) -> list[Any]:
        return [self.most_image_tokens(), self.least_line_height]

    def image_maker(self) -> ImageMaker:
        return partial(sized_image, max_tokens=self.most_image_tokens())

    def request_settings(self) -> RequestSettings:
        count = partial(parts_needed, max_tokens=self.most_image_tokens(), least_line=self.least_line_height)
        return replace(super().request_settings(), count_parts=count)
