"""Reads a page region by region with a vision-language model; runs in the client processes."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.errors import UndecodableImage
from resources.layout.regions import Region, Task
from resources.pages.page import Page
from resources.recognition.crops import cut_pictures
from resources.recognition.readings import Crop, PageReading, RegionText, page_reading, skipped
from resources.recognition.vlm.answer_cache import AnswerCache, CachedAnswer, region_key
from resources.recognition.vlm.answers import Defect, Problem, confirmed, find_defect, tidy
from resources.recognition.vlm.chat_requests import PATH, Answer, answer_room, read_answer, request_body
from resources.recognition.vlm.line_height import scale_to_lines
from resources.recognition.vlm.placeholder_cells import count_placeholders
from resources.recognition.vlm.prompt_tokens import PromptTokens
from resources.recognition.vlm.region_images import ImageMaker, RegionImage, crop_pixels, has_ink, strips
from resources.recognition.vlm.retry_plan import FIRST_ATTEMPT, Attempt, next_attempt
from resources.recognition.vlm.tables_html import join_tables
from resources.states import State
from resources.vllm.client.client import Client
from resources.vllm.client.fair_queue import gather_all
from resources.vllm.client.http_errors import Refused, TooLarge, Unanswered

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NOT_READ = frozenset({Task.SKIP, Task.ABANDON})
_SEED = 0
"""For the attempts that sample: a region gets the same second attempt in every run."""
_TOP_P = 0.9
_CONFIRMED = frozenset({Problem.EMPTY, Problem.SCRIPT})
"""Problems that a cached answer may have: it was cached because a second attempt confirmed it."""


@dataclass(frozen=True, slots=True)
class PageJob:
    """A page to be read, as it travels to a client process."""

    page_id: str
    data: bytes
    regions: tuple[Region, ...]


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """What the requests hold and how answers are judged, as it travels to the client processes.

    `context` is in tokens. `make_image` makes the image of a crop at a scale, `line_height` is the pixels that a line
    of its text needs; `clean` takes the model's own marks out of an answer, and leaves a clean one as it is.
    `fingerprints` has, by task, that of everything but the crop that shapes an answer.
    """

    prompts: Mapping[Task, str]
    sampling: Mapping[str, Any]
    scripts: frozenset[str]
    most_attempts: int
    context: int
    make_image: ImageMaker
    line_height: int | None
    clean: Callable[[str, Task], str]
    fingerprints: Mapping[Task, str]
    cache_folder: Path | None
    cache_size: int


Figures = defaultdict[str, float]


@dataclass(frozen=True, slots=True)
class _RegionRequest:
    region: Region
    image: RegionImage
    key: bytes | None
    scaled_down: bool


@dataclass(slots=True)
class PreparedPage:
    """A page with the images of its regions. `reading` is set when no request is needed."""

    job: PageJob
    reading: PageReading | None = None
    settled: list[RegionText] = field(default_factory=list)
    requests: list[_RegionRequest] = field(default_factory=list)
    crops: tuple[Crop, ...] = ()
    figures: Figures = field(default_factory=lambda: defaultdict(float))


@dataclass(frozen=True, slots=True)
class _Reading:
    """The result of one attempt at a region: the model's own words, and `text`, the same without its marks.

    `scale` is that of the image that was read.
    """

    answer: Answer
    text: str
    defect: Defect | None
    seconds: float
    scale: float

    @property
    def sound(self) -> str:
        """The part of the text before its defect."""
        return self.text if self.defect is None else self.text[: self.defect.sound]


class VlmReader:
    """The `Handler` of pages; see `resources.vllm.client.worker_pool`."""

    def __init__(self, settings: RequestSettings) -> None:
        self._settings = settings
        self._prompt_tokens = PromptTokens()
        folder = settings.cache_folder
        self._cache = AnswerCache(folder, settings.cache_size) if folder is not None else None

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()

    def prepare(self, job: PageJob) -> PreparedPage:
        """Decode the page once; crop its regions, look them up in the cache and encode the others."""
        started = time.perf_counter()
        prepared = PreparedPage(job)
        page = Page(job.page_id, job.data)
        try:
            image = page.image
            prepared.crops = cut_pictures(page, job.regions)
        except UndecodableImage as error:
            prepared.reading = PageReading(job.page_id, State.QUARANTINED, str(error))
            return prepared
        if not job.regions:
            prepared.reading = PageReading(job.page_id, State.BLANK)
            return prepared
        self._crop(prepared, image)
        prepared.figures["prepare_seconds"] += time.perf_counter() - started
        return prepared

    def _crop(self, prepared: PreparedPage, image: "NDArray[np.uint8]") -> None:
        crops: list[tuple[Region, NDArray[np.uint8], bytes | None]] = []
        for region in prepared.job.regions:
            if region.task in _NOT_READ:
                prepared.settled.append(skipped(region.index, region.label))
                continue
            pixels = crop_pixels(image, region.bbox)
            if has_ink(pixels):
                fingerprint = self._settings.fingerprints[region.task]
                crops.append((region, pixels, region_key(pixels, fingerprint) if self._cache is not None else None))
            else:
                prepared.settled.append(skipped(region.index, region.label, State.BLANK, "no ink"))
        cached = self._cache.find(key for _, _, key in crops if key is not None) if self._cache is not None else {}
        for region, pixels, key in crops:
            hit = cached.get(key) if key is not None else None
            text = self._reused(region, hit) if hit is not None else None
            if text is not None:
                prepared.settled.append(text)
                prepared.figures["regions_reused"] += 1
            else:
                enough = scale_to_lines(pixels, region.task, self._settings.line_height)
                sent = self._settings.make_image(pixels, enough=enough)
                prepared.requests.append(_RegionRequest(region, sent, key, enough < 1.0))
                prepared.figures["regions_scaled_down"] += enough < 1.0

    def _reused(self, region: Region, cached: CachedAnswer) -> RegionText | None:
        """The text of a cached answer if it still counts as good."""
        reading = self._judged(cached.answer, region.task, cached.seconds, cached.scale)
        if reading.defect is None or (cached.attempts > 1 and reading.defect.problem in _CONFIRMED):
            return _text(region, reading, cached.attempts, cached.seconds, reused=True)
        return None

    def _judged(self, answer: Answer, task: Task, seconds: float, scale: float) -> _Reading:
        text = self._settings.clean(answer.text, task)
        defect = find_defect(text, answer.finish_reason, task, self._settings.scripts)
        return _Reading(answer, text, defect, seconds, scale)

    async def finish(self, ready: PreparedPage, client: Client) -> tuple[PageReading, Figures]:
        """Send the requests. The costliest region goes first, because the page is done when it is."""
        if ready.reading is not None:
            return ready.reading, ready.figures
        good: dict[bytes, CachedAnswer] = {}
        requests = sorted(ready.requests, key=lambda request: -request.image.tokens)
        read = await asyncio.gather(*(self._read(client, ready, request, good) for request in requests))
        ready.figures["requests_repeated"] += client.take_retries()
        if self._cache is not None and good:
            await asyncio.get_running_loop().run_in_executor(None, self._cache.add, good)
        texts = sorted((*ready.settled, *read), key=lambda text: text.index)
        return page_reading(ready.job.page_id, texts, ready.crops), ready.figures

    async def _read(
        self, client: Client, prepared: PreparedPage, request: _RegionRequest, good: dict[bytes, CachedAnswer]
    ) -> RegionText:
        """Follow the retry plan until an answer is good or confirmed; a failed region keeps its soundest reading."""
        region = request.region
        made: list[Attempt] = []
        readings: list[_Reading] = []
        attempt: Attempt | None = FIRST_ATTEMPT
        while attempt is not None:
            made.append(attempt)
            try:
                reading = await self._attempt(client, prepared, request, attempt)
            except Unanswered as error:
                readings.append(_no_reading(Problem.REFUSED, str(error), request.image.scale))
                break
            readings.append(reading)
            if reading.defect is None or _is_confirmed(readings):
                seconds = _seconds(readings)
                if request.key is not None:
                    good[request.key] = CachedAnswer(reading.answer, len(made), seconds, reading.scale)
                text = _text(region, reading, len(made), seconds)
                if region.task is Task.TABLE:
                    pruned = count_placeholders(reading.answer.text) - count_placeholders(text.content)
                    prepared.figures["cells_pruned"] += max(0, pruned)
                prepared.figures["regions_blank"] += text.state is State.BLANK
                return text
            problem = reading.defect.problem
            prepared.figures[f"answers_{problem.name.lower()}"] += 1
            more = len(made) < self._settings.most_attempts
            attempt = next_attempt(region.task, problem, made, request.scaled_down) if more else None
        prepared.figures["regions_failed"] += 1
        return _failed(region, readings)

    async def _attempt(
        self, client: Client, prepared: PreparedPage, request: _RegionRequest, attempt: Attempt
    ) -> _Reading:
        if attempt == FIRST_ATTEMPT:
            images = [request.image]
        else:
            loop = asyncio.get_running_loop()
            images = await loop.run_in_executor(None, self._images, prepared.job, request.region, attempt)
        parts = await gather_all(self._request(client, prepared, request.region, image, attempt) for image in images)
        return parts[0] if len(parts) == 1 else _joined(request.region.task, parts)

    def _images(self, job: PageJob, region: Region, attempt: Attempt) -> list[RegionImage]:
        """The crop at another size or in parts. Decodes the page anew: retries are rare and pixels are large."""
        pixels = crop_pixels(Page(job.page_id, job.data).image, region.bbox)
        parts = strips(pixels, attempt.parts) if attempt.parts > 1 else [pixels]
        # A part without ink would come back empty, and the whole region would count as empty with it.
        inked = [part for part in parts if has_ink(part)] or [pixels]
        return [self._settings.make_image(part, attempt.scale) for part in inked]

    async def _request(
        self, client: Client, prepared: PreparedPage, region: Region, image: RegionImage, attempt: Attempt
    ) -> _Reading:
        likely, most = answer_room(region.task, image.tokens, self._settings.context, image.patches)
        sampling: dict[str, Any] = {"temperature": attempt.temperature}
        if attempt.temperature:
            sampling |= {"seed": _SEED, "top_p": _TOP_P}
        sampling |= self._settings.sampling
        room = most if attempt.all_room else likely
        prompt = self._settings.prompts[region.task]
        body = request_body(await client.model(), prompt, image, room, sampling)
        prepared.figures["requests"] += 1
        prepared.figures["image_tokens"] += image.tokens
        try:
            answer, seconds = await client.post(PATH, body, read_answer, prepared.job.page_id, image.tokens)
        except Refused as error:
            problem = Problem.TOO_LARGE if isinstance(error, TooLarge) else Problem.REFUSED
            return _no_reading(problem, f"the server refused it: {error}", image.scale)
        prepared.figures["answer_tokens"] += answer.tokens
        problem = self._prompt_tokens.problem(prompt, image.tokens, answer.prompt_tokens)
        if problem is not None:
            return _no_reading(Problem.REFUSED, problem, image.scale)
        return self._judged(answer, region.task, seconds, image.scale)


def _no_reading(problem: Problem, reason: str, scale: float) -> _Reading:
    return _Reading(Answer("", "error", 0), "", Defect(problem, reason, 0), 0.0, scale)


def _is_confirmed(readings: Sequence[_Reading]) -> bool:
    """Whether an earlier attempt had the same problem as the last one, and both show what is printed."""
    last = readings[-1]
    return last.defect is not None and any(
        confirmed(last.defect.problem, last.text, earlier.text)
        for earlier in readings[:-1]
        if earlier.defect is not None and earlier.defect.problem is last.defect.problem
    )


def _joined(task: Task, parts: Sequence[_Reading]) -> _Reading:
    """Parts of a region as one reading, with the first defect of a part."""
    join = join_tables if task is Task.TABLE else "\n".join
    text = join([tidy(part.sound, task) for part in parts])
    bad = next((part for part in parts if part.defect is not None), None)
    answer = Answer(text, bad.answer.finish_reason if bad else "stop", sum(part.answer.tokens for part in parts))
    defect = Defect(bad.defect.problem, bad.defect.reason, len(text)) if bad and bad.defect else None
    return _Reading(answer, text, defect, max(part.seconds for part in parts), min(part.scale for part in parts))


def _seconds(readings: Sequence[_Reading]) -> float:
    return sum(reading.seconds for reading in readings)


def _text(region: Region, reading: _Reading, attempts: int, seconds: float, reused: bool = False) -> RegionText:
    """The text of a good or confirmed reading; a confirmed empty one makes the region blank."""
    empty = reading.defect is not None and reading.defect.problem is Problem.EMPTY
    return RegionText(
        region.index,
        region.label,
        tidy(reading.text, region.task),
        State.BLANK if empty else State.OK,
        "two attempts read nothing" if empty else None,
        reading.answer.finish_reason,
        attempts,
        seconds,
        reading.scale,
        reused,
    )


def _failed(region: Region, readings: Sequence[_Reading]) -> RegionText:
    best = max(readings, key=lambda reading: len(reading.sound))
    assert best.defect is not None
    return RegionText(
        region.index,
        region.label,
        tidy(best.sound, region.task),
        State.FAILED,
        best.defect.reason,
        best.answer.finish_reason,
        len(readings),
        _seconds(readings),
        best.scale,
    )
