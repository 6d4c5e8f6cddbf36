"""The errors of this project: one line each, with what to do."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Any, ClassVar

from kopub.states import Reason, State, phrase

STOPPED = "stopped; finished pages are kept: run the same command again to go on"
"""The last line of a command that Ctrl-C ended."""
STOPPED_BY_HAND = 130
"""The exit code of such a command, as in shells: 128 plus the number of the signal."""

_CV_NO_MEMORY = -4
"""`cv2.Error.StsNoMem`."""
_ALIKE, _SUGGESTED = 0.6, 3
"""A name with more than two of five characters wrong is another name; two swapped characters count as one."""


class KopubError(Exception):
    """An error that a person has to put right; its message is the whole report.

    With values, named or in the order of their names, the message is the form of a `Reason`.
    """

    def __init__(self, message: str = "", /, *ordered: Any, **values: Any) -> None:
        reason = phrase(message, *ordered) if ordered else Reason(message, **values) if values else message
        super().__init__(reason)


class StoppedByHand(KopubError):
    """The end by Ctrl-C of a command that kept the work its message names."""


class ConfigError(KopubError):
    """A profile, a key or a value that cannot be used."""


class SourceError(KopubError):
    """Pages or queries that cannot be read as a corpus."""


class StoreError(KopubError):
    """A table that cannot be written or read; work finished before is still there."""


class StorageAway(StoreError):
    """A storage that does not answer, or a missing bucket.

    Every other request to it fails too.
    """


class MissingTable(StoreError):
    """A table, or a version of it, that does not exist."""


class DamagedTable(StoreError):
    """A table whose file is not what was written."""


class BusyTable(StoreError):
    """A table that another process is making at the moment."""


class LockLost(StoreError):
    """A lock that was lost because this process was silent for too long.

    Another process may be making the table now.
    """


class EngineError(KopubError):
    """An engine that cannot run at all.

    No page is to blame, and the next run tries again.
    """


class UndecodableImage(KopubError):
    """Bytes that are not a page image, and never will be.

    `state` is the state in which their page ends.
    """

    state: ClassVar[State] = State.QUARANTINED


class UnreadImage(UndecodableImage):
    """Bytes that could not be decoded this time, for example for lack of memory."""

    state: ClassVar[State] = State.FAILED


class HubError(KopubError):
    """A repository that cannot be read or written.

    An incomplete upload is never tagged.
    """


class ClosedGate(KopubError):
    """A finished table that must not be published; the previous one stays in place."""


def is_of_machine(error: Exception) -> bool:
    """Return whether the machine caused an error, not the bytes.

    For example, memory ran out or a file could not be read.
    """
    # Libraries raise OSError for damaged bytes too, but without an errno; OpenCV has its own error and code.
    without_memory = isinstance(error, MemoryError) or getattr(error, "code", None) == _CV_NO_MEMORY
    return without_memory or (isinstance(error, OSError) and error.errno is not None)


def near_names(name: str, names: Iterable[str]) -> list[str]:
    """Return up to three of the `names`, the nearest by edit distance first."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    matches = process.extract(
        name, list(names), scorer=OSA.normalized_similarity, limit=_SUGGESTED, score_cutoff=_ALIKE
    )
    return [str(candidate) for candidate, _, _ in matches]


def did_you_mean(name: str, names: Iterable[str], in_brackets: bool = False) -> str:
    """Return `; did you mean A or B?` for a name that does not exist.

    ` (did you mean A or B?)` if `in_brackets`, and empty if no name resembles it.
    """
    near = " or ".join(near_names(name, names))
    if not near:
        return ""
    return phrase(" (did you mean {names}?)" if in_brackets else "; did you mean {names}?", near)


ELLIPSIS = "…"
_ROOT = r"(?:file://)?(?:~?/|[A-Za-z]:\\{1,2})"
_PATH = re.compile(
    rf"""(?P<quote>['"`])(?P<quoted>{_ROOT}[^'"`]*[/\\][^'"`]*)(?P=quote)"""
    rf"""|(?<![\w/:.<~]){_ROOT}[^\s'"`,;:()\[\]<>]*[/\\][^\s'"`,;:()\[\]<>]*"""
)
"""An absolute path of at least two parts, in quotes or up to a blank, outside URLs and tags."""
_MODEL_MARK = re.compile(r"<(?=[|｜])|(?<=[|｜])>")
"""Special tokens of chat models are `<|name|>`, in some with full-width bars; a blank turns them into text."""


def visible(text: str, most: int | None = None) -> str:
    """Return `text` in one line, with unprintable characters spelt out.

    It has at most `most` characters.
    """
    line = " ".join(text[: None if most is None else 4 * most].split())
    said = shortened(spelt(line), most)
    # A reason that needs no change stays one, so that it can be told in another language.
    return text if said == text else said


def shortened(line: str, most: int | None) -> str:
    """Return a line of at most `most` characters, cut with an ellipsis."""
    return line if most is None or len(line) <= most else f"{line[: most - 1]}{ELLIPSIS}"


def spelt(text: str) -> str:
    """Return `text` with unprintable characters and invalid UTF-8 bytes spelt out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str, most: int = 40) -> str:
    """Return `text` in quotes, cut if it is long.

    A text with unprintable characters is spelt in ASCII.
    """
    whole = repr(text) if text.isprintable() else ascii(text)
    return whole if len(whole) <= most else f"{whole[:most]}{ELLIPSIS}"


def blanked(text: str) -> str:
    """Return `text` with unprintable characters replaced by blanks, so positions stay valid."""
    return "".join(char if char.isprintable() else " " for char in text)


def counted(count: int, one: str, many: str = "") -> Reason:
    """Return `1 page`, `2 pages` or `1,000 pages`; `many` is an irregular plural."""
    return Reason("{count:,} " + (one if count == 1 else many or f"{one}s"), count=count)


_ADDRESS = re.compile(r"( object)? (at )?0x[0-9a-f]{6,}(?=>)")
"""The address in Python's text for an object, which differs in every process."""


def first_line(error: BaseException | str) -> str:
    """Return the first line of an error's message, or its type where it has none.

    Addresses of objects are left out, because equal errors must have equal reasons.
    """
    said = str(error)
    line = _ADDRESS.sub("", said.strip().partition("\n")[0])
    # As in `visible`, a reason that needs no change stays one.
    return (said if line == said else line) or ("" if isinstance(error, str) else type(error).__name__)


def without_paths(text: str) -> str:
    """Return `text` without folders: the path of a file becomes its name.

    The path of a folder or program becomes an ellipsis. A library's message about a file would reveal the folders of
    the person who ran it.
    """

    def named(path: re.Match[str]) -> str:
        quote = path["quote"] or ""
        name = PurePosixPath((path["quoted"] or path[0]).replace("\\", "/")).name
        return f"{quote}{name if '.' in name.strip('.') else ELLIPSIS}{quote}"

    return _PATH.sub(named, text)


def harmless(text: str, most: int | None = None) -> str:
    """Return `text` in one line without control characters or turn-ending marks.

    It has at most `most` characters.
    """
    text = _MODEL_MARK.sub(lambda mark: "< " if mark[0] == "<" else " >", blanked(text))
    return shortened(" ".join(text.split()), most)
