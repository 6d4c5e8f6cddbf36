"""The reading of a page, region by region, with a vision-language model."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kopub.errors import UndecodableImage
from kopub.layout.regions import Region, Task
from kopub.pages.page import PackedPixels, Page, decode
from kopub.recognition.regions import (
    Crop,
    PageReading,
    RegionText,
    cut_pictures,
    page_reading,
    region_pixels,
    skipped,
)
from kopub.recognition.step_times import keep, timed
from kopub.recognition.tables import count_placeholders
from kopub.recognition.vlm.client.answers import (
    FIRST_ATTEMPT,
    Attempt,
    AttemptReading,
    Outcome,
    Problem,
    failed_text,
    find_defect,
    is_confirmed,
    join_outcomes,
    join_readings,
    may_be_cut,
    next_attempt,
    no_reading,
    reading_text,
)
from kopub.recognition.vlm.client.chat_requests import (
    AnswerCache,
    CachedAnswer,
    ChatAnswer,
    PromptTokens,
    answer_room,
    ask,
    prompt_name,
    region_key,
    request_body,
)
from kopub.recognition.vlm.client.region_images import (
    CropImage,
    ImageMaker,
    cut_strips,
    has_ink,
    pack_pixels,
    scale_to_lines,
)
from kopub.states import TRIES_AGAIN, Reason, State, with_remedy
from kopub.vllm.client.client import Client
from kopub.vllm.client.requests import (
    BusyServer,
    JobFigures,
    OversizedRequest,
    RefusedRequest,
    UnansweredRequest,
    gather_all,
)

_NOT_READ = frozenset({Task.SKIP, Task.ABANDON})
_SEED = 0
"""Seed of attempts that sample, so that a region gets the same second attempt in every run."""
_TOP_P = 0.9
_CONFIRMED = frozenset({Problem.EMPTY, Problem.SCRIPT, Problem.RUNAWAY})
"""Problems that a cached answer may have, because a second attempt confirmed it."""


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """A page to be read, sent to a client process: `packed`, or its `data`."""

    page_id: str
    data: bytes
    regions: tuple[Region, ...]
    packed: PackedPixels | None = None


@dataclass(frozen=True, slots=True)
class RequestSettings:
    """The settings for requests and for judging answers, sent to the client processes.

    `prompts` are keyed by `prompt_name`. `context` is in tokens, and so is `first_answer`, the most that a first answer
    may take. `make_image` makes the image of a crop at a scale, and `line_height` is the number of pixels that a line
    of its text needs. `clean` removes the model's own marks from an answer, and leaves a clean one alone. `count_parts`
    says in how many strips a crop is read; None if always in one. `fingerprints`, by `prompt_name`, cover everything
    that shapes an answer except the crop.
    """

    prompts: Mapping[str, str]
    sampling: Mapping[str, Any]
    scripts: frozenset[str]
    most_attempts: int
    context: int
    first_answer: int | None
    make_image: ImageMaker
    line_height: int | None
    clean: Callable[[str, Task], str]
    fingerprints: Mapping[str, str]
    cache_folder: Path | None
    cache_size: int
    count_parts: Callable[[NDArray[np.uint8]], int] | None = None


@dataclass(frozen=True, slots=True)
class _Request:
    region: Region
    prompt: str
    """Its `prompt_name`."""
    images: tuple[CropImage, ...]
    """A single image, or those of its parts from top to bottom."""
    parts: int
    key: bytes | None
    scaled_down: bool


@dataclass(slots=True)
class PreparedReading:
    """A page with its regions' images; `reading` is set if no request is needed."""

    job: ReadingJob
    reading: PageReading | None = None
    settled: list[RegionText] = field(default_factory=list)
    requests: list[_Request] = field(default_factory=list)
    crops: tuple[Crop, ...] = ()
    figures: JobFigures = field(default_factory=lambda: defaultdict(float))


