"""Reads whole pages with DeepSeek-OCR, places and texts at once; runs in the client processes."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from resources.deepseek_layout.answer import BoxSource, NamedRegion, PageAnswer, join_answers, page_answer
from resources.deepseek_layout.page_ink import PageInk, PixelBox
from resources.errors import UndecodableImage
from resources.layout.ink import BLANK_SHARE, ink_share
from resources.layout.regions import PageLayout, Region, Task
from resources.pages.page import Page
from resources.recognition.vlm.answers import Defect, Problem, confirmed
from resources.recognition.vlm.chat_requests import PATH, answer_room, read_answer, request_body
from resources.recognition.vlm.deepseek.deepseek_images import TiledImage, tiled_image
from resources.recognition.vlm.prompt_tokens import PromptTokens
from resources.recognition.vlm.region_images import crop_pixels, has_ink, strips
from resources.states import State
from resources.vllm.client.client import Client
from resources.vllm.client.fair_queue import gather_all
from resources.vllm.client.requests import Refused, TooLarge, Unanswered

if TYPE_CHECKING:
    from numpy.typing import NDArray


Figures = defaultdict[str, float]
_SCORE = 1.0
"""The model says nothing of how sure it is of a box."""
_HALVES = 2
_REFUSALS = frozenset({Problem.REFUSED, Problem.TOO_LARGE})
_ENDS_EARLY = frozenset({Problem.CUT, Problem.LOOP})
"""Defects of an answer that says nothing of the rest of its page."""


@dataclass(frozen=True, slots=True)
class WholePageSettings:
    """What the requests hold and how answers are judged, as it travels to the client processes.

    `context` is in tokens, `image` the kind of picture that the model is sent. `most_outside` is the share of a page's
    ink that may lie outside of all regions; a page without a region of each label of `second_look` is asked for again.
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
    """An answer held against the page: the ruled tables without a box, and the share of ink outside of all boxes.

    `lacking` are labels that ask for a second look where a page has none: no fault of the page, which may be without.
    """

    answer: PageAnswer
    missed: tuple[PixelBox, ...]
    outside: float
    most_outside: float
    lacking: frozenset[str] = frozenset()

    @property
    def problems(self) -> list[str]:
        """What is wrong with it, the worst first."""
        found = [self.answer.defect.reason] if self.answer.defect is not None else []
        if self.missed:
            found.append(f"{len(self.missed)} ruled tables of the page are no table in the answer")
        if self.outside > self.most_outside:
            found.append(f"{self.outside:.0%} of the page's ink is outside of all regions")
        return found

    @property
    def rank(self) -> tuple[bool, bool, int, int, float]:
        """The better of two answers has the lower one."""
        return (
            not self.answer.regions,
            self.answer.defect is not None,
            len(self.missed),
            len(self.lacking),
            self.outside,
        )

    @property
    def may_gain(self) -> bool:
        """Whether another try may bring more."""
        defect = self.answer.defect
        return bool(self.problems or self.lacking) and (defect is None or defect.problem not in _REFUSALS)


@dataclass(frozen=True, slots=True)
class WholePageJob:
    """A page to be read, as it travels to a client process; for the second time where there is a first answer.

    `number` tells the jobs of a run apart; both jobs of a page have the same.
    """

    number: int
    page_id: str
    data: bytes
    first: JudgedAnswer | None = None


@dataclass(frozen=True, slots=True)
class PageTry:
    """What became of a job: the page as its best answer has it.

    Where a second try may bring more, `first` is the answer, `asked` are the figures of its requests, and `made` those
    of the layout as it is.
    """

    number: int
    layout: PageLayout
    first: JudgedAnswer | None = None
    asked: Figures = field(default_factory=lambda: defaultdict(float))
    made: Figures = field(default_factory=lambda: defaultdict(float))


@dataclass(slots=True)
class PreparedWholePage:
    """A page with its pictures, each with its place on the page. `layout` is set when no request is needed."""

    job: WholePageJob
    layout: PageLayout | None = None
    parts: Sequence[tuple[TiledImage, PixelBox]] = ()
    ink: PageInk | None = None
    figures: Figures = field(default_factory=lambda: defaultdict(float))


