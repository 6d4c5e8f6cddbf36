"""The words of the pages, found in the background: whoever searches meanwhile is told how far that is."""

from threading import Lock, Thread
from typing import TYPE_CHECKING

from resources.errors import KopubError

if TYPE_CHECKING:
    from resources.search.options import Mode
    from resources.search.searcher import Searcher


_PATIENCE = 2.0
"""Seconds that a search waits for the words before it says so."""


class WordsAhead:
    """Finds the words that a `searcher` needs. Threads may share it; one of its own does the work."""

    def __init__(self, searcher: "Searcher") -> None:
        self._searcher = searcher
        self._lock = Lock()
        self._finding: Thread | None = None

    def waits(self, mode: "Mode | None") -> tuple[int, int] | None:
        """Shards whose words are known, and all of them, where a search by `mode` has to wait longer than a moment.

        None where it does not, and where it cannot be answered at all: the search itself says why.
        """
        try:
            if not self._searcher.asks_words(mode) or self._searcher.words_are_known():
                return None
        except KopubError:
            return None
        with self._lock:
            if self._finding is None or not self._finding.is_alive():
                self._finding = Thread(target=self._find, name="words", daemon=True)
                self._finding.start()
            finding = self._finding
        while finding.is_alive():
            finding.join(_PATIENCE)
            # Of few pages they come in a moment.
            if finding.is_alive() and (found := self._searcher.words_found) is not None:
                return found
        return None

    def end(self) -> None:
        """Stop finding words; what was found of whole shards is kept."""
        self._searcher.end()
        if self._finding is not None:
            self._finding.join()

    def _find(self) -> None:
        try:
            self._searcher.words()
        except KopubError:
            # The search that waits for them says it.
            return
