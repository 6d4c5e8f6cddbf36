"""Measure the cost of the platform without its engines, and of a run without work.

    python -m benchmarks.overhead [CORPUS] [--pages-per-shard N]

Builds all eight assets of CORPUS (default: the samples) with the current profile in a new home, in one
run on a SQLite instance. It clocks, within that run, the engines, the code that reads the source and
writes the release, and the code that opens the release as its users will (once a run, however many
pages). The rest is Dagster, the store and the checks. Then it builds again in the same process with
nothing changed, which is the fixed cost of a run, and once more from the command line.

CORPUS is packed into shards of N pages (default: all in one). A shard of the reference corpus has
1,165: the last line gives the measured parts for that size.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from kopub.pages.corpus import Corpus
from kopub.pages.indexing import index

ROOT = Path(__file__).resolve().parent.parent
REFERENCE_SHARD = 1165
"""Pages of a shard of the reference, which has 40,781 in 35 shards."""


class Stopwatch:
    """A clock of the total seconds spent inside some methods."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._running = False

    def call(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return `method`, clocked."""

        def timed(*args: Any) -> Any:
            started = time.perf_counter()
            try:
                return method(*args)
            finally:
                self.seconds += time.perf_counter() - started

        return timed

    def iterate(self, method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        """Return `method`, clocked while it makes each item; nested methods count once."""

        def timed(*args: Any, **named: Any) -> Iterator[Any]:
            results = iter(method(*args, **named))
            while True:
                outermost, self._running = not self._running, True
                started = time.perf_counter()
                try:
                    result = next(results)
                except StopIteration:
                    return
                finally:
                    if outermost:
                        self.seconds += time.perf_counter() - started
                        self._running = False
                yield result

        return timed


def pack(source: str, folder: Path, pages_per_shard: int | None) -> str:
    """Pack the unchanged pages of `source` into Arrow files, and return their folder."""
    index(source, folder / "indexed")
    corpus = Corpus(home=str(folder / "indexed"))
    pages = [
        {"id": row.page_id, "image": {"bytes": bytes(row.data), "path": None}}
        for shard in corpus.manifest.keys
        for row in corpus.rows(shard)
        if row.data is not None and row.problem is None
    ]
    (folder / "packed").mkdir()
    size = pages_per_shard or len(pages)
    for start in range(0, len(pages), size):
        table = pa.Table.from_pylist(pages[start : start + size])
        with pa.ipc.new_stream(str(folder / "packed" / f"pages-{start}.arrow"), table.schema) as writer:
            writer.write_table(table)
    return str(folder / "packed")


def clock() -> tuple[Stopwatch, Stopwatch, Stopwatch]:
    """Return stopwatches of engines, of source and release, and of opening the release."""
    from kopub.config.settings import load_settings
    from kopub.pages import inspection
    from kopub.release import verify as release_checks

    settings, engines, ends, opening = load_settings(), Stopwatch(), Stopwatch(), Stopwatch()
    for engine, methods in (
        (settings.layout, ["detect"]),
        (settings.recognition, ["read"]),
        (settings.embedding, ["embed_images", "embed_texts", "embed_queries"]),
    ):
        for method in methods:
            setattr(type(engine), method, engines.iterate(getattr(type(engine), method)))
    type(settings.corpus).rows = ends.iterate(type(settings.corpus).rows)
    inspection.inspect = ends.call(inspection.inspect)
    for method in ("publish", "describe"):
        setattr(type(settings.release), method, ends.call(getattr(type(settings.release), method)))
    release_checks.verify = opening.iterate(release_checks.verify)
    return engines, ends, opening


def build(first: str, last: str) -> float:
    """Build everything in this process, and return the seconds of the whole run."""
    import dagster as dg

    from kopub_assets.definitions import definitions
    from kopub_assets.running.engines import range_tags

    with dg.DagsterInstance.get() as instance:
        job = definitions().resolve_implicit_global_asset_job_def()
        started = time.perf_counter()
        job.execute_in_process(instance=instance, tags=range_tags(first, last))
        return time.perf_counter() - started


def rerun(keys: str) -> float:
    """Return the seconds of the command line for all assets and shards."""
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", "*", "--partition-range", keys]
    started = time.perf_counter()
    subprocess.run([*command, "-m", "definitions"], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", default=str(ROOT / "samples"), help="a source as `kopub index` takes it")
    parser.add_argument("--pages-per-shard", type=int)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"KOPUB_HOME": folder, "DAGSTER_HOME": f"{folder}/dagster"}
        Path(folder, "dagster").mkdir()
        shutil.copy(ROOT / "deploy" / "local" / "dagster.yaml", f"{folder}/dagster")
        manifest = index(pack(arguments.corpus, Path(folder), arguments.pages_per_shard), Path(folder))
        keys, pages = manifest.keys, manifest.rows
        in_engines, in_ends, in_opening = clock()
        total = build(keys[0], keys[-1])
        engines, ends, opening = in_engines.seconds, in_ends.seconds, in_opening.seconds
        fixed = build(keys[0], keys[-1]) - (in_ends.seconds - ends) - (in_opening.seconds - opening)
        command_line = rerun(f"{keys[0]}...{keys[-1]}")
    beyond = total - engines - ends - opening
    table = Table(title=f"{pages} pages in {len(keys)} shards, eight assets")
    for column in ("", "seconds", "per page"):
        table.add_column(column, justify="left" if not column else "right")
    for what, seconds in (
        ("run", total),
        ("inside the engines", engines),
        ("reading the source, writing the release", ends),
        ("opening the release", opening),
        ("Dagster, store and checks", beyond),
        ("the same, nothing changed", fixed),
        ("command line, nothing changed", command_line),
    ):
        table.add_row(what, f"{seconds:.1f}", f"{seconds / pages:.3f}")
    Console().print(table)
    Console().print(f"Dagster, store and checks beyond the engines: {beyond / engines:.1%}")
    scale = REFERENCE_SHARD * len(keys) / pages
    at_reference = (fixed + max(0.0, beyond - fixed) * scale) / (engines * scale)
    Console().print(f"with {REFERENCE_SHARD} pages in each shard, by these figures: {at_reference:.1%}")


if __name__ == "__main__":
    main()
