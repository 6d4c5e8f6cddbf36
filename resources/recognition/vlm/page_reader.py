"""A page read region by region by a vision-language model: what a client process does with it."""

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
from resources.recognition.readings import Crop, PageReading, RegionText
from resources.recognition.vlm.answer_cache import RegionReuse, region_key
from resources.recognition.vlm.answers import Doubt, Problem, examine, tidy
from resources.recognition.vlm.chat_requests import PATH, Answer, answer_room, read_answer, request_body
from resources.recognition.vlm.region_images import Picture, cut, has_ink, strips
from resources.recognition.vlm.retry_plan import FIRST, Try, next_try
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
"""For the warm tries: the same region gets the same second chance in every run."""
_TOP_P = 0.9


@dataclass(frozen=True, slots=True)
class PageJob:
    """A page to be read, as it travels to a client process."""

    page_id: str
    data: bytes
    regions: tuple[Region, ...]


@dataclass(frozen=True, slots=True)
class Manner:
    """How regions are asked for, and what the model's answers are in plain words.

    `picture` makes of a crop, at a scale, what is sent; `plain` takes out of an answer what the
    model says about it, and leaves what it has left before as it is. `asked` is the fingerprint, by
    task, of all that shapes an answer but the crop.
    """

    prompts: Mapping[Task, str]
    sampling: Mapping[str, Any]
    scripts: frozenset[str]
    tries: int
    context: int
    picture: Callable[["NDArray[np.uint8]", float], Picture]
    plain: Callable[[str, Task], str]
    asked: Mapping[Task, str]
    reuse_folder: Path | None
    reuse_answers: int


Figures = defaultdict[str, float]


@dataclass(frozen=True, slots=True)
class _Ask:
    region: Region
    picture: Picture
    key: bytes | None


@dataclass(slots=True)
class ReadyPage:
    """A page with its crops cut. `reading` is set when nothing is to be asked at all."""

    job: PageJob
    reading: PageReading | None = None
    settled: list[RegionText] = field(default_factory=list)
    asks: list[_Ask] = field(default_factory=list)
    crops: tuple[Crop, ...] = ()
    figures: Figures = field(default_factory=lambda: defaultdict(float))


@dataclass(frozen=True, slots=True)
class _Reading:
    """One try at a region: the model's own words, and these in plain ones."""

    answer: Answer
    text: str
    doubt: Doubt | None
    seconds: float


