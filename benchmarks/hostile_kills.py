"""Check that a run killed repeatedly leaves nothing lost, doubled or wrong.

    python -m benchmarks.hostile_kills [--kills N] [--pages N] [--seed N]

A process materializes all assets of a made-up corpus, including the release, with Dagster on SQLite, and gets SIGKILL
at a random moment; then the next one continues, until one finishes. The tables and released files are compared row by
row with those of an undisturbed run, and the texts with the bytes of the pages. Then it starts again in an empty home,
until there were enough kills. No row that was on the disk may be missing after a later kill, or be computed again.
"""

import argparse
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections import Counter
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.synthetic_corpus import Faults, Usage, faults, make_home, materialize, settings_of, write
from kopub.config.settings import Settings
from kopub.release.files import part_path
from kopub.store import ledger
from kopub.tables.graph import GRAPH

SECONDS_EACH = 0.02
"""Seconds to read a page, so that some kills happen in the middle of reading."""
RUNS = 3
"""A process is killed within the time of an undisturbed run divided by this, so that several are needed to finish."""
USAGE = "usage"


def child(home: str) -> None:
    """Materialize everything, in the process that is killed."""
    materialize(Path(home), SECONDS_EACH)
    usage = Usage.now()
    Path(home, USAGE).write_text(f"{usage.peak_mib:.0f} MiB, {usage.open_files} open files")


def run(context: ForkServerContext, home: Path, until: float | None = None) -> bool:
    """Start the process, kill it after `until` seconds, and return whether it had finished."""
    process = context.Process(target=child, args=(str(home),))
    process.start()
    process.join(until)
    if process.is_alive() and process.pid:
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        raise SystemExit(f"a run ended with {process.exitcode}, and was not killed")
    return process.exitcode == 0


def compare(made: Settings, wanted: Settings, found: Faults) -> None:
    """Count the rows of all tables, including released files, that differ from the other run's."""
    for asset, declared in GRAPH.by_name.items():
        # An asset that the profile turns off has no table.
        for shard in sorted(wanted.store.published(asset)):
            key = declared.table.key
            rows, others = (
                [row for row in settings.store.read(asset, shard).to_pylist() if not _of_a_run(row, shard)]
                for settings in (made, wanted)
            )
            found.count([row[key] for row in others], [row[key] for row in rows])
            right = {row[key]: row for row in others}
            found.wrong += sum(row != right[row[key]] for row in rows if row[key] in right)


def _of_a_run(row: dict[str, Any], shard: str) -> bool:
    """Return whether the row is the released file that says which run made what."""
    return row.get("path") == part_path("lineage", shard)


def finished(settings: Settings) -> set[tuple[str, str, str]]:
    """Return the rows on disk, in a table or journal, as (asset, id, fingerprint)."""
    found = set()
    for asset, declared in GRAPH.declared(settings.resources).items():
        key = declared.table.key
        if key == "path":
            continue
        for shard in settings.corpus.manifest.keys:
            tables = [settings.store.journal(asset, shard, declared.schema).rows()]
            if settings.store.has(asset, shard):
                tables.append(settings.store.read(asset, shard))
            found |= {
                (asset, row[key], row["fingerprint"])
                for table in tables
                for row in table.select([key, "fingerprint"]).to_pylist()
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--pages", type=int, default=90)
    parser.add_argument("--shards", type=int, default=3)
    parser.add_argument("--seed", type=int, default=13)
    arguments = parser.parse_args()
    console = Console()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.hostile_kills", "definitions"])
    moments = random.Random(arguments.seed)
    kills = rounds = gone = twice = 0
    found = Faults()
    with tempfile.TemporaryDirectory() as folder:
        source = write(Path(folder, "source"), arguments.pages, arguments.shards, queries=10)
        home = untouched = make_home(Path(folder, "untouched"), source)
        started = time.perf_counter()
        run(context, untouched)
        whole = time.perf_counter() - started
        while kills < arguments.kills:
            rounds += 1
            home = make_home(Path(folder, f"killed-{rounds}"), source)
            settings, before = settings_of(home), set[tuple[str, str, str]]()
            while kills < arguments.kills and not run(context, home, moments.uniform(0, whole / RUNS)):
                kills += 1
                now = finished(settings)
                gone += len(before - now)
                before = now
            if not run(context, home):
                raise SystemExit("the last run was killed by somebody else")
            found += faults(settings)
            compare(settings, settings_of(untouched), found)
            twice += _computed_twice(settings)
        console.print(f"{kills} kills of {rounds} homes with {arguments.pages} pages in {arguments.shards} shards")
        console.print(
            f"rows: {found}; finished and gone after a later kill: {gone}; entered twice as computed: {twice}"
        )
        console.print(f"an undisturbed run: {whole:.1f} s, {Path(untouched, USAGE).read_text()}")
        console.print(f"the last run after kills: {Path(home, USAGE).read_text()}")


def _computed_twice(settings: Settings) -> int:
    """Return the number of rows with several entries of one recipe in the ledger."""
    entries: Counter[tuple[str, str, str]] = Counter()
    for asset, declared in GRAPH.by_name.items():
        if declared.table.key == "path":
            continue
        for shard in settings.corpus.manifest.keys:
            for row in ledger.read(settings.store, asset, shard).to_pylist():
                entries[asset, row["row_id"], row["fingerprint"]] += 1
    return sum(count - 1 for count in entries.values())


if __name__ == "__main__":
    main()
