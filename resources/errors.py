"""The one error taxonomy. Every message is one line that says what is wrong and what to do."""

from collections.abc import Collection

STOPPED = "stopped; finished pages are kept: run the same command again to go on"
"""What a command says that Ctrl-C ended."""
STOPPED_BY_HAND = 130
"""Its exit code, as shells have it: 128 and the number of the signal."""

_ALIKE, _SUGGESTED = 0.6, 3
"""A name with two of five characters wrong is another name."""


class KopubError(Exception):
    """Something a person has to put right; its message is the whole report."""


class ConfigError(KopubError):
    """A profile, a key or a value that cannot be used."""


class SourceError(KopubError):
    """Pages or queries that cannot be read as a corpus."""


class StoreError(KopubError):
    """A table that cannot be written or read; what was finished before is still there."""


class EngineError(KopubError):
    """An engine that cannot run at all: no page is to blame, and the next run tries again."""


class UndecodableImage(KopubError):
    """Bytes that are not a page image; only new bytes can change that."""


class HubError(KopubError):
    """A repository that cannot be read or written; nothing that is half there is ever tagged."""


class GateClosed(KopubError):
    """A made table that must not be published; the one before stays in place."""


def did_you_mean(name: str, known: Collection[str]) -> str:
    """`; did you mean ...?` with the names most like one that does not exist, by edit distance; empty for none."""
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    scorer = Levenshtein.normalized_similarity
    near = process.extract(name, known, scorer=scorer, limit=_SUGGESTED, score_cutoff=_ALIKE)
    return f"; did you mean {' or '.join(str(each) for each, _, _ in near)}?" if near else ""
