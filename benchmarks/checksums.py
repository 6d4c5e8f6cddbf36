"""Measure the share of hashing and checksums in a run over tiny pages.

    python -m benchmarks.checksums [--pages 40781] [--shards 35]

The share is largest for tiny pages. The benchmark indexes a corpus of them and makes every table, with engines that
take no time, and clocks every SHA-256: of the indexed files, of the pages each time they are read, and of the tables
when they are written and read. The cost of the checksums of Parquet pages is measured on the run's own tables, with and
without them, and counted as often as the run wrote and read them. It prints CPU seconds, and their share of the run's.
"""

import argparse
import hashlib
import io
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from benchmarks.synthetic_corpus import make_home, materialize, settings_of, write
from kopub.store.table_store import ShardStore

_REPEATS = 5
_PLACES = {
    "kopub.tables.pages_and_layout": "pages, seen first",
    "kopub.pages.page_reader": "pages, each time they are read",
    "kopub.store.table_store": "tables, written and read",
    "kopub.files": "files",
}
"""The modules that hash, and what they hash."""


class Clock:
    """A clock of the CPU seconds of all threads inside the given functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            started = time.thread_time()
            try:
                return work(*given)
            finally:
                self.seconds += time.thread_time() - started

        return call

    def hashing(self) -> SimpleNamespace:
        """Return a clocked `hashlib`, with the functions that the platform uses."""

        def sha256(data: Any = b"") -> SimpleNamespace:
            made = self.timed(hashlib.sha256)(data)
            return SimpleNamespace(update=self.timed(made.update), hexdigest=self.timed(made.hexdigest))

        return SimpleNamespace(sha256=sha256, file_digest=self.timed(hashlib.file_digest))


@contextmanager
def clocked() -> Iterator[dict[str, Clock]]:
    """Yield a clock for each place that hashes."""
    clocks = {what: Clock() for what in _PLACES.values()}
    with ExitStack() as stack:
        for module, what in _PLACES.items():
            stack.enter_context(patch(f"{module}.hashlib", clocks[what].hashing()))
        yield clocks


@contextmanager
def counted() -> Iterator[Counter[tuple[str, str, str]]]:
    """Count how often each table is read and written."""
    often: Counter[tuple[str, str, str]] = Counter()

    def counting(method: Any, what: str) -> Any:
        def call(store: Any, asset: str, shard: str, *given: Any, **named: Any) -> Any:
            often[what, asset, shard] += 1
            return method(store, asset, shard, *given, **named)

        return call

    with (
        patch.object(ShardStore, "read", counting(ShardStore.read, "read")),
        patch.object(ShardStore, "write", counting(ShardStore.write, "write")),
    ):
        yield often


def page_checksums(store: ShardStore, often: Counter[tuple[str, str, str]]) -> float:
    """Return the CPU seconds of Parquet checksums for the counted reads and writes."""

    def written(table: pa.Table, checksum: bool) -> bytes:
        file = io.BytesIO()
        pq.write_table(table, file, compression="zstd", write_page_checksum=checksum)
        return file.getvalue()

    def read(content: bytes, checksum: bool) -> pa.Table:
        return pq.ParquetFile(io.BytesIO(content), page_checksum_verification=checksum).read(use_threads=False)

    seconds = 0.0
    for (what, asset, shard), times in often.items():
        if store.has(asset, shard):
            table = store.read(asset, shard)
            content = written(table, True)
            work, given = (read, content) if what == "read" else (written, table)
            seconds += times * (least(work, given, True) - least(work, given, False))
    return seconds


def least(work: Callable[[Any, bool], Any], given: Any, checksum: bool) -> float:
    """Return the fewest CPU seconds of a few tries."""
    tries = []
    for _ in range(_REPEATS):
        started = time.thread_time()
        work(given, checksum)
        tries.append(time.thread_time() - started)
    return min(tries)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40_781)
    parser.add_argument("--shards", type=int, default=35)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder, "source"), options.pages, options.shards, 600)
        with clocked() as clocks, counted() as often:
            started = time.process_time()
            home = make_home(Path(folder, "home"), source)
            materialize(home)
            whole = time.process_time() - started
        parts = {f"SHA-256 of {what}": clock.seconds for what, clock in clocks.items()}
        parts["checksums of Parquet pages"] = page_checksums(settings_of(home).store, often)
    parts["all of them"] = sum(parts.values())
    shown = Table(
        "", "CPU s", "of the run", title=f"{options.pages:,} pages in {options.shards} shards, {whole:.0f} CPU s"
    )
    for what, seconds in parts.items():
        shown.add_row(what, f"{seconds:.2f}", f"{seconds / whole:.2%}")
    Console().print(shown)


if __name__ == "__main__":
    main()
