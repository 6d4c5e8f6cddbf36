"""The reader of whole pages, boxes and texts at once; runs in the client processes."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box
from kopub.errors import UndecodableImage
from kopub.layout.ink import BLANK_SHARE, INK_CONTRAST, PAPER_REACH, ink_contrast, ink_share, shrink, working_scale
from kopub.layout.lines import estimate_em, find_ruled_areas, find_rules
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.deepseek_layout.answer import (
    BoxSource,
    LayoutAnswer,
    NamedRegion,
    PixelBox,
    join_answers,
    page_answer,
)
from kopub.recognition.vlm.client.answers import Defect, Problem, answers_agree
from kopub.recognition.vlm.client.chat_requests import PromptTokens, answer_room, ask, request_body
from kopub.recognition.vlm.client.deepseek import TiledImage, tiled_image
from kopub.recognition.vlm.client.region_images import cut_strips, has_ink, pack_pixels
from kopub.states import Reason, State, joined
from kopub.vllm.client.client import Client
from kopub.vllm.client.requests import JobFigures, OversizedRequest, RefusedRequest, UnansweredRequest, gather_all

_SCORE = 1.0
"""The score of every box, because the model gives none."""
_HALVES = 2
_ENDS_EARLY = frozenset({Problem.CUT, Problem.LOOP})
"""Defects of an answer that leaves out the rest of its page."""
_COVERS = 0.5
"""Least share of a ruled table, or of its ink, in boxes that count as covering it."""


@dataclass(frozen=True, slots=True)
class LayoutSettings:
    """The content of requests and the limits of answers, sent to the client processes.

    `context` is in tokens, `image` is the kind of picture sent to the model. `most_outside` is the share of a page's
    ink that may lie outside all regions; a page without a region of every label in `second_look` is requested again.
    """

    prompt: str
    sampling: Mapping[str, Any]
    scripts: frozenset[str]
    tasks: Mapping[str, Task]
    context: int
    image: type[TiledImage]
    most_outside: float
    second_look: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class JudgedAnswer:
    """An answer compared with the ink of its page.

    `missed` are ruled tables without a box, `outside` is the share of ink outside all boxes. `lacking` are labels that
    call for a second look because the page has none; this is not a fault, since the page may really have none.
    """

    answer: LayoutAnswer
    missed: tuple[PixelBox, ...]
    outside: float
    most_outside: float
    lacking: frozenset[str] = frozenset()

    @property
    def problems(self) -> list[str]:
        """The faults of the answer, worst first."""
        reasons = [self.answer.defect.reason] if self.answer.defect is not None else []
        if self.missed:
            reasons.append(
                Reason("{count} ruled tables of the page are no table in the answer", count=len(self.missed))
            )
        if self.outside > self.most_outside:
            reasons.append(Reason("{share:.0%} of the page's ink is outside of all regions", share=self.outside))
        return reasons

    @property
    def rank(self) -> tuple[bool, bool, int, int, float]:
        """The sort key of an answer: the better of two is lower."""
        return (
            not self.answer.regions,
            self.answer.defect is not None,
            len(self.missed),
            len(self.lacking),
            self.outside,
        )


@dataclass(frozen=True, slots=True)
class LayoutJob:
    """A page to be read, sent to a client process.

    With a `first` answer, it is read for the second time. `number` identifies a page within a run, so both jobs of a
    page have the same number.
    """

    number: int
    page_id: str
    data: bytes
    first: JudgedAnswer | None = None


@dataclass(frozen=True, slots=True)
class LayoutAttempt:
    """The result of a job: the layout of the page by its best answer.

    If a retry may read more, `first` is the answer, `requests` are the figures of its requests, and `layout_figures`
    those of the layout without a retry.
    """

    number: int
    layout: Layout
    first: JudgedAnswer | None = None
    requests: JobFigures = field(default_factory=lambda: defaultdict(float))
    layout_figures: JobFigures = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True)
class PreparedJob:
    """A page with its placed pictures; `layout` is set if no request is needed."""

    job: LayoutJob
    layout: Layout | None = None
    parts: list[tuple[TiledImage, PixelBox]] = field(default_factory=list)
    ink: "InkMap | None" = None
    figures: JobFigures = field(default_factory=lambda: defaultdict(float))


class LayoutReader:
    """The `Handler` of pages; see `kopub.vllm.client.worker_pool`."""

    def __init__(self, settings: LayoutSettings) -> None:
        self._settings = settings
        self._prompt_tokens = PromptTokens()

    def close(self) -> None:
        """Do nothing, because no resource is held."""

    def prepare(self, job: LayoutJob) -> PreparedJob:
        """Decode the page, find its ink and tables, and make the pictures to send."""
        started = time.perf_counter()
        prepared = PreparedJob(job)
        try:
            image = Page(job.page_id, job.data).image
        except UndecodableImage as error:
            prepared.layout = Layout(job.page_id, error.state, str(error))
            return prepared
        gray = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)
        if ink_share(gray) < BLANK_SHARE:
            prepared.layout = Layout(job.page_id, State.BLANK)
            return prepared
        prepared.ink = InkMap.of(gray)
        pixels, width, top = pack_pixels(image), float(image.shape[1]), 0
        # A second reading cuts the page near its middle, at the row with the least ink.
        for strip in [pixels] if job.first is None else cut_strips(pixels, _HALVES):
            bottom = top + strip.shape[0]
            if job.first is None or has_ink(strip):
                picture = tiled_image(strip, kind=self._settings.image)
                prepared.parts.append((picture, (0.0, float(top), width, float(bottom))))
            top = bottom
        prepared.figures["prepare_seconds"] += time.perf_counter() - started
        return prepared

    async def finish(self, ready: PreparedJob, client: Client) -> tuple[LayoutAttempt, JobFigures]:
        """Request the page; or request its halves, and take the better answer."""
        number, page_id, figures = ready.job.number, ready.job.page_id, ready.figures
        if ready.layout is not None:
            return LayoutAttempt(number, ready.layout), figures
        try:
            answers = await gather_all(self._request(ready, client, image, frame) for image, frame in ready.parts)
        except UnansweredRequest as error:
            return LayoutAttempt(number, Layout(page_id, State.FAILED, str(error))), figures
        finally:
            figures["requests_repeated"] += client.take_retries()
        answer = answers[0] if len(answers) == 1 else join_answers(answers)
        problem = answer.defect and answer.defect.problem
        if problem is not None:
            figures[f"answers_{problem.name.lower()}"] += 1
        judged, first = self._judge(ready, answer), ready.job.first
        if first is None:
            # A retry may read more, unless the server refused the page.
            if (judged.problems or judged.lacking) and problem not in (Problem.REFUSED, Problem.TOO_LARGE):
                of_layout: JobFigures = defaultdict(float)
                layout = self._layout(ready, judged, of_layout)
                return LayoutAttempt(number, layout, judged, figures, of_layout), defaultdict(float)
            return LayoutAttempt(number, self._layout(ready, judged, figures)), figures
        before = first.answer.defect and first.answer.defect.problem
        texts = first.answer.text, answer.text
        if problem is Problem.SCRIPT and before is Problem.SCRIPT and answers_agree(problem, *texts, Task.TEXT):
            # Two answers agree in an unexpected script, so that it is really printed.
            regions = list(answer.regions)
            for at, region in enumerate(regions):
                if region.doubt is Problem.SCRIPT:
                    regions[at] = replace(region, doubt=None)
            judged = self._judge(ready, replace(answer, regions=tuple(regions), defect=None))
        best = min(first, judged, key=lambda judged: judged.rank)
        figures["second_tries_taken"] += best is judged
        return LayoutAttempt(number, self._layout(ready, best, figures)), figures

    async def _request(self, ready: PreparedJob, client: Client, image: TiledImage, frame: PixelBox) -> LayoutAnswer:
        settings = self._settings
        _, room = answer_room(Task.TEXT, image.tokens, settings.context)
        sampling = {"temperature": 0.0, **settings.sampling}
        body = request_body(await client.model(), settings.prompt, image, room, sampling)
        try:
            answer, seconds = await ask(client, body, image, ready.job.page_id, ready.figures)
        except RefusedRequest as error:
            problem = Problem.TOO_LARGE if isinstance(error, OversizedRequest) else Problem.REFUSED
            reason = Reason("the server refused it: {reason}", reason=str(error))
            return LayoutAnswer((), "", Defect(problem, reason, 0))
        ready.figures["answer_seconds"] += seconds
        reason = self._prompt_tokens.problem(settings.prompt, image.tokens, answer.prompt_tokens)
        if reason is not None:
            return LayoutAnswer((), "", Defect(Problem.REFUSED, reason, 0))
        return page_answer(answer, frame, settings.scripts)

    def _judge(self, ready: PreparedJob, answer: LayoutAnswer) -> JudgedAnswer:
        """Compare an answer with the ink of its page."""
        assert ready.ink is not None
        boxes: dict[str, list[PixelBox]] = {}
        for region in answer.regions:
            if region.place is not BoxSource.NOWHERE:
                boxes.setdefault(region.label, []).append(region.bbox)
        most_outside, lacking = self._settings.most_outside, self._settings.second_look.difference(boxes)
        if not answer.regions:
            return JudgedAnswer(answer, (), 1.0, most_outside, lacking)
        pictures = [*boxes.get("image", ()), *boxes.get("chart", ())]
        missed = ready.ink.missed_tables(boxes.get("table", ()), pictures)
        return JudgedAnswer(
            answer, tuple(missed), ready.ink.share_outside(chain(*boxes.values())), most_outside, lacking
        )

    def _layout(self, ready: PreparedJob, judged: JudgedAnswer, figures: JobFigures) -> Layout:
        """Make the layout of a page from its answer.

        A region whose text is not sound gets no text, so that it is read from its crop.
        """
        assert ready.ink is not None
        page_id, ink, problems = ready.job.page_id, ready.ink, judged.problems
        if not judged.answer.regions:
            return Layout(page_id, State.FAILED, joined(problems) or "the answer has no region")
        named = list(judged.answer.regions)
        boxes = [region.bbox for region in named if region.place is not BoxSource.NOWHERE]
        # No region has the table's text, so the recognizer reads it from its crop.
        added = [table for table in judged.missed if len(boxes) == len(named) and not ink.is_read(table, boxes)]
        named += [NamedRegion("table", table, "") for table in added]
        outside = ink.share_outside([*boxes, *added])
        regions: list[Region] = []
        for index, region in enumerate(named):
            text = region.text if region.text.strip() and region.doubt is None else None
            if region.doubt is not None:
                figures["texts_in_doubt"] += 1
            if text is not None and region.place is BoxSource.NAMED and not ink.has_ink(region.bbox):
                figures["texts_without_ink"] += 1
                text = None
            task = self._settings.tasks[region.label]
            regions.append(Region(index, region.label, task, _SCORE, region.bbox, text=text))
        figures["labels_unknown"] += judged.answer.unknown
        figures["cells_pruned"] += judged.answer.pruned
        figures["tables_added"] += len(added)
        figures["ink_outside"] += outside
        defect = judged.answer.defect
        # Any other fault of an answer is mended by reading crops.
        if (defect is not None and defect.problem in _ENDS_EARLY) or outside > self._settings.most_outside:
            return Layout(page_id, State.PARTIAL, joined(problems), tuple(regions))
        return Layout(page_id, State.OK, None, tuple(regions))


@dataclass(frozen=True)
class InkMap:
    """The ink of a page's working copy, its ruled tables, and the copy's scale.

    `ink` is bool (height, width). `slack` is how far boxes are extended at each edge, in pixels of the copy: half a
    letter.
    """

    ink: NDArray[np.bool_]
    tables: tuple[Box, ...]
    scale: float
    slack: int

    @classmethod
    def of(cls, gray: NDArray[np.uint8]) -> "InkMap":
        """Find the ink of a page, given as uint8 (height, width) in full size."""
        scale = working_scale(*gray.shape)
        contrast = ink_contrast(shrink(gray, scale), PAPER_REACH)
        ink = contrast > INK_CONTRAST
        em = estimate_em(ink.astype(np.uint8))
        tables, _ = find_ruled_areas(find_rules(contrast, em), (contrast.shape[0], contrast.shape[1]), em)
        return cls(ink, tuple(tables), scale, round(em / 2))

    def share_outside(self, boxes: Iterable[PixelBox]) -> float:
        """Return the share of the page's ink outside all boxes, 0 to 1."""
        every = int(self.ink.sum())
        return int((self.ink & ~self._within(boxes)).sum()) / every if every else 0.0

    def has_ink(self, box: PixelBox) -> bool:
        """Return whether anything is printed in a box."""
        x1, y1, x2, y2 = self._on_copy(box)
        return bool(self.ink[y1:y2, x1:x2].any())

    def missed_tables(self, tables: Sequence[PixelBox], pictures: Sequence[PixelBox]) -> list[PixelBox]:
        """Return the ruled tables that no table box covers and no picture contains."""
        drawn = [self._on_copy(picture) for picture in pictures]
        missed: list[PixelBox] = []
        for table in self.tables:
            covered = sum(table.intersection(box).area for box in map(self._on_copy, tables))
            if covered / table.area < _COVERS and not table.inside_any(drawn):
                x1, y1, x2, y2 = (edge / self.scale for edge in table)
                missed.append((x1, y1, x2, y2))
        return missed

    def is_read(self, table: PixelBox, boxes: Iterable[PixelBox]) -> bool:
        """Return whether boxes of any kind contain most of a table's ink."""
        x1, y1, x2, y2 = self._on_copy(table)
        ink = self.ink[y1:y2, x1:x2]
        return int((ink & self._within(boxes)[y1:y2, x1:x2]).sum()) >= _COVERS * int(ink.sum())

    def _within(self, boxes: Iterable[PixelBox]) -> NDArray[np.bool_]:
        inside = np.zeros_like(self.ink)
        for box in boxes:
            x1, y1, x2, y2 = self._on_copy(box)
            inside[y1:y2, x1:x2] = True
        return inside

    def _on_copy(self, box: PixelBox) -> Box:
        x1, y1, x2, y2 = (round(edge * self.scale) for edge in box)
        return Box(max(0, x1 - self.slack), max(0, y1 - self.slack), x2 + self.slack, y2 + self.slack)
