"""The reader of whole pages, boxes and texts at once; runs in the client processes."""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
_REFUSALS = frozenset({Problem.REFUSED, Problem.TOO_LARGE})
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

    @property
    def may_gain(self) -> bool:
        """True if a retry may read more."""
        defect = self.answer.defect
        return bool(self.problems or self.lacking) and (defect is None or defect.problem not in _REFUSALS)


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
        if answer.defect is not None:
            figures[f"answers_{answer.defect.problem.name.lower()}"] += 1
        judged = self._held_against(ready, answer)
        if ready.job.first is not None:
            judged = self._better(ready, ready.job.first, judged)
        elif judged.may_gain:
            of_layout: JobFigures = defaultdict(float)
            layout = self._layout(ready, judged, of_layout)
            return LayoutAttempt(number, layout, judged, figures, of_layout), defaultdict(float)
        return LayoutAttempt(number, self._layout(ready, judged, figures)), figures

    def _better(self, ready: PreparedJob, first: JudgedAnswer, second: JudgedAnswer) -> JudgedAnswer:
        """Return the better answer, that of the whole page or that of its halves."""
        problems = {judged.answer.defect and judged.answer.defect.problem for judged in (first, second)}
        answer = second.answer
        if problems == {Problem.SCRIPT} and answers_agree(Problem.SCRIPT, first.answer.text, answer.text, Task.TEXT):
            # Two answers agree in an unexpected script, so that it is really printed.
            regions = list(answer.regions)
            for at, region in enumerate(regions):
                if region.doubt is Problem.SCRIPT:
                    regions[at] = replace(region, doubt=None)
            second = self._held_against(ready, replace(answer, regions=tuple(regions), defect=None))
        best = min(first, second, key=lambda judged: judged.rank)
        ready.figures["second_tries_taken"] += best is second
        return best

    async def _request(self, ready: PreparedJob, client: Client, image: TiledImage, frame: PixelBox) -> LayoutAnswer:
        settings = self._settings
        _, room = answer_room(Task.TEXT, image.tokens, settings.context)
        sampling = {"temperature": 0.0, **settings.sampling}
        body = request_body(await client.model(), settings.prompt, image, room, sampling)
        try:
            answer, seconds = await ask(client, body, image, ready.job.page_id, ready.figures)
        except RefusedRequest as error:
            problem = Problem.TOO_LARGE if isinstance(error, OversizedRequest) else Problem.REFUSED
            return _no_answer(problem, Reason("the server refused it: {reason}", reason=str(error)))
        ready.figures["answer_seconds"] += seconds
        problem = self._prompt_tokens.problem(settings.prompt, image.tokens, answer.prompt_tokens)
        if problem is not None:
            return _no_answer(Problem.REFUSED, problem)
        return page_answer(answer, frame, settings.scripts)

    def _held_against(self, ready: PreparedJob, answer: LayoutAnswer) -> JudgedAnswer:
        assert ready.ink is not None
        by_label = [(region.label, region.bbox) for region in answer.regions if region.place is not BoxSource.NOWHERE]
        tables = [box for label, box in by_label if label == "table"]
        pictures = [box for label, box in by_label if label in ("image", "chart")]
        return JudgedAnswer(
            answer,
            tuple(ready.ink.missed_tables(tables, pictures)) if answer.regions else (),
            ready.ink.share_outside(box for _, box in by_label) if answer.regions else 1.0,
            self._settings.most_outside,
            self._settings.second_look - {label for label, _ in by_label},
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
        regions = tuple(self._region(at, region, ink, figures) for at, region in enumerate(named))
        figures["labels_unknown"] += judged.answer.unknown
        figures["cells_pruned"] += judged.answer.pruned
        figures["tables_added"] += len(added)
        figures["ink_outside"] += outside
        defect = judged.answer.defect
        # Any other fault of an answer is mended by reading crops.
        lacks = (defect is not None and defect.problem in _ENDS_EARLY) or outside > self._settings.most_outside
        return (
            Layout(page_id, State.PARTIAL, joined(problems), regions)
            if lacks
            else Layout(page_id, State.OK, None, regions)
        )

    def _region(self, index: int, named: NamedRegion, ink: "InkMap", figures: JobFigures) -> Region:
        text = named.text if named.text.strip() and named.doubt is None else None
        if named.doubt is not None:
            figures["texts_in_doubt"] += 1
        if text is not None and named.place is BoxSource.NAMED and not ink.has_ink(named.bbox):
            figures["texts_without_ink"] += 1
            text = None
        return Region(index, named.label, self._settings.tasks[named.label], _SCORE, named.bbox, text=text)


def _no_answer(problem: Problem, reason: str) -> LayoutAnswer:
    return LayoutAnswer((), "", Defect(problem, reason, 0))


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
        ruled = find_ruled_areas(find_rules(contrast, em), (contrast.shape[0], contrast.shape[1]), em)
        return cls(ink, ruled.tables, scale, round(em / 2))

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
        named, drawn = ([Box(*self._on_copy(box)) for box in boxes] for boxes in (tables, pictures))
        missed: list[PixelBox] = []
        for table in self.tables:
            covered = 0
            for box in named:
                width = min(table.x2, box.x2) - max(table.x1, box.x1)
                height = min(table.y2, box.y2) - max(table.y1, box.y1)
                covered += max(0, width) * max(0, height)
            if covered / (table.width * table.height) < _COVERS and not any(map(table.inside, drawn)):
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

    def _on_copy(self, box: PixelBox) -> tuple[int, int, int, int]:
        x1, y1, x2, y2 = (round(edge * self.scale) for edge in box)
        return max(0, x1 - self.slack), max(0, y1 - self.slack), x2 + self.slack, y2 + self.slack
