"""TEDS within limits of time and memory: the time of a table grows with the square of its cells.

Small tables are compared at once, larger ones in a process of its own that is ended when it takes too long, and the
largest not at all. What was not compared says why, so that it can be counted.
"""

import json
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Self

from resources.errors import EngineError
from resources.evaluation.scorers.table_tree import node_pairs, teds

_AT_ONCE = 10_000
"""Node pairs of two tables of a hundred nodes each: less than a tenth of a second."""
_MOST = 2_250_000
"""Those of two tables of 1,500 nodes: about half a minute and 300 MB. The limit is by size first, so that a table is
cut in every run or in none."""


@dataclass(frozen=True, slots=True)
class Compared:
    """TEDS with and without the text of cells, both None where `cut` says why."""

    teds: float | None
    structure: float | None
    cut: str | None = None


class BoundedTeds:
    """Compares tables, each in at most `seconds`. A context manager: its process ends with it."""

    def __init__(self, seconds: float = 60.0) -> None:
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str] = queue.Queue()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def compare(self, gold: str, text: str) -> Compared:
        """Both scores of two tables, each a whole HTML document. Raises `EngineError` if the process dies by itself."""
        pairs = node_pairs(gold, text)
        if pairs > _MOST and gold != text:
            return Compared(None, None, f"the tables have {pairs:,} pairs of nodes, more than {_MOST:,}")
        if pairs <= _AT_ONCE or gold == text:
            return _both(gold, text)
        return self._in_process(gold, text)

    def _in_process(self, gold: str, text: str) -> Compared:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps([gold, text]) + "\n")
            process.stdin.flush()
            answer = self._answers.get(timeout=self._seconds)
        except queue.Empty:
            self.close()
            return Compared(None, None, f"comparing the tables took more than {self._seconds:g} s")
        except OSError as error:
            answer = ""
            reason = str(error)
        else:
            reason = "it ended"
        if not answer:
            self.close()
            raise EngineError(f"the process that compares tables died: {reason}; run the same command again")
        return Compared(*json.loads(answer))

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            self._answers = queue.Queue()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="surrogatepass",
            )
            threading.Thread(target=_forward, args=(self._process, self._answers), daemon=True).start()
        return self._process


def _forward(process: "subprocess.Popen[str]", answers: "queue.Queue[str]") -> None:
    """Lines of the process as answers, and an empty one at its end. A pipe has no read with a timeout."""
    assert process.stdout is not None
    for line in process.stdout:
        answers.put(line)
    answers.put("")


def _both(gold: str, text: str) -> Compared:
    try:
        return Compared(teds(gold, text), teds(gold, text, structure=True))
    except ValueError:
        # A span that is no number: the official scripts count such a table as not read.
        return Compared(0.0, 0.0)


def _serve() -> None:
    for line in sys.stdin:
        compared = _both(*json.loads(line))
        sys.stdout.write(json.dumps([compared.teds, compared.structure]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _serve()
