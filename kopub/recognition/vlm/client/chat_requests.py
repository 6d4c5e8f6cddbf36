"""Chat completion requests for regions, the answers to them, and the cache of answers."""

import hashlib
import json
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from kopub.errors import EngineError
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Task
from kopub.recognition.vlm.client.region_images import CropImage
from kopub.states import Reason
from kopub.vllm.client.requests import Frame, fill_frame, image_part, request_frame

if TYPE_CHECKING:
    from kopub.vllm.client.client import Client

VERSION = CodeVersion("recognition.requests", {1: "the first release"})
PATH = "/v1/chat/completions"
PROMPTS: Mapping[Task, str] = MappingProxyType(
    {Task.TEXT: "Text Recognition:", Task.TABLE: "Table Recognition:", Task.FORMULA: "Formula Recognition:"}
)
"""The prompts with which GLM-OCR was trained."""
_OWN_PROMPTS: Mapping[str, Task] = MappingProxyType({"chart": Task.TABLE, "seal": Task.TEXT})
"""Labels for which a model may have its own prompt, with the task as which they are then read."""

_PROMPT_TOKENS = 64
"""Room for template, prompt and markers around the image tokens, which take about 20 with the default prompts."""
_LEAST_ANSWER = 128
"""Fewest tokens allowed for an answer, because one line may hold a long formula or a number of many tokens."""
_TOKENS_PER_PATCH: Mapping[Task, int] = MappingProxyType({Task.TEXT: 6, Task.TABLE: 8, Task.FORMULA: 8})
"""Answer tokens per patch (28 x 28 px) at the smallest print that can be read.

At 16 px per syllable, a patch holds three syllables of up to two tokens each; the tags of a table's narrowest cells
(60 x 40 px, ten tokens) and LaTeX commands take more. Ordinary print at 300 dpi needs 0.7. A longer answer is not lost,
because the retry plan gives it all available room.
"""
_FINISHED = ("stop", "length")
"""Finish reasons of a complete answer: the model ended it, or the request's limit did."""


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """The answer of a model, and why it stopped.

    `finish_reason` is "stop", or "length" if the room was used up. `prompt_tokens` are those of the request, or None if
    the server does not count them.
    """

    text: str
    finish_reason: str
    tokens: int
    prompt_tokens: int | None = None


def prompt_name(label: str, task: Task, prompts: Collection[str]) -> str:
    """Return the prompt's name: the label if it has its own prompt, else the task."""
    return label if label in prompts and _OWN_PROMPTS.get(label) is task else task.value


def answer_room(task: Task, image_tokens: int, context: int, patches: int | None = None) -> tuple[int, int]:
    """Return the likely most and the absolute most tokens of an answer.

    The image can hold the first number, and a context of `context` tokens leaves room for the second. `patches` is the
    size of the image in patches of 28 x 28 px, if that differs from its image tokens.
    """
    squares = image_tokens if patches is None else patches
    most = max(1, context - image_tokens - _PROMPT_TOKENS)
    return min(most, max(_LEAST_ANSWER, _TOKENS_PER_PATCH[task] * squares)), most


def request_body(model: str, prompt: str, image: CropImage, max_tokens: int, sampling: Mapping[str, Any]) -> bytes:
    """Make a chat completion request as JSON; `sampling` overrides its fields."""
    options = json.dumps({"max_tokens": max_tokens, **sampling})
    return fill_frame(_frame(model, prompt, image.media_type, options), image.data)


@lru_cache(maxsize=4096)
def _frame(model: str, prompt: str, media_type: str, options: str) -> Frame:
    content = [image_part(media_type), {"type": "text", "text": prompt}]
    return request_frame({"model": model, "messages": [{"role": "user", "content": content}], **json.loads(options)})


def read_answer(answer: Any) -> ChatAnswer:
    """Return the answer in a response.

    Raises `LookupError`, `TypeError` or `ValueError` for JSON that is not a complete answer.
    """
    choice = answer["choices"][0]
    # A server that is being stopped sends what it has so far, with status 200 and the reason "abort".
    if choice["finish_reason"] not in _FINISHED:
        raise ValueError(f"it ended by {choice['finish_reason']!r}")
    text = choice["message"]["content"] or ""
    if not isinstance(text, str):
        raise TypeError(f"its content is no text but of type {type(text).__name__}")
    usage = dict(answer.get("usage") or {})
    prompt_tokens = usage.get("prompt_tokens")
    return ChatAnswer(
        mend_halves(text),
        str(choice["finish_reason"]),
        int(usage.get("completion_tokens", 0)),
        None if prompt_tokens is None else int(prompt_tokens),
    )


