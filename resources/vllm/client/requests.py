"""Requests with a picture, and what the answers of a server to requests mean."""

import base64
import json
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from resources.errors import EngineError

_IMAGE = "\0"
"""Stands for the image while the rest is encoded; no prompt holds it."""

Frame = tuple[bytes, bytes]
"""A request before and after its image."""


def image_part(media_type: str) -> dict[str, Any]:
    """Return the part of a chat message that will hold the image."""
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{_IMAGE}"}}


def request_frame(body: Mapping[str, Any]) -> Frame:
    """Return a body with one `image_part`, encoded and split at its image."""
    start, end = json.dumps(body, ensure_ascii=False).split(json.dumps(_IMAGE)[1:-1])
    return start.encode(), end.encode()


def framed(frame: Frame, image: bytes) -> bytes:
    """Return the whole request with an encoded image in its place."""
    start, end = frame
    return b"".join((start, base64.b64encode(image), end))


_SERVER_ERRORS = 500
_SIZE = re.compile(r"maximum (model|context) length|max_model_len|encoder cache size|too (large|long)", re.IGNORECASE)
"""In the messages of vLLM 0.32 for a prompt longer than the context, and a picture larger than the encoder's budget."""
_MESSAGE = 300
"""Characters of a server's message that are kept in a reason."""


class Refused(Exception):
    """The server will not take this request (HTTP 400, 413, 422), however often it is sent."""


class TooLarge(Refused):
    """A smaller request would be taken: HTTP 413, or vLLM's message for a prompt or picture of too many tokens."""


class Unanswered(Exception):
    """The attempts are used up, although the server is alive."""


class TransientError(Exception):
    """A fault that may pass: 408, 429, 5xx, a cut connection, an incomplete answer.

    `retry_after` is in seconds.
    """

    def __init__(self, reason: str, retry_after: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after = retry_after


class AnswerTimeout(TransientError):
    """No answer within the seconds of the retry policy."""


class ServerGone(Exception):
    """The server does not listen, or hangs."""


def check(status: int, headers: Any, content: bytes, url: str) -> None:
    """Raise for every status but 200."""
    if status == HTTPStatus.OK:
        return
    message = f"HTTP {status}: {_message(content)}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND):
        raise EngineError(
            f"{url} does not serve us this model ({message}); check the URL, the key and the model's name"
        )
    if status in (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS) or status >= _SERVER_ERRORS:
        raise TransientError(message, _seconds(headers.get("Retry-After")))
    too_large = status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE or _SIZE.search(message)
    raise TooLarge(message) if too_large else Refused(message)


def _message(content: bytes) -> str:
    """Return the message in an error of the OpenAI form, else the start of the body; one line."""
    text = content.decode("utf-8", "replace")
    try:
        answer = json.loads(text)
        text = str(answer["error"]["message"] if "error" in answer else answer["message"])
    except (ValueError, LookupError, TypeError):
        pass
    return " ".join(text.split())[:_MESSAGE]


def _seconds(retry_after: str | None) -> float | None:
    """Return a `Retry-After` in seconds.

    The form with a date is left to the usual wait.
    """
    try:
        return max(0.0, float(retry_after or ""))
    except ValueError:
        return None
