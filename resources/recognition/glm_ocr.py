"""The GPU recognizer: GLM-OCR over a model server, from as many processes as keep it busy."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, PrivateAttr, field_validator

from resources.layout.base import Region, Task
from resources.pages.page import Page
from resources.recipe import code_fingerprint, fingerprint
from resources.recognition.base import PageReading, Recognizer
from resources.recognition.prompts import PROMPTS
from resources.recognition.vision_crops import MAX_TOKENS
from resources.recognition.vlm_reader import Figures, Manner, PageJob, VlmReader
from resources.states import State
from resources.vllm.client import Patience
from resources.vllm.crew import Crew
from resources.vllm.server import VLLMServer

_READ = frozenset({Task.TEXT, Task.TABLE, Task.FORMULA})
_IN_FLIGHT = 1.5
"""Requests under way for each sequence the server runs: the surplus is being decoded and normalised meanwhile."""
_ASKED_CODE = ("resources.recognition.vision_crops", "resources.recognition.crops", "resources.recognition.prompts")
"""What makes a request of a crop. The modules that judge answers are not among them: they judge kept ones too."""


class GlmOcrRecognizer(Recognizer):
    """Reads regions with GLM-OCR: text, tables as HTML, formulas as LaTeX; pictures are kept as crops."""

    code: ClassVar[tuple[str, ...]] = (
        *_ASKED_CODE,
        "resources.recognition.glm_ocr",
        "resources.recognition.vlm_reader",
        "resources.recognition.answers",
        "resources.recognition.ladder",
        "resources.recognition.tables_html",
    )
    speed_only: ClassVar[frozenset[str]] = frozenset(
        {"server", "processes", "threads", "in_flight", "request_seconds", "retry_seconds", "reuse_folder"}
    )

    server: VLLMServer = Field(description="The server that GLM-OCR runs on.")
    prompts: dict[str, str] = Field(
        default={task.value: prompt for task, prompt in PROMPTS.items()}, description="What is asked, by task."
    )
    sampling: dict[str, Any] = Field(default={}, description="Added to every request; overrides what the ladder sets.")
    scripts: list[str] = Field(
        default=["HANGUL", "LATIN", "GREEK"],
        description="Scripts to expect, by their Unicode names; an answer mostly in another is looked at again.",
    )
    tries: int = Field(default=4, ge=1, description="Most answers asked for one region before it is `failed`.")
    processes: int = Field(default=0, ge=0, description="Client processes; 0: one for every four cores, 1: a thread.")
    threads: int = Field(default=2, ge=1, description="Pages prepared at once in each client process.")
    in_flight: int = Field(default=0, ge=0, description="Requests under way; 0: from the server's sequences.")
    request_seconds: float = Field(default=600.0, gt=0, description="Longest wait for the answer to one request.")
    retry_seconds: float = Field(default=0.5, ge=0, description="First wait before a request is sent again.")
    reuse_folder: str = Field(default="", description="Where answers are kept for unchanged regions; empty keeps none.")

    _served: dict[str, float | str] = PrivateAttr(default_factory=dict)
    _figures: Figures = PrivateAttr(default_factory=lambda: defaultdict(float))

    @field_validator("prompts")
    @classmethod
    def _complete(cls, prompts: dict[str, str]) -> dict[str, str]:
        unknown = set(prompts) - _READ
        if unknown:
            raise ValueError(f"{sorted(unknown)[0]!r} is not read; prompts are for {', '.join(sorted(_READ))}")
        return {task.value: prompt for task, prompt in PROMPTS.items()} | prompts

    def recipe(self) -> dict[str, Any]:
        return {**super().recipe(), "max_image_tokens": self.server.max_image_tokens}

    def weights(self) -> dict[str, str]:
        return self.server.recipe_parts()

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        jobs = (PageJob(page.page_id, bytes(page.data), tuple(regions)) for page, regions in pages)
        crew = Crew(
            server=self.server,
            make=partial(VlmReader, self._manner()),
            lost=_lost,
            slots=self.in_flight or self._slots(),
            patience=Patience(self.request_seconds, wait=self.retry_seconds),
            processes=self.processes,
            threads=self.threads,
            told=self._served.update,
        )
        for reading, figures in crew.run(jobs):
            for name, value in figures.items():
                self._figures[name] += value
            yield reading

    def report(self) -> dict[str, float | str]:
        """Requests, tokens, regions reused, bad answers by kind, seconds spent on pages, and the server's figures."""
        return {**self._figures, **self._served}

    def _slots(self) -> int:
        replicas = max(self.server.replicas, len(self.server.urls))
        return round(_IN_FLIGHT * self.server.max_num_seqs * replicas) or 1

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
        )


def _lost(job: PageJob, reason: str) -> tuple[PageReading, Figures]:
    return PageReading(job.page_id, State.FAILED, reason), defaultdict(float)