class VlmReader:
    """The `Handler` of pages; see `kopub.vllm.client.worker_pool`."""

    def __init__(self, settings: RequestSettings) -> None:
        self._settings = settings
        self._prompt_tokens = PromptTokens()
        folder = settings.cache_folder
        self._cache = AnswerCache(folder, settings.cache_size) if folder is not None else None

    def close(self) -> None:
        if self._cache is not None:
            self._cache.close()

    def prepare(self, job: ReadingJob) -> PreparedReading:
        """Decode the page once, crop its regions, and encode those not in the cache."""
        started = time.perf_counter()
        prepared = PreparedReading(job)
        page = Page(job.page_id, job.data, packed=job.packed)
        try:
            with timed("decode"):
                image = page.image
            with timed("crop"):
                prepared.crops = cut_pictures(page, job.regions)
        except UndecodableImage as error:
            prepared.reading = PageReading(job.page_id, error.state, str(error))
            return prepared
        if not job.regions:
            prepared.reading = PageReading(job.page_id, State.BLANK)
            return prepared
        self._crop(prepared, image)
        prepared.figures["prepare_seconds"] += time.perf_counter() - started
        return prepared

    def _crop(self, prepared: PreparedReading, image: NDArray[np.uint8]) -> None:
        crops: list[tuple[Region, NDArray[np.uint8], str, bytes | None]] = []
        for region in prepared.job.regions:
            if region.task in _NOT_READ:
                prepared.settled.append(skipped(region.index, region.label))
                continue
            with timed("crop"):
                pixels = pack_pixels(region_pixels(image, region))
                inked = has_ink(pixels)
            if not inked:
                prepared.settled.append(skipped(region.index, region.label, State.BLANK, "no ink"))
                continue
            prompt = prompt_name(region.label, region.task, self._settings.prompts)
            fingerprint = self._settings.fingerprints[prompt]
            crops.append((region, pixels, prompt, region_key(pixels, fingerprint) if self._cache is not None else None))
        cached = self._cache.find(key for *_, key in crops if key is not None) if self._cache is not None else {}
        for region, pixels, prompt, key in crops:
            hit = cached.get(key) if key is not None else None
            if hit is not None:
                reading = self._judge(hit.answer, region.task, hit.seconds, hit.scale)
                # The answer was good when it was kept, but may be judged by other rules now.
                if reading.defect is None or (hit.attempts > 1 and reading.defect.problem in _CONFIRMED):
                    prepared.settled.append(reading_text(region, reading, hit.attempts, hit.seconds, reused=True))
                    prepared.figures["regions_reused"] += 1
                    continue
            with timed("encode"):
                enough = scale_to_lines(pixels, region.task, self._settings.line_height)
                count = self._settings.count_parts
                parts = count(pixels) if count is not None and may_be_cut(region.task, region.label) else 1
                images = tuple(self._settings.make_image(part, enough=enough) for part in _strips(pixels, parts))
            prepared.requests.append(_Request(region, prompt, images, parts, key, enough < 1.0))
            prepared.figures["regions_scaled_down"] += enough < 1.0
            prepared.figures["regions_in_parts"] += parts > 1

    def _judge(self, answer: ChatAnswer, task: Task, seconds: float, scale: float) -> AttemptReading:
        with timed("answer"):
            text = self._settings.clean(answer.text, task)
            defect = find_defect(text, answer.finish_reason, task, self._settings.scripts)
        return AttemptReading(answer, text, defect, seconds, scale)

    async def finish(self, ready: PreparedReading, client: Client) -> tuple[PageReading, JobFigures]:
        """Send the requests, and join the answers into a reading.

        The costliest region goes first, because the page is done only when that region is.
        """
        if ready.reading is not None:
            return ready.reading, ready.figures
        good: dict[bytes, CachedAnswer] = {}
        requests = sorted(ready.requests, key=lambda request: -sum(image.tokens for image in request.images))
        read = await asyncio.gather(*(self._read(client, ready, request, good) for request in requests))
        ready.figures["requests_repeated"] += client.take_retries()
        if self._cache is not None and good:
            await asyncio.get_running_loop().run_in_executor(None, self._cache.add, good)
        texts = sorted((*ready.settled, *read), key=lambda text: text.index)
        return page_reading(ready.job.page_id, texts, ready.crops), ready.figures

    async def _read(
        self, client: Client, prepared: PreparedReading, request: _Request, good: dict[bytes, CachedAnswer]
    ) -> RegionText:
        """Return the text of a region, from its answer or from those of its parts."""
        region = request.region
        parts = await gather_all(self._settle(client, prepared, request, part) for part in range(len(request.images)))
        settled = parts[0] if len(parts) == 1 else join_outcomes(region.task, parts)
        if settled.failed:
            prepared.figures["regions_failed"] += 1
            return failed_text(region, settled)
        if request.key is not None and settled.doubt is None:
            reading = settled.reading
            good[request.key] = CachedAnswer(reading.answer, settled.attempts, settled.seconds, reading.scale)
        text = reading_text(region, settled.reading, settled.attempts, settled.seconds)
        if region.task is Task.TABLE:
            pruned = count_placeholders(settled.reading.answer.text) - count_placeholders(text.content)
            prepared.figures["cells_pruned"] += max(0, pruned)
        prepared.figures["regions_blank"] += text.state is State.BLANK
        prepared.figures["regions_doubted"] += settled.doubt is not None
        return text if settled.doubt is None else replace(text, reason=settled.doubt)

    async def _settle(self, client: Client, prepared: PreparedReading, request: _Request, part: int) -> Outcome:
        """Retry a part until its answer is good or confirmed, else return the soundest."""
        region = request.region
        images = [request.images[part]]
        attempts: list[Attempt] = []
        readings: list[AttemptReading] = []
        seconds = 0.0
        attempt: Attempt | None = FIRST_ATTEMPT
        while attempt is not None:
            attempts.append(attempt)
            try:
                if attempt != FIRST_ATTEMPT:
                    loop = asyncio.get_running_loop()
                    images = await loop.run_in_executor(None, self._images, prepared.job, request, part, attempt)
                read = await gather_all(self._request(client, prepared, request, image, attempt) for image in images)
            except UnansweredRequest as error:
                # A region that killed its server more than once would do so again.
                says = with_remedy(str(error), TRIES_AGAIN) if isinstance(error, BusyServer) else str(error)
                readings.append(no_reading(Problem.REFUSED, says, request.images[part].scale))
                break
            reading = read[0] if len(read) == 1 else join_readings(region.task, read)
            readings.append(reading)
            seconds += reading.seconds
            if reading.defect is None or is_confirmed(readings, region.task):
                return Outcome(reading, len(readings), seconds)
            problem = reading.defect.problem
            prepared.figures[f"answers_{problem.name.lower()}"] += 1
            more = len(attempts) < self._settings.most_attempts
            attempt = next_attempt(region.task, region.label, problem, attempts, request.scaled_down) if more else None
        else:
            # The shortest runaway is taken with a doubt, because what runs away may really be printed.
            for reading in sorted(readings, key=lambda reading: len(reading.text)):
                if reading.defect is not None and reading.defect.problem is Problem.RUNAWAY:
                    doubt = Reason("{reason}, and no other reading agrees", reason=reading.defect.reason)
                    return Outcome(reading, len(readings), seconds, doubt=doubt)
        soundest = max(readings, key=lambda reading: len(reading.sound))
        return Outcome(soundest, len(readings), seconds, failed=True)

    def _images(self, job: ReadingJob, request: _Request, part: int, attempt: Attempt) -> list[CropImage]:
        """Make a part's images for another attempt, decoding the page anew."""
        pixels = pack_pixels(region_pixels(decode(job.packed or job.data), request.region))
        strip = _strips(pixels, request.parts)[part]
        return [self._settings.make_image(part, attempt.scale) for part in _strips(strip, attempt.parts)]

    async def _request(
        self, client: Client, prepared: PreparedReading, request: _Request, image: CropImage, attempt: Attempt
    ) -> AttemptReading:
        task = request.region.task
        likely, most = answer_room(task, image.tokens, self._settings.context, image.patches)
        likely = min(likely, self._settings.first_answer or likely)
        sampling: dict[str, Any] = {"temperature": attempt.temperature}
        if attempt.temperature:
            sampling |= {"seed": _SEED, "top_p": _TOP_P}
        sampling |= self._settings.sampling
        room = most if attempt.all_room else likely
        prompt = self._settings.prompts[request.prompt]
        body = request_body(await client.model(), prompt, image, room, sampling)
        try:
            answer, seconds = await ask(client, body, image, prepared.job.page_id, prepared.figures)
        except RefusedRequest as error:
            problem = Problem.TOO_LARGE if isinstance(error, OversizedRequest) else Problem.REFUSED
            return no_reading(problem, Reason("the server refused it: {reason}", reason=str(error)), image.scale)
        keep("request", seconds)
        problem = self._prompt_tokens.problem(prompt, image.tokens, answer.prompt_tokens)
        if problem is not None:
            return no_reading(Problem.REFUSED, problem, image.scale)
        return self._judge(answer, task, seconds, image.scale)


def _strips(pixels: NDArray[np.uint8], count: int) -> list[NDArray[np.uint8]]:
    """Return the parts of a crop that have ink.

    A part without ink would be read as empty, and so make the whole region count as empty.
    """
    if count == 1:
        return [pixels]
    return [part for part in cut_strips(pixels, count) if has_ink(part)] or [pixels]