class VlmReader:
    """The `Handler` of pages; see `resources.vllm.client.worker_pool`."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        folder = manner.reuse_folder
        self._reuse = RegionReuse(folder, manner.reuse_answers) if folder is not None else None

    def close(self) -> None:
        if self._reuse is not None:
            self._reuse.close()

    def prepare(self, job: PageJob) -> ReadyPage:
        """Decode the page once; cut, look up and encode its regions."""
        started = time.perf_counter()
        ready = ReadyPage(job)
        page = Page(job.page_id, job.data)
        try:
            image = page.image
            ready.crops = cut_pictures(page, job.regions)
        except UndecodableImage as error:
            ready.reading = PageReading(job.page_id, State.QUARANTINED, str(error))
            return ready
        if not job.regions:
            ready.reading = PageReading(job.page_id, State.BLANK)
            return ready
        self._cut(ready, image)
        ready.figures["prepare_seconds"] += time.perf_counter() - started
        return ready

    def _cut(self, ready: ReadyPage, image: "NDArray[np.uint8]") -> None:
        cuts: list[tuple[Region, NDArray[np.uint8], bytes | None]] = []
        for region in ready.job.regions:
            if region.task in _NOT_READ:
                ready.settled.append(RegionText(region.index, region.label, "", finish_reason="skipped", attempts=0))
                continue
            pixels = cut(image, region.bbox)
            if has_ink(pixels):
                key = region_key(pixels, self._manner.asked[region.task]) if self._reuse is not None else None
                cuts.append((region, pixels, key))
            else:
                ready.settled.append(
                    RegionText(region.index, region.label, "", State.BLANK, "no ink", "skipped", attempts=0)
                )
        known = self._reuse.find(key for _, _, key in cuts if key is not None) if self._reuse is not None else {}
        for region, pixels, key in cuts:
            before = known.get(key) if key is not None else None
            kept = self._kept(region, *before) if before is not None else None
            if kept is not None:
                ready.settled.append(kept)
                ready.figures["regions_reused"] += 1
            else:
                ready.asks.append(_Ask(region, self._manner.picture(pixels, 1.0), key))

    def _kept(self, region: Region, answer: Answer, attempts: int, seconds: float) -> RegionText | None:
        """A kept answer if it is still found good; a doubtful script was cleared by a second look then."""
        reading = self._judged(answer, region.task, seconds)
        if reading.doubt is None or reading.doubt.problem is Problem.SCRIPT:
            return _text(region, reading, attempts, seconds, reused=True)
        return None

    def _judged(self, answer: Answer, task: Task, seconds: float) -> _Reading:
        text = self._manner.plain(answer.text, task)
        return _Reading(answer, text, examine(text, answer.finish_reason, task, self._manner.scripts), seconds)

    async def finish(self, ready: ReadyPage, client: Client) -> tuple[PageReading, Figures]:
        """Read what is to be read. The costliest region goes first: the page is done when it is."""
        if ready.reading is not None:
            return ready.reading, ready.figures
        good: dict[bytes, tuple[Answer, int, float]] = {}
        asks = sorted(ready.asks, key=lambda ask: -ask.picture.tokens)
        read = await asyncio.gather(*(self._read(client, ready, ask, good) for ask in asks))
        ready.figures["requests_repeated"] += client.take_retries()
        if self._reuse is not None and good:
            await asyncio.get_running_loop().run_in_executor(None, self._reuse.keep, good)
        texts = tuple(sorted((*ready.settled, *read), key=lambda text: text.index))
        failed = [text for text in texts if text.state is State.FAILED]
        page_id = ready.job.page_id
        if failed:
            reason = f"{len(failed)} of {len(texts)} regions failed; region {failed[0].index}: {failed[0].reason}"
            return PageReading(page_id, State.FAILED, reason, texts, ready.crops), ready.figures
        return PageReading(page_id, State.OK, None, texts, ready.crops), ready.figures

    async def _read(
        self, client: Client, ready: ReadyPage, ask: _Ask, good: dict[bytes, tuple[Answer, int, float]]
    ) -> RegionText:
        """Climb the ladder until an answer stands. What is kept of one that never does is its sound part."""
        region = ask.region
        made: list[Try] = []
        readings: list[_Reading] = []
        rung: Try | None = FIRST
        while rung is not None:
            made.append(rung)
            try:
                reading = await self._try(client, ready, ask, rung)
            except Unanswered as error:
                readings.append(_no_reading(Problem.REFUSED, str(error)))
                break
            readings.append(reading)
            if reading.doubt is None or _confirmed(readings):
                seconds = _seconds(readings)
                if ask.key is not None:
                    good[ask.key] = (reading.answer, len(made), seconds)
                return _text(region, reading, len(made), seconds)
            ready.figures[f"answers_{reading.doubt.problem.name.lower()}"] += 1
            rung = next_try(region.task, reading.doubt.problem, made) if len(made) < self._manner.tries else None
        ready.figures["regions_failed"] += 1
        return _failed(region, readings)

    async def _try(self, client: Client, ready: ReadyPage, ask: _Ask, rung: Try) -> _Reading:
        if rung == FIRST:
            pictures = [ask.picture]
        else:
            again = asyncio.get_running_loop().run_in_executor(None, self._again, ready.job, ask.region, rung)
            pictures = await again
        parts = await gather_all(self._ask(client, ready, ask.region, each, rung) for each in pictures)
        return parts[0] if len(parts) == 1 else _joined(ask.region.task, parts)

    def _again(self, job: PageJob, region: Region, rung: Try) -> list[Picture]:
        """The crop at another size or in parts, from the page decoded anew: second tries are rare, pixels are large."""
        pixels = cut(Page(job.page_id, job.data).image, region.bbox)
        parts = strips(pixels, rung.parts) if rung.parts > 1 else [pixels]
        return [self._manner.picture(part, rung.scale) for part in parts]

    async def _ask(self, client: Client, ready: ReadyPage, region: Region, crop: Picture, rung: Try) -> _Reading:
        likely, most = answer_room(region.task, crop.tokens, self._manner.context, crop.patches)
        sampling: dict[str, Any] = {"temperature": rung.temperature}
        if rung.temperature:
            sampling |= {"seed": _SEED, "top_p": _TOP_P}
        sampling |= self._manner.sampling
        room = most if rung.all_room else likely
        body = request_body(await client.model(), self._manner.prompts[region.task], crop, room, sampling)
        ready.figures["requests"] += 1
        ready.figures["image_tokens"] += crop.tokens
        try:
            answer, seconds = await client.post(PATH, body, read_answer, ready.job.page_id, crop.tokens)
        except Refused as error:
            problem = Problem.TOO_LARGE if isinstance(error, TooLarge) else Problem.REFUSED
            return _no_reading(problem, f"the server refused it: {error}")
        ready.figures["answer_tokens"] += answer.tokens
        return self._judged(answer, region.task, seconds)


def _no_reading(problem: Problem, reason: str) -> _Reading:
    return _Reading(Answer("", "error", 0), "", Doubt(problem, reason, 0), 0.0)


def _confirmed(readings: Sequence[_Reading]) -> bool:
    """Whether two looks saw the same foreign script: then it is what is printed."""
    last = readings[-1]
    return (
        last.doubt is not None
        and last.doubt.problem is Problem.SCRIPT
        and any(former.text.split() == last.text.split() for former in readings[:-1])
    )


def _joined(task: Task, parts: Sequence[_Reading]) -> _Reading:
    """Parts of a region as one reading; it is as doubtful as its most doubtful part."""
    join = join_tables if task is Task.TABLE else "\n".join
    doubt = next((part.doubt for part in parts if part.doubt is not None), None)
    sound = [_sound(part) for part in parts]
    text = join([tidy(each, task) for each in sound])
    reason = "stop" if doubt is None else next(p.answer.finish_reason for p in parts if p.doubt is not None)
    answer = Answer(text, reason, sum(part.answer.tokens for part in parts))
    if doubt is not None:
        doubt = Doubt(doubt.problem, doubt.reason, len(text))
    return _Reading(answer, text, doubt, max(part.seconds for part in parts))


def _sound(reading: _Reading) -> str:
    return reading.text if reading.doubt is None else reading.text[: reading.doubt.sound]


def _seconds(readings: Sequence[_Reading]) -> float:
    return sum(reading.seconds for reading in readings)


def _text(region: Region, reading: _Reading, attempts: int, seconds: float, reused: bool = False) -> RegionText:
    return RegionText(
        region.index,
        region.label,
        tidy(reading.text, region.task),
        finish_reason=reading.answer.finish_reason,
        attempts=attempts,
        seconds=seconds,
        reused=reused,
    )


def _failed(region: Region, readings: Sequence[_Reading]) -> RegionText:
    best = max(readings, key=lambda reading: len(_sound(reading)))
    assert best.doubt is not None
    return RegionText(
        region.index,
        region.label,
        tidy(_sound(best), region.task),
        State.FAILED,
        best.doubt.reason,
        best.answer.finish_reason,
        len(readings),
        _seconds(readings),
    )
