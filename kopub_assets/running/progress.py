"""What a run tells, while it goes on, to whoever watches it in the same process."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from resources.states import State


class Watcher(Protocol):
    """Called from the threads that make shards; a call must be short."""

    def began(self, asset: str) -> None:
        """An asset's first shard is about to be made."""

    def planned(self, asset: str, shard: str, rows: int) -> None:
        """Rows that are to be computed of a shard, once they are known."""

    def computed(self, asset: str, shard: str, state: State = State.OK) -> None:
        """One row more of a shard has ended, in this state."""

    def published(self, asset: str, shard: str) -> None:
        """A shard's table is in place."""

    def judged(self, closed: Sequence[str]) -> None:
        """The release is in place; `closed` are the gates that this corpus does not pass."""

    def warned(self, asset: str, message: str) -> None:
        """The run goes on, but a person should know."""

    def ended(self, asset: str) -> None:
        """All shards of an asset are through."""


class _Nobody(Watcher):
    """Watches when nobody does."""


NOBODY = _Nobody()
"""For a run within a run, whose assets nobody expects."""
_watching: list[Watcher] = []
"""Of the process, not of a context: shards are made in threads."""


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher` what the runs of this process do, until the context ends."""
    _watching.append(watcher)
    try:
        yield
    finally:
        _watching.remove(watcher)


def watcher() -> Watcher:
    """Whoever watches now."""
    return _watching[-1] if _watching else NOBODY
