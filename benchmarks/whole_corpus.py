"""Check that each page of a corpus of the reference's size comes out once.

    python -m benchmarks.whole_corpus [--pages N] [--shards N]

Builds all assets of 40,781 made-up tiny pages in 35 shards, including the release, in one Dagster run on SQLite, with
the real store and loop and engines that take no time. Some pages are no images, some lose a region, some have no
layout. Then it compares every row with the source, builds again with nothing changed, and prints what was lost, doubled
or wrong, rows by state, seconds, peak memory and open files.
"""

import argparse
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.synthetic_corpus import Usage, faults, make_home, materialize, settings_of, states, write
from kopub.states import State


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40_781)
    parser.add_argument("--shards", type=int, default=35)
    parser.add_argument("--queries", type=int, default=600)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder, "source"), arguments.pages, arguments.shards, arguments.queries)
        home = make_home(Path(folder, "home"), source)
        before = Usage.now()
        built, built_cpu = _timed(lambda: materialize(home))
        after = Usage.now()
        again, again_cpu = _timed(lambda: materialize(home))
        at_the_end = Usage.now()
        settings = settings_of(home)
        rows = Table(title=f"{arguments.pages:,} pages in {arguments.shards} shards: rows out, by state")
        for column in ("", "in", *State, "out"):
            rows.add_column(column, justify="right" if column else "left")
        for asset, counted in states(settings).items():
            each = (f"{counted[state]:,}" for state in State)
            rows.add_row(asset, f"{settings.corpus.manifest.rows:,}", *each, f"{counted.total():,}")
        console.print(rows)
        console.print(f"rows: {faults(settings)}")
    console.print(f"everything: {built:.0f} s, {built_cpu:.0f} s of a core; again: {again:.0f} s, {again_cpu:.0f} s")
    console.print(f"peak memory: {after.peak_mib:,.0f} MiB, after the second run {at_the_end.peak_mib:,.0f} MiB")
    console.print(f"open files: {before.open_files} before, {after.open_files} and {at_the_end.open_files} after")


def _timed(work) -> tuple[float, float]:
    """Return the wall-clock and CPU seconds of `work`."""
    started, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - used


if __name__ == "__main__":
    main()
