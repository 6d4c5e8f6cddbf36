"""Asks a chat model about figures, one request each; runs in the client processes."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kopub.errors import UndecodableImage
from kopub.figures.answers import JudgedNote
from kopub.figures.figure import FigureNote
from kopub.pages.model_pictures import whole_patches
from kopub.pages.page import decode
from kopub.recognition.vlm.client.chat_requests import ChatAnswer, ask, request_body
from kopub.recognition.vlm.client.region_images import (
    CropImage,
    encode_image,
    has_ink,
    pack_pixels,
    relative_size,
    resize,
)
from kopub.states import Reason, State, joined
from kopub.vllm.client.client import Client
from kopub.vllm.client.requests import JobFigures, RefusedRequest, UnansweredRequest

_SEED = 0
"""Seed of the attempts that sample, so that a figure gets the same second attempt in every run."""
_TEMPERATURES = (0.0, 0.3, 0.7)
"""Temperatures of the first and later attempts: some chance leads off the greedy path."""

PATCH = 32
"""Pixels on a side of one image token."""
_LEAST = 4


@dataclass(frozen=True, slots=True)
class FigureJob:
    """A figure as it travels to a client process, with the question about it."""

    id: str
    data: bytes
    prompt: str


@dataclass(frozen=True, slots=True)
class NoteSettings:
    """Settings of the questions about figures, as they travel to client processes.

    `make_image` makes the picture from a figure's pixels, and `judge` makes a note from an answer or says what is wrong
    with it. `room` has the tokens for the first answer to a figure and for every further one.
    """

    make_image: Callable[[NDArray[np.uint8]], CropImage]
    judge: Callable[[ChatAnswer], JudgedNote]
    sampling: Mapping[str, Any]
    room: tuple[int, int]
    tries: int


@dataclass(slots=True)
class PreparedFigure:
    """A figure with its picture. `note` is set when no request is needed."""

    job: FigureJob
    note: FigureNote | None = None
    image: CropImage | None = None
    figures: JobFigures = field(default_factory=lambda: defaultdict(float))


class FigureReader:
    """The `Handler` of figures; see `kopub.vllm.client.worker_pool`."""

    def __init__(self, settings: NoteSettings) -> None:
        self._settings = settings

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def prepare(self, job: FigureJob) -> PreparedFigure:
        """Decode the picture and bring it to the model's size."""
        started = time.perf_counter()
        prepared = PreparedFigure(job)
        try:
            pixels = decode(job.data)
        except UndecodableImage as error:
            prepared.note = FigureNote(job.id, error.state, str(error), attempts=0)
            return prepared
        crop = pack_pixels(pixels)
        if has_ink(crop):
            prepared.image = self._settings.make_image(crop)
        else:
            prepared.note = FigureNote(job.id, State.BLANK, "no ink", attempts=0)
        prepared.figures["prepare_seconds"] += time.perf_counter() - started
        return prepared

    async def finish(self, ready: PreparedFigure, client: Client) -> tuple[FigureNote, JobFigures]:
        """Ask until an answer is usable, at most `tries` times."""
        if ready.note is not None:
            return ready.note, ready.figures
        rooms = [self._settings.room[0]] + [self._settings.room[1]] * (self._settings.tries - 1)
        problems: list[str] = []
        seconds = 0.0
        note = None
        assert ready.image is not None
        for attempt, room in enumerate(rooms):
            sampling: dict[str, Any] = {"temperature": _TEMPERATURES[min(attempt, len(_TEMPERATURES) - 1)]}
            if sampling["temperature"]:
                sampling["seed"] = _SEED
            sampling |= self._settings.sampling
            try:
                body = request_body(await client.model(), ready.job.prompt, ready.image, room, sampling)
                answer, took = await ask(client, body, ready.image, ready.job.id, ready.figures)
            except (RefusedRequest, UnansweredRequest) as error:
                refused = Reason("the server refused it: {reason}", reason=str(error))
                problems.append(refused if isinstance(error, RefusedRequest) else str(error))
                break
            seconds += took
            judged = await asyncio.to_thread(self._settings.judge, answer)
            if judged.problem is None:
                note = judged.note(ready.job.id, attempt + 1, seconds)
                break
            ready.figures[f"answers_{judged.problem.name.lower()}"] += 1
            problems.append(judged.reason)
        ready.figures["requests_repeated"] += client.take_retries()
        if note is None:
            ready.figures["figures_failed"] += 1
            # A problem that came again is said once.
            reason = joined(dict.fromkeys(reversed(problems)), "{first}; before: {then}")
            note = FigureNote(ready.job.id, State.FAILED, reason, attempts=len(problems), seconds=seconds)
        return note, ready.figures


class FigureImage(CropImage):
    """A figure as sent in a request."""

    __slots__ = ()

    @property
    def tokens(self) -> int:
        return (self.width // PATCH) * (self.height // PATCH)


def figure_image(crop: NDArray[np.uint8], max_tokens: int) -> FigureImage:
    """Return a crop of at most `max_tokens` tokens; smaller ones keep their size."""
    height, width = crop.shape[:2]
    columns, rows = whole_patches(width, height, PATCH, _LEAST, max_tokens)
    size = columns * PATCH, rows * PATCH
    return FigureImage(*encode_image(resize(crop, size)), *size, relative_size(size, crop))
