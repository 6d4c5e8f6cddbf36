"""A GPU recognizer: DeepSeek-OCR on a model server."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from resources.code_version import CodeVersion
from resources.layout.regions import Task
from resources.recognition.vlm.deepseek.deepseek_answers import clean
from resources.recognition.vlm.deepseek.deepseek_images import VERSION, tiled_image
from resources.recognition.vlm.deepseek.deepseek_server import MARKDOWN, SAMPLING, check_server, image_kind
from resources.recognition.vlm.recognizer import VlmRecognizer, by_name
from resources.recognition.vlm.region_images import ImageMaker

_PROMPTS: Mapping[Task, str] = MappingProxyType(
    # The tables of grounded markdown are HTML, its formulas LaTeX.
    {Task.TEXT: "Free OCR.", Task.TABLE: MARKDOWN, Task.FORMULA: MARKDOWN}
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
    default_sampling: ClassVar[Mapping[str, Any]] = SAMPLING
    limits: ClassVar[tuple[str, ...]] = (
        "A region is seen at 1024 pixels and in at most six tiles of 640, A4 at about 155 dpi: "
        "smaller print of a region that fills the page is not read well.",
        "A table too long for an answer is read in strips from top to bottom; a cell that spans a cut is two cells.",
    )

    prompts: dict[str, str] = Field(default=by_name(_PROMPTS), description="The prompt of each task.")
    ocr2: bool = Field(default=False, description="The server serves DeepSeek-OCR-2, whose tiles have 768 pixels.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_server(self.server, self.ocr2)
        return self

    def most_image_tokens(self) -> int:
        return image_kind(self.ocr2).views.most_tokens

    def image_maker(self) -> ImageMaker:
        return partial(tiled_image, made=image_kind(self.ocr2))

    def answer_cleaner(self) -> Callable[[str, Task], str]:
        return clean
