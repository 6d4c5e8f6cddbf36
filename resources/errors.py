"""The one error taxonomy. Every message is one line that says what is wrong and what to do."""

from collections.abc import Iterable
from typing import ClassVar

from resources.states import State

STOPPED = "stopped; finished pages are kept: run the same command again to go on"
"""What a command says that Ctrl-C ended."""
STOPPED_BY_HAND = 130
"""Its exit code, as shells have it: 128 and the number of the signal."""

_CV_NO_MEMORY = -4
"""`cv2.Error.StsNoMem`."""
_ALIKE, _SUGGESTED = 0.6, 3
"""A name with more than two of five characters wrong is another name; two that changed places count as one."""


class KopubError(Exception):
    """Something a person has to put right; its message is the whole report."""


class StoppedByHand(KopubError):
    """Ctrl-C ended a command that kept a part of its work; the message says which."""


class ConfigError(KopubError):
    """A profile, a key or a value that cannot be used."""


class SourceError(KopubError):
    """Pages or queries that cannot be read as a corpus."""


class StoreError(KopubError):
    """A table that cannot be written or read; what was finished before is still there."""


class StorageAway(StoreError):
    """A storage that does not answer, or a bucket that is not there: whatever else is asked of it fails too."""


class NotMade(StoreError):
    """A table that has not been made yet."""


class DamagedTable(StoreError):
    """A table whose file is not what was written."""


class TableBusy(StoreError):
    """A table that another process is making just now."""


class LockLost(StoreError):
    """A table that another process may make now, because this one was silent for too long."""


class EngineError(KopubError):
    """An engine that cannot run at all: no page is to blame, and the next run tries again."""


class UndecodableImage(KopubError):
    """Bytes that are not a page image; only new bytes can change that. `state` is how their page ends."""

    state: ClassVar[State] = State.QUARANTINED


class ImageNotRead(UndecodableImage):
    """Bytes that could not be decoded this time, for a reason that is not in them, as lack of memory."""

    state: ClassVar[State] = State.FAILED


class HubError(KopubError):
    """A repository that cannot be read or written; nothing that is half there is ever tagged."""


class GateClosed(KopubError):
    """A made table that must not be published; the one before stays in place."""


def is_of_machine(error: Exception) -> bool:
    """Whether an error says that memory ran out or a file could not be read: nothing about the bytes."""
    # Libraries raise OSError for damaged bytes too, without a number; OpenCV has an error and a code of its own.
    without_memory = isinstance(error, MemoryError) or getattr(error, "code", None) == _CV_NO_MEMORY
    return without_memory or (isinstance(error, OSError) and error.errno is not None)


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Up to three of the `known` names, the nearest by edit distance first."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    found = process.extract(name, list(known), scorer=OSA.normalized_similarity, limit=_SUGGESTED, score_cutoff=_ALIKE)
    return [str(candidate) for candidate, _, _ in found]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean A or B?` with the names most like one that does not exist; empty for none."""
    near = near_names(name, known)
    return f"; did you mean {' or '.join(near)}?" if near else ""
