"""Calls to the Hub, with retries and one-line errors that never hold a token."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar

import httpx2
from huggingface_hub import get_token
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
    parse_ratelimit_headers,
)
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt
from tenacity.wait import wait_random_exponential

from kopub.errors import HubError, KopubError, visible
from kopub.release.files import ChangedRelease
from kopub.states import phrase

Result = TypeVar("Result")

_ATTEMPTS = 6
"""Attempts on top of the client's own five for most requests: at most half an hour of trouble in all."""
_LONGEST_WAIT = 900.0
"""Seconds. The Hub's limits are per five minutes; a request to wait for more than three periods means to come back."""
_BACKOFF = wait_random_exponential(multiplier=1, max=60)

_AGAIN = frozenset(
    {
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.CONFLICT,
        HTTPStatus.PRECONDITION_FAILED,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
)
"""Temporary errors besides those of the server itself."""
_SIGNED = re.compile(r"(?<=\S)\?\S+")
_MOST_QUOTED = 200
"""Most characters quoted from the Hub."""
_FULL = ("quota", "storage limit", "storage space")
_FULL_STATUS = frozenset({HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.INSUFFICIENT_STORAGE})
_REFUSALS: dict[int, str] = {
    HTTPStatus.UNAUTHORIZED: "the Hub does not take the token: run `hf auth login`, or set HF_TOKEN anew",
    HTTPStatus.PRECONDITION_FAILED: "somebody else commits to it at the same time; run it again",
    HTTPStatus.TOO_MANY_REQUESTS: "the Hub's limit of requests is used up; what was sent stays, run it again later",
}


def call_hub(work: Callable[[], Result], repo: str, log: Callable[[str], None]) -> Result:
    """Return the result of `work()`, retried after temporary errors.

    These are a refused commit, a limit, or a failure of the server or the network. Each time `work` has to look at the
    repository again and do only what remains. Waits as long as the Hub requests. Raises `HubError`, one line.
    """

    def say(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        pause = state.next_action.sleep if state.next_action else 0.0
        log(f"{explain_hub_error(error, repo).removesuffix('; run it again')}; trying again in {pause:.0f} s")

    retrying = Retrying(
        stop=stop_after_attempt(_ATTEMPTS),
        wait=_pause,
        retry=retry_if_exception(_is_transient),
        before_sleep=say,
        reraise=True,
    )
    try:
        with _quiet():
            return retrying(work)
    except KopubError:
        raise
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        # Not chained, since an error of the client can contain signed addresses and headers.
        raise HubError(explain_hub_error(error, repo)) from None


def explain_hub_error(error: BaseException | None, repo: str) -> str:
    """Explain on one line what is wrong with the repository, and what to do."""
    error = _cause(error)
    if isinstance(error, KopubError):
        return str(error)
    if isinstance(error, HfHubHTTPError):
        message, status = error.server_message or "no reason given", error.response.status_code
    else:
        message, status = str(error), 0
    # Neither the token may be shown nor the queries of addresses, which contain the storage's signatures.
    token = get_token()
    message = visible(_SIGNED.sub("?…", message.replace(token, "***") if token else message), _MOST_QUOTED)
    # The client reports errors of large file storage as ValueError.
    if status in _FULL_STATUS or any(word in message.lower() for word in _FULL):
        form = "the storage of {owner} on the Hub is full: free some or enlarge it, then run it again"
        reason = phrase(form, repo.partition("/")[0])
    elif not status:
        return phrase("{repo}: the Hub cannot be reached, or its client gave up ({error}); run it again", repo, message)
    elif isinstance(error, RevisionNotFoundError):
        reason = "it has no such branch, tag or commit"
    elif isinstance(error, RepositoryNotFoundError) or status == HTTPStatus.NOT_FOUND:
        reason = (
            "no such dataset that the token may see: make it on the Hub or with hub.create, and log in with HF_TOKEN"
        )
    elif status == HTTPStatus.FORBIDDEN:
        reason = phrase("the token may not write to it ({error}): log in with one that has write access", message)
    else:
        form = "the Hub answered {status} ({error}); what was sent stays, run it again"
        reason = _REFUSALS.get(status) or phrase(form, status, message)
    return phrase("{repo}: {reason}", repo, reason)


def _is_transient(error: BaseException | None) -> bool:
    error = _cause(error)
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        passes = status in _AGAIN or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in _FULL_STATUS)
        return passes and (_retry_after(error) or 0.0) <= _LONGEST_WAIT
    return isinstance(error, (ChangedRelease, httpx2.TransportError))


def _pause(state: RetryCallState) -> float:
    seconds = _retry_after(state.outcome.exception() if state.outcome else None)
    return _BACKOFF(state) if seconds is None else seconds


def _retry_after(error: BaseException | None) -> float | None:
    """Return the seconds for which the Hub requests a wait.

    They come from `Retry-After`, or are the time until its rate limit is reset.
    """
    response: Any = getattr(_cause(error), "response", None)
    if response is None:
        return None
    after = response.headers.get("Retry-After", "")
    if after.isdigit():
        return float(after)
    limit = parse_ratelimit_headers(response.headers)
    return float(limit.reset_in_seconds) if limit and limit.remaining == 0 else None


def _cause(error: BaseException | None) -> BaseException | None:
    """Return the Hub's own error, if the client wrapped it in another."""
    cause = error.__cause__ if error else None
    return cause if isinstance(cause, HfHubHTTPError) and not isinstance(error, HfHubHTTPError) else error


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client's own log lines and progress bars.

    They contain signed addresses, and flood a run's log.
    """
    client, silent = logging.getLogger("huggingface_hub"), are_progress_bars_disabled()
    level = client.level
    client.setLevel(logging.CRITICAL)
    disable_progress_bars()
    try:
        yield
    finally:
        client.setLevel(level)
        if not silent:
            enable_progress_bars()