def mend_halves(text: str) -> str:
    """Return a text with U+FFFD for each half of a surrogate pair.

    JSON and Python can spell such halves out, but no table, file or cache can hold them.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


async def ask(
    client: "Client", body: bytes, image: CropImage, flow: str, figures: MutableMapping[str, float]
) -> tuple[ChatAnswer, float]:
    """Send a request about an image, and return the answer with its seconds.

    The tokens of both are counted in `figures`. Raises as `Client.post` does.
    """
    figures["requests"] += 1
    figures["image_tokens"] += image.tokens
    answer, seconds = await client.post(PATH, body, read_answer, flow, image.tokens)
    figures["answer_tokens"] += answer.tokens
    return answer, seconds


_TEMPLATE = 64
"""Most tokens that a template puts around a picture and a prompt; a prompt itself has at most one per byte."""
_SURE = 3
"""Number of prompts of a wrong size, with none of the right size, that prove that every picture is resized."""


class PromptTokens:
    """The check of a server's count of prompt tokens against the tokens of pictures.

    Apart from the picture, a prompt has the same number of tokens in every request.
    """

    def __init__(self) -> None:
        self._around: dict[str, int] = {}
        self._right = self._wrong = 0

    def problem(self, prompt: str, sent: int, counted: int | None) -> str | None:
        """Return what is wrong with `counted` prompt tokens for a picture of `sent`, if anything.

        A server that does not count tokens cannot be checked. Raises `EngineError` if no count is ever right.
        """
        if counted is None:
            return None
        around = counted - sent
        if 0 <= around <= _TEMPLATE + len(prompt.encode()) and self._around.setdefault(prompt, around) == around:
            self._right += 1
            return None
        self._wrong += 1
        form = (
            "the server read {counted} tokens where a picture of {sent} was sent: it resizes pictures or has another "
            "template"
        )
        reason = Reason(form, counted=counted, sent=sent)
        if self._wrong >= _SURE and not self._right:
            raise EngineError(f"{reason}; check which model it serves and its mm_processor")
        return reason


_DAY = 7
"""Column of the day on which an answer was last used."""
_BUSY_SECONDS = 60.0
"""Most seconds to wait for another writer: a page's answers take a millisecond to write unless a process is stopped."""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """A model's words for a region, with attempts, seconds and the image's scale."""

    answer: ChatAnswer
    attempts: int
    seconds: float
    scale: float


def region_key(pixels: NDArray[np.uint8], request: str) -> bytes:
    """Return the SHA-256 of a crop's pixels and shape, and of the `request` fingerprint."""
    digest = hashlib.sha256(f"{request} {pixels.shape}".encode())
    digest.update(pixels.data)
    return digest.digest()


class AnswerCache:
    """A SQLite file of answers that processes and threads share.

    A region with the same pixels and the same request is not read again. Losing the file costs time, never results. It
    holds only good answers: a failed region is requested again by the next reading of its page. `close` keeps at most
    `size` answers, dropping the least recently used ones. Raises `EngineError` if the file cannot be used.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self._path = folder / "answers.sqlite"
        self._size = size
        # SQLite does not wait for other processes while a file is switched to or from a write-ahead log.
        self._alone = FileLock(f"{self._path}.lock", timeout=_BUSY_SECONDS)
        # With such a log, readers and one writer never wait for each other, and a kill leaves whole transactions.
        with _usable(self._path):
            folder.mkdir(parents=True, exist_ok=True)
        with _usable(self._path), self._alone:
            self._database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS readings ("
                "key BLOB PRIMARY KEY, text TEXT NOT NULL, finish_reason TEXT NOT NULL,"
                " tokens INTEGER NOT NULL, attempts INTEGER NOT NULL, seconds REAL NOT NULL, scale REAL NOT NULL,"
                " day INTEGER NOT NULL) WITHOUT ROWID"
            )
        self._lock = threading.Lock()

    def find(self, keys: Iterable[bytes]) -> dict[bytes, CachedAnswer]:
        """Return the answers to those of `keys` that are in the cache."""
        wanted = list(keys)
        marks = ",".join("?" * len(wanted))
        with self._lock, _usable(self._path), self._database:
            rows = self._database.execute(f"SELECT * FROM readings WHERE key IN ({marks})", wanted).fetchall()
            today = _today()
            if any(row[_DAY] < today for row in rows):
                self._database.execute(f"UPDATE readings SET day = ? WHERE key IN ({marks})", [today, *wanted])
        return {row[0]: CachedAnswer(ChatAnswer(row[1], row[2], row[3]), *row[4:_DAY]) for row in rows}

    def add(self, answers: Mapping[bytes, CachedAnswer]) -> None:
        """Add a page's answers, either all or none."""
        today = _today()
        rows: list[tuple[bytes, str, str, int, int, float, float, int]] = []
        for key, cached in answers.items():
            answer = cached.answer
            words = answer.text, answer.finish_reason, answer.tokens
            rows.append((key, *words, cached.attempts, cached.seconds, cached.scale, today))
        with self._lock, _usable(self._path), self._database:
            self._database.executemany("INSERT OR REPLACE INTO readings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def close(self) -> None:
        """Remove the answers that exceed the size, and close the file."""
        with self._lock, _usable(self._path), self._alone:
            (count,) = self._database.execute("SELECT count(*) FROM readings").fetchone()
            if count > self._size:
                with self._database:
                    self._database.execute(
                        "DELETE FROM readings WHERE key IN"
                        " (SELECT key FROM readings ORDER BY day DESC, key LIMIT -1 OFFSET ?)",
                        [self._size],
                    )
            self._database.close()


def _today() -> int:
    """Return the days since 1970; anything finer would write at every look-up."""
    return int(time.time() // 86_400)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and the file system into a one-line `EngineError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:  # a lock that is not acquired in time raises an OSError
        raise EngineError(
            f"{path} cannot be used ({error}): delete it, it only saves time, or free the disk it is on"
        ) from error
