"""Layout by DeepSeek-OCR, which reads whole pages, and the choice of pages to retry."""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from kopub.engine import releases
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, check_labels, tasks_by_label
from kopub.pages.page import Batch, Page
from kopub.recognition.deepseek_layout.reader import LayoutAttempt, LayoutJob, LayoutReader, LayoutSettings
from kopub.recognition.vlm.client.chat_requests import VERSION as REQUESTS
from kopub.recognition.vlm.client.deepseek import VERSION as IMAGES
from kopub.recognition.vlm.deepseek_ocr import MARKDOWN, MEMORY, SAMPLING, check_server, image_kind
from kopub.states import Reason, State, joined
from kopub.vllm.served_engine import ModelMemory, ServedEngine

_ROUNDING = 1e-9
"""Slack of the limit, so that a tenth of thirty pages is three and not slightly less."""


@dataclass(slots=True)
class _RetryState:
    """A page that was requested.

    `wanted` is None until its answer has come, `granted` until its retry is decided.
    """

    number: int
    most: int
    wanted: bool | None = None
    granted: bool | None = None


@dataclass(slots=True)
class _ShardTries:
    """The undecided pages of a shard, and its retries so far."""

    began: int = 0
    spent: int = 0
    undecided: deque[_RetryState] = field(default_factory=deque)


