"""Probes of a server: it has to generate or embed something. Standard library only."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

_WHITE = (
    "data:image/png;base64,"
    "iVBORw0KGgoAAAANSUhEUgAAAEAAAABACAAAAACPAi4CAAAAKUlEQVR42u3MQREAAAwCIPuX1hD77SAA6VEEAoFAIBAIBAKBQCAQfA8Gpwvw4qrwDDIAAAAASUVORK5CYII="
)
"""64 x 64 white pixels: the smallest picture that the models take without enlarging it much."""

_PROGRESS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total")
"""Counters that only a working engine raises."""

_SCRAPE_SECONDS = 5.0
"""/metrics is answered by the front process at once, however long the queue is."""

_WORDS = 300
"""Bytes of an error's body that are kept in a message of one line."""

# A proxy in the environment is for the world outside, never for a server of one's own.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NotListening(Exception):
    """Nothing listens at the URL, or not yet."""


class BadProbe(Exception):
    """An answer of another status than 200.

    The message has the status and the server's own words.
    """

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"HTTP {status}: {words}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Target:
    """One server to send requests to; `runner` is vLLM's generate or pooling."""

    url: str
    api_key: str
    model: str
    runner: str
    images: bool


def probe(target: Target, seconds: float) -> None:
    """Have one token generated, or one text embedded.

    Raises `NotListening`, `BadProbe` with the server's own words, or `TimeoutError`.
    """
    if target.runner == "pooling":
        _post(target, "/v1/embeddings", {"input": "a"}, seconds)
        return
    content: list[dict[str, Any]] = [{"type": "text", "text": "a"}]
    if target.images:
        content.insert(0, {"type": "image_url", "image_url": {"url": _WHITE}})
    messages = [{"role": "user", "content": content}]
    _post(target, "/v1/chat/completions", {"messages": messages, "max_tokens": 1}, seconds)


def is_alive(target: Target, seconds: float) -> bool:
    """Return whether the server generates or embeds anything within `seconds`.

    A probe may wait behind a long queue, so a server whose counters move in the meantime is alive.
    """
    before = _progress(target)
    try:
        probe(target, seconds)
    except TimeoutError:
        return before is not None and _progress(target) not in (None, before)
    except (NotListening, BadProbe):
        return False
    return True


def version(target: Target) -> str:
    """Return the server's own vLLM version."""
    return str(json.loads(_get(target, "/version", _SCRAPE_SECONDS))["version"])


def served_models(target: Target) -> list[str]:
    """Return the model names that requests may carry."""
    return [str(model["id"]) for model in json.loads(_get(target, "/v1/models", _SCRAPE_SECONDS))["data"]]


def metrics_text(target: Target) -> str:
    """Return the server's counters in Prometheus' text format."""
    return _get(target, "/metrics", _SCRAPE_SECONDS)


def _progress(target: Target) -> list[str] | None:
    try:
        return [line for line in metrics_text(target).splitlines() if line.startswith(_PROGRESS)]
    except (NotListening, BadProbe, TimeoutError):
        return None


def _get(target: Target, path: str, seconds: float) -> str:
    return _open(target, urllib.request.Request(target.url + path), seconds)


def _post(target: Target, path: str, body: dict[str, Any], seconds: float) -> None:
    data = json.dumps({"model": target.model, **body}).encode()
    _open(target, urllib.request.Request(target.url + path, data, {"Content-Type": "application/json"}), seconds)


def _open(target: Target, request: urllib.request.Request, seconds: float) -> str:
    if target.api_key:
        request.add_header("Authorization", f"Bearer {target.api_key}")
    try:
        with _direct.open(request, timeout=seconds) as response:
            return response.read().decode()
    except urllib.error.HTTPError as error:
        words = error.read(_WORDS).decode(errors="replace")
        raise BadProbe(error.code, " ".join(words.split())) from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, TimeoutError):
            raise TimeoutError(f"no answer within {seconds:g} s") from None
        raise NotListening(str(error.reason)) from None
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    except (OSError, HTTPException) as error:
        raise NotListening(f"{type(error).__name__}: {error}") from None