class WholePageReader:
    """The `Handler` of pages; see `resources.vllm.client.worker_pool`."""

    def __init__(self, settings: WholePageSettings) -> None:
        self._settings = settings
        self._prompt_tokens = PromptTokens()

    def close(self) -> None:
        """Nothing is held."""

    def prepare(self, job: WholePageJob) -> PreparedWholePage:
        """Decode the page, find its ink and its ruled tables, and make its picture, or those of its halves."""
        import cv2

        started = time.perf_counter()
        prepared = PreparedWholePage(job)
        try:
            image = Page(job.page_id, job.data).image
        except UndecodableImage as error:
            prepared.layout = PageLayout(job.page_id, error.state, str(error))
            return prepared
        gray = np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), np.uint8)
        if ink_share(gray) < BLANK_SHARE:
            prepared.layout = PageLayout(job.page_id, State.BLANK)
            return prepared
        prepared.ink = PageInk.of(gray)
        prepared.parts = self._whole(image) if job.first is None else self._halves(image)
        prepared.figures["prepare_seconds"] += time.perf_counter() - started
        return prepared

    async def finish(self, ready: PreparedWholePage, client: Client) -> tuple[PageTry, Figures]:
        """Ask for the page, or for its halves and take the better one of both answers."""
        number, page_id, figures = ready.job.number, ready.job.page_id, ready.figures
        if ready.layout is not None:
            return PageTry(number, ready.layout), figures
        try:
            judged = await self._read(ready, client)
        except Unanswered as error:
            return PageTry(number, PageLayout(page_id, State.FAILED, str(error))), figures
        finally:
            figures["requests_repeated"] += client.take_retries()
        if ready.job.first is not None:
            judged = self._better(ready, ready.job.first, judged)
        elif judged.may_gain:
            made: Figures = defaultdict(float)
            return PageTry(number, self._layout(ready, judged, made), judged, figures, made), defaultdict(float)
        return PageTry(number, self._layout(ready, judged, figures)), figures

    def _better(self, ready: PreparedWholePage, first: JudgedAnswer, second: JudgedAnswer) -> JudgedAnswer:
        """The better one of the answer about a page and that about its halves."""
        both = (first.answer, second.answer)
        if _agree_on_script(*both):
            second = self._held_against(ready, _with_texts(second.answer))
        best = min(first, second, key=lambda judged: judged.rank)
        ready.figures["second_tries_taken"] += best is second
        return best

    def _whole(self, image: "NDArray[np.uint8]") -> list[tuple[TiledImage, PixelBox]]:
        height, width = image.shape[:2]
        return [(self._picture(crop_pixels(image, (0, 0, width, height))), (0.0, 0.0, float(width), float(height)))]

    def _halves(self, image: "NDArray[np.uint8]") -> list[tuple[TiledImage, PixelBox]]:
        """The page cut where a row near its middle has the least ink; no half of paper."""
        height, width = image.shape[:2]
        top, parts = 0, []
        for strip in strips(crop_pixels(image, (0, 0, width, height)), _HALVES):
            bottom = top + strip.shape[0]
            if has_ink(strip):
                parts.append((self._picture(strip), (0.0, float(top), float(width), float(bottom))))
            top = bottom
        return parts

    async def _read(self, ready: PreparedWholePage, client: Client) -> JudgedAnswer:
        answers = await gather_all(self._ask(ready, client, image, frame) for image, frame in ready.parts)
        answer = answers[0] if len(answers) == 1 else join_answers(answers)
        if answer.defect is not None:
            ready.figures[f"answers_{answer.defect.problem.name.lower()}"] += 1
        return self._held_against(ready, answer)

    async def _ask(self, ready: PreparedWholePage, client: Client, image: TiledImage, frame: PixelBox) -> PageAnswer:
        settings = self._settings
        _, room = answer_room(Task.TEXT, image.tokens, settings.context)
        sampling = {"temperature": 0.0, **settings.sampling}
        body = request_body(await client.model(), settings.prompt, image, room, sampling)
        ready.figures["requests"] += 1
        ready.figures["image_tokens"] += image.tokens
        try:
            answer, seconds = await client.post(PATH, body, read_answer, ready.job.page_id, image.tokens)
        except Refused as error:
            problem = Problem.TOO_LARGE if isinstance(error, TooLarge) else Problem.REFUSED
            return _no_answer(problem, f"the server refused it: {error}")
        ready.figures["answer_tokens"] += answer.tokens
        ready.figures["answer_seconds"] += seconds
        problem = self._prompt_tokens.problem(settings.prompt, image.tokens, answer.prompt_tokens)
        if problem is not None:
            return _no_answer(Problem.REFUSED, problem)
        return page_answer(answer, frame, settings.scripts)

    def _held_against(self, ready: PreparedWholePage, answer: PageAnswer) -> JudgedAnswer:
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

    def _layout(self, ready: PreparedWholePage, judged: JudgedAnswer, figures: Figures) -> PageLayout:
        """The page as its answer has it. What no sound text is known of has none: it is read from its crop."""
        assert ready.ink is not None
        page_id, ink, problems = ready.job.page_id, ready.ink, judged.problems
        if not judged.answer.regions:
            return PageLayout(page_id, State.FAILED, "; ".join(problems) or "the answer has no region")
        found = list(judged.answer.regions)
        boxes = [region.bbox for region in found if region.place is not BoxSource.NOWHERE]
        added: list[NamedRegion] = []
        if len(boxes) == len(found):
            # Nothing has the table's text; the recognizer reads it from its crop.
            added = [NamedRegion("table", table, "") for table in judged.missed if not ink.is_read(table, boxes)]
        outside = ink.share_outside([*boxes, *(table.bbox for table in added)])
        regions = tuple(self._region(at, region, ink, figures) for at, region in enumerate([*found, *added]))
        figures["labels_unknown"] += judged.answer.unknown
        figures["cells_pruned"] += judged.answer.pruned
        figures["tables_added"] += len(added)
        figures["ink_outside"] += outside
        defect = judged.answer.defect
        # All else that is wrong with an answer is read from crops.
        lacks = (defect is not None and defect.problem in _ENDS_EARLY) or outside > self._settings.most_outside
        return (
            PageLayout(page_id, State.PARTIAL, "; ".join(problems), regions)
            if lacks
            else PageLayout(page_id, State.OK, None, regions)
        )

    def _region(self, index: int, found: NamedRegion, ink: PageInk, figures: Figures) -> Region:
        task = self._settings.tasks[found.label]
        text = found.text if found.text.strip() and found.doubt is None else None
        if found.doubt is not None:
            figures["texts_in_doubt"] += 1
        if text is not None and found.place is BoxSource.NAMED and not ink.has_ink(found.bbox):
            figures["texts_without_ink"] += 1
            text = None
        return Region(index, found.label, task, _SCORE, found.bbox, text=text)

    def _picture(self, pixels: "NDArray[np.uint8]") -> TiledImage:
        return tiled_image(pixels, made=self._settings.image)


def _no_answer(problem: Problem, reason: str) -> PageAnswer:
    return PageAnswer((), "", Defect(problem, reason, 0))


def _agree_on_script(first: PageAnswer, second: PageAnswer) -> bool:
    """Whether two answers are in the same unexpected script and say nearly the same: then it is printed."""
    defects = (first.defect, second.defect)
    is_script = all(defect is not None and defect.problem is Problem.SCRIPT for defect in defects)
    return is_script and confirmed(Problem.SCRIPT, first.text, second.text, Task.TEXT)


def _with_texts(answer: PageAnswer) -> PageAnswer:
    """An answer whose script is confirmed."""
    regions = (replace(region, doubt=None) if region.doubt is Problem.SCRIPT else region for region in answer.regions)
    return replace(answer, regions=tuple(regions), defect=None)
