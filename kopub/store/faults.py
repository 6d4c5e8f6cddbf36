"""Storage faults: transient ones are retried, others become one-line errors."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from kopub.errors import ConfigError, StorageAway, StoreError, first_line
from kopub.files import cannot_write

RETRY_TIMEOUT_S = 90.0
"""Seconds for which a call is retried, so that storage that is away for a minute costs no shard."""
_LONGEST_PAUSE = 8.0
_PASSING_NUMBERS = frozenset({errno.EBUSY, getattr(errno, "EREMOTEIO", errno.EIO)})
"""The errno by which s3fs reports 409 and 503, and the one for 500."""
_PASSING_NAMES = frozenset(
    {
        *("HTTPClientError", "EndpointConnectionError", "ResponseParserError", "IncompleteReadError"),
        *("ClientConnectionError", "ClientPayloadError", "ConnectTimeoutError", "IncompleteRead"),
    }
)
"""Class names from the clients' own libraries, which are imported only if they are used."""
_FULL_CODES = frozenset(
    {"QuotaExceeded", "InsufficientCapacity", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "507"}
)
"""The codes of Ceph, Wasabi, MinIO and others for a full bucket or storage; s3fs knows none of them."""
_CLIENTS = frozenset({"aiobotocore", "aiohttp", "azure", "botocore", "gcsfs", "google"})
"""Libraries whose exceptions are not subclasses of `OSError`."""

T = TypeVar("T")


def is_transient(error: BaseException) -> bool:
    """Return whether the same call may succeed a little later."""
    if isinstance(error, OSError) and error.errno in _PASSING_NUMBERS:
        return True
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    return any(kind.__name__ in _PASSING_NAMES for kind in type(error).__mro__)


def is_damage(error: Exception) -> bool:
    """Return whether Arrow reports that the bytes of a file are damaged."""
    if isinstance(error, OSError):
        # A failed checksum or a broken footer is an OSError without a number.
        return type(error) is OSError and error.errno is None and not is_transient(error)
    return isinstance(error, pa.ArrowException | UnicodeDecodeError)


def is_taken(error: OSError) -> bool:
    """Return whether storage refused a write because the file is not what the writer expected.

    It exists, or was changed or removed. Ceph does not say which condition failed.
    """
    return isinstance(error, FileExistsError) or error_code(error) in ("PreconditionFailed", "412", "NoSuchKey")


def retry(call: Callable[[], T], patience: float | None = None) -> T:
    """Return the result of `call`, retried while its fault is transient."""
    from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

    again = Retrying(
        retry=retry_if_exception(is_transient),
        stop=stop_after_delay(RETRY_TIMEOUT_S if patience is None else patience),
        wait=wait_random_exponential(multiplier=0.25, max=_LONGEST_PAUSE),
        reraise=True,
    )
    return again(call)


@contextmanager
def translate_errors(path: str, doing: str) -> Iterator[None]:
    """Raise `StoreError` for a storage fault.

    `FileExistsError` passes through, and so does `FileNotFoundError`, except for a write: then the bucket is missing.
    """
    try:
        yield
    except (FileExistsError, StoreError):
        raise
    except FileNotFoundError as error:
        if doing != "written":
            raise
        raise StorageAway(
            f"{path} cannot be written, there is no such bucket: make it, or correct store.url"
        ) from error
    except Exception as error:
        if is_damage(error) or not (
            isinstance(error, OSError | TimeoutError)
            or is_transient(error)
            or any(kind.__module__.partition(".")[0] in _CLIENTS for kind in type(error).__mro__)
        ):
            raise
        kind = StorageAway if is_transient(error) else StoreError
        raise kind(_line(path, doing, error)) from error


def _line(path: str, doing: str, error: Exception) -> str:
    if error_code(error) in _FULL_CODES:
        return (
            f"{path} was not written, the storage has no room for it ({_reason(error)}); what is finished is kept: "
            "make room or raise the quota, and run again"
        )
    if isinstance(error, PermissionError) and os.path.isabs(path):
        return f"{path} cannot be {doing} ({_reason(error)}): correct its permissions and run again"
    if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
        return f"{path} cannot be {doing} with these credentials ({_reason(error)}): correct them and run again"
    if is_transient(error):
        return (
            f"{path} cannot be {doing}, the storage does not answer ({_reason(error)}); what is finished is kept: "
            "run again when it does"
        )
    if isinstance(error, OSError) and doing == "written":
        return cannot_write(path, error)
    return f"{path} cannot be {doing} ({_reason(error)})"


def _reason(error: Exception) -> str:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else first_line(error)
    # Ceph sends only a code.
    return reason if reason not in ("", "None") else error_code(error) or type(error).__name__


def error_code(error: BaseException) -> str | None:
    """Return the storage's error code, or None if the client keeps none."""
    answer = getattr(error.__cause__, "response", None) or getattr(error, "response", None) or {}
    return answer.get("Error", {}).get("Code") if isinstance(answer, dict) else None


def require_reachable(url: str) -> None:
    """Raise a one-line `ConfigError` if the store at `url` cannot be opened or listed.

    A local folder is always reachable.
    """
    try:
        fs, root = fsspec.core.url_to_fs(url)
        if not isinstance(fs, LocalFileSystem):
            fs.invalidate_cache()
            fs.ls(root)
    except FileNotFoundError as error:
        if error_code(error) == "NoSuchBucket":
            raise ConfigError(f"store.url {url}: there is no such bucket: make it, or correct store.url") from None
        # A store that is still empty has no folder yet.
        return
    except ImportError as error:
        raise ConfigError(f"store.url {url} needs another package ({first_line(error)}): install it") from None
    except Exception as error:
        # Each object store has errors of its own, and most of them are not OSErrors.
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ConfigError(
            f"store.url {url} cannot be read ({reason}): check the address, the credentials and the network"
        ) from None
