"""The GPU recognizer: GLM-OCR over a model server, from as many processes as keep it busy."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from resources.layout.base import Region, Task
from resources.pages.page import Page
from resources.recipe import code_fingerprint, fingerprint
from resources.recognition.base import PageReading, Recognizer
from resources.recognition.prompts import PROMPTS
from resources.recognition.vision_crops import MAX_TOKENS
from resources.recognition.vlm_reader import Manner, PageJob, VlmReader
from resources.states import State
from resources.vllm.served import ServedEngine

_READ = frozenset({Task.TEXT, Task.TABLE, Task.FORMULA})
_ASKED_CODE = (
    "resources.recognition.vision_crops",
    "resources.recognition.crops",
    "resources.recognition.prompts",
    "resources.pages.patches",
)
"""What makes a request of a crop. The modules that judge answers are not among them: they judge kept ones too."""


class GlmOcrRecognizer(ServedEngine, Recognizer):
    """Reads regions with GLM-OCR: text, tables as HTML, formulas as LaTeX; pictures are kept as crops."""

    code: ClassVar[tuple[str, ...]] = (
        *_ASKED_CODE,
        "resources.recognition.glm_ocr",
        "resources.recognition.vlm_reader",
        "resources.recognition.answers",
        "resources.recognition.ladder",
        "resources.recognition.tables_html",
    )
    speed_only: ClassVar[frozenset[str]] = ServedEngine.speed_only | {"reuse_folder", "reuse_answers"}
    limits: ClassVar[tuple[str, ...]] = (
        "A table too large for the model is read in strips from top to bottom; a cell that spans a cut is two cells.",
    )

    prompts: dict[str, str] = Field(
        default={task.value: prompt for task, prompt in PROMPTS.items()}, description="What is asked, by task."
    )
    sampling: dict[str, Any] = Field(default={}, description="Added to every request; overrides what the ladder sets.")
    scripts: list[str] = Field(
        default=["HANGUL", "LATIN", "GREEK"],
        description="Scripts to expect, by their Unicode names; an answer mostly in another is looked at again.",
    )
    tries: int = Field(default=4, ge=1, description="Most answers asked for one region before it is `failed`.")
    reuse_folder: str = Field(default="", description="Where answers are kept for unchanged regions; empty keeps none.")
    reuse_answers: int = Field(
        default=1_000_000, ge=0, description="Most answers kept, about 1 GB a million; those not used longest go first."
    )

    @field_validator("prompts")
    @classmethod
    def _complete(cls, prompts: dict[str, str]) -> dict[str, str]:
        unknown = set(prompts) - _READ
        if unknown:
            raise ValueError(f"{sorted(unknown)[0]!r} is not read; prompts are for {', '.join(sorted(_READ))}")
        return {task.value: prompt for task, prompt in PROMPTS.items()} | prompts

    def recipe(self) -> dict[str, Any]:
        return {**super().recipe(), "max_image_tokens": self.server.max_image_tokens}

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        jobs = (PageJob(page.page_id, bytes(page.data), tuple(regions)) for page, regions in pages)
        yield from self.worked(jobs, partial(VlmReader, self._manner()), _lost)

    def _manner(self) -> Manner:
        prompts = {Task(task): prompt for task, prompt in self.prompts.items()}
        most = min(MAX_TOKENS, self.server.max_image_tokens)
        common = [self.sampling, most, self.weights(), code_fingerprint(_ASKED_CODE)]
        return Manner(
            prompts=prompts,
            sampling=self.sampling,
            scripts=frozenset(self.scripts),
            tries=self.tries,
            context=self.server.max_model_len,
            max_image_tokens=most,
            asked={task: fingerprint([prompt, *common]) for task, prompt in prompts.items()},
            reuse_folder=Path(self.reuse_folder) if self.reuse_folder else None,
            reuse_answers=self.reuse_answers,
        )


def _lost(job: PageJob, reason: str) -> PageReading:
    return PageReading(job.page_id, State.FAILED, reason)