class RetryBudget:
    """A limit of retries to a `share` of a shard's pages, 0 to 1.

    At least one page may be retried, or none if `share` is 0. All client processes share the limit. In whatever order
    answers arrive, the retries go to the first pages of the shard, in its order, whose answers are not good. For pages
    without a batch, the total is unknown, so the limit of each is a share of the pages up to and including it.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._shards: dict[Batch | None, _ShardTries] = {}
        self._of: dict[int, tuple[_ShardTries, _RetryState]] = {}

    def note_request(self, number: int, batch: Batch | None) -> None:
        """Note the request of the page `number`; pages come in the order of their batch."""
        shard = self._shards.setdefault(batch, _ShardTries())
        shard.began += 1
        pages = shard.began if batch is None else batch.pages
        most = max(1, math.floor(self._share * pages + _ROUNDING)) if self._share else 0
        request = _RetryState(number, most)
        shard.undecided.append(request)
        self._of[number] = shard, request

    def note_answer(self, number: int, wanted: bool) -> list[tuple[int, bool]]:
        """Note a page's first answer, and whether a retry is `wanted`.

        Returns each page that this decides, and whether it gets its retry. A page waits only as long as the answers of
        earlier pages can still change that.
        """
        shard, request = self._of.pop(number)
        request.wanted = wanted
        request.granted = None if wanted else False
        decided = []
        least = most = shard.spent
        for page in shard.undecided:
            if page.wanted and page.granted is None and (most < page.most or least >= page.most):
                page.granted = most < page.most
                decided.append((page.number, page.granted))
            least += page.granted is True
            most += page.granted is not False
        while shard.undecided and shard.undecided[0].granted is not None:
            shard.spent += shard.undecided.popleft().granted is True
        return decided


class DeepSeekOcrLayout(ServedEngine, LayoutDetector):
    """Regions and their texts by one request a page to DeepSeek-OCR.

    Its prompt asks for grounded markdown. `ocr_results` takes over the texts and reads the regions without one. A page
    whose answer is not good is requested once more, in two halves.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "layout.deepseek_ocr",
        {
            1: "the first release",
            2: "tags and signs printed in a table are text of their cells; a row without own cells stays",
        },
    )
    typical_seconds: ClassVar[float] = 0.7
    model_memory: ClassVar[ModelMemory | None] = MEMORY
    worker_modules: ClassVar[tuple[str, ...]] = ("cv2", "imagecodecs", "kopub.recognition.deepseek_layout.reader")
    limits: ClassVar[tuple[str, ...]] = (
        "DeepSeek-OCR was trained on Chinese and English: on MDPBench its Korean pages score 28, GLM-OCR's 61.",
        "A page is seen at 1024 pixels and in at most six tiles of 640, A4 at about 155 dpi.",
        "Boxes lie on a grid of 1000, and their score of 1 says nothing.",
        "Running heads, feet and page numbers are mostly left out, and charts and drawings are images.",
        "A table that a page read in halves cuts is two tables.",
    )

    prompt: str = Field(default=MARKDOWN, min_length=1, description="The prompt of a page.")
    sampling: dict[str, Any] = Field(default={}, description="Added to every request.")
    scripts: list[str] = Field(
        default=["HANGUL", "LATIN", "GREEK"],
        description="Expected scripts, as `scripts` of a recognizer; a region in another one is read from its crop.",
    )
    tasks: dict[str, str] = Field(default={}, description="Labels whose task differs from the usual one.")
    most_outside: float = Field(
        default=0.2, ge=0, le=1, description="Share of a page's ink that may lie outside of all regions."
    )
    halves_share: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Most retries, as a share of the pages of a shard that a run reads, but at least one; 0 for none.",
    )
    second_look: list[str] = Field(
        default=[],
        description="Labels, such as table: a page on which none was found is read again in halves, within "
        "`halves_share`, and keeps the better answer.",
    )
    ocr2: bool = Field(default=False, description="The server serves DeepSeek-OCR-2, whose tiles have 768 pixels.")

    @field_validator("tasks")
    @classmethod
    def _known_labels(cls, tasks: dict[str, str]) -> dict[str, str]:
        tasks_by_label(tasks)
        return tasks

    @field_validator("second_look")
    @classmethod
    def _labels_of_ours(cls, labels: list[str]) -> list[str]:
        check_labels("layout.second_look", dict.fromkeys(labels))
        return labels

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_server(self.server, self.ocr2)
        return self

    def recipe(self) -> dict[str, Any]:
        """Add the room for answers, and the versions of the code shared with recognizers."""
        shared = {"images": IMAGES.number, "requests": REQUESTS.number}
        recipe = super().recipe()
        if not self.second_look:
            # Tables made before this setting existed stay current.
            del recipe["parameters"]["second_look"]
        return {**recipe, "max_model_len": self.server.max_model_len, **shared}

    def weights(self) -> dict[str, str]:
        return {**super().weights(), **releases("opencv-python-headless")}

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        tries, jobs, waiting = RetryBudget(self.halves_share), dict[int, LayoutJob](), dict[int, LayoutAttempt]()

        def requests() -> Iterator[LayoutJob]:
            for number, page in enumerate(pages):
                jobs[number] = LayoutJob(number, page.page_id, bytes(page.data))
                tries.note_request(number, page.batch)
                yield jobs[number]

        for attempt in self.run_jobs(
            requests(),
            partial(LayoutReader, self._settings()),
            lambda job, reason: LayoutAttempt(job.number, Layout(job.page_id, State.FAILED, reason)),
        ):
            if attempt.number not in jobs:
                # This is the result of a retry.
                self.count(waiting.pop(attempt.number).requests)
                yield attempt.layout
                continue
            if attempt.first is not None:
                waiting[attempt.number] = attempt
            else:
                del jobs[attempt.number]
                yield attempt.layout
            for number, granted in tries.note_answer(attempt.number, attempt.first is not None):
                job, first = jobs.pop(number), waiting[number]
                first.requests["second_tries" if granted else "second_tries_left_out"] += 1
                if granted:
                    self.run_further(replace(job, first=first.first))
                    continue
                # The page is that of its first answer, although that is not good.
                del waiting[number]
                self.count(first.requests)
                self.count(first.layout_figures)
                layout = first.layout
                if layout.reason is not None:
                    form = "it was not read in halves, which {share:.0%} of the pages of a shard may be"
                    layout = replace(layout, reason=joined([layout.reason, Reason(form, share=self.halves_share)]))
                yield layout

    def _settings(self) -> LayoutSettings:
        return LayoutSettings(
            prompt=self.prompt,
            sampling={**SAMPLING, **self.sampling},
            scripts=frozenset(self.scripts),
            tasks=tasks_by_label(self.tasks),
            context=self.server.max_model_len,
            image=image_kind(self.ocr2),
            most_outside=self.most_outside,
            second_look=frozenset(self.second_look),
        )
