"""What the platform costs beyond its engines, and how long a run takes that has nothing to do.

    python benchmarks/overhead.py [CORPUS]

Builds all eight assets of CORPUS (default: the samples) with the profile in force into a fresh home,
in one run on a SQLite instance, and clocks the engines inside that same run: what is left is
Dagster, the store and the checks. Then the command line does it again, with nothing changed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent


class Stopwatch:
    """Seconds spent inside the engines, all of them together."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, method: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def timed(*args: Any) -> Iterator[Any]:
            results = method(*args)
            while True:
                started = time.perf_counter()
                try:
                    result = next(results)
                except StopIteration:
                    return
                finally:
                    self.seconds += time.perf_counter() - started
                yield result

        return timed


def build() -> tuple[int, float, float]:
    """Build everything in this process: pages, seconds of the whole run, seconds inside the engines."""
    import dagster as dg

    from definitions import definitions
    from resources.settings import load_settings

    settings, watch = load_settings(), Stopwatch()
    for engine, methods in (
        (settings.layout, ["detect"]),
        (settings.recognition, ["read"]),
        (settings.embedding, ["embed_images", "embed_texts", "embed_queries"]),
    ):
        for method in methods:
            setattr(type(engine), method, watch.around(getattr(type(engine), method)))
    keys = settings.corpus.manifest.keys
    everything = {"dagster/asset_partition_range_start": keys[0], "dagster/asset_partition_range_end": keys[-1]}
    with dg.DagsterInstance.get() as instance:
        job = definitions().resolve_implicit_global_asset_job_def()
        started = time.perf_counter()
        job.execute_in_process(instance=instance, tags=everything)
        return settings.corpus.manifest.rows, time.perf_counter() - started, watch.seconds


def rerun(keys: str) -> float:
    """Seconds of the command line for all assets and shards, from its start to its end."""
    command = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", "*", "--partition-range", keys]
    started = time.perf_counter()
    subprocess.run([*command, "-m", "definitions"], cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", default=str(ROOT / "samples"), help="a source as `kopub index` takes it")
    corpus = parser.parse_args().corpus
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"KOPUB_HOME": folder, "DAGSTER_HOME": f"{folder}/dagster"}
        Path(folder, "dagster").mkdir()
        Path(folder, "dagster", "dagster.yaml").write_text((ROOT / "deploy" / "local" / "dagster.yaml").read_text())
        from resources.pages.indexing import index

        manifest = index(corpus, Path(folder))
        pages, total, engines = build()
        nothing = rerun(f"{manifest.keys[0]}...{manifest.keys[-1]}")
    table = Table(title=f"{pages} pages in {len(manifest.keys)} shards, eight assets")
    for column in ("", "seconds", "per page"):
        table.add_column(column, justify="left" if not column else "right")
    table.add_row("run, in process", f"{total:.1f}", f"{total / pages:.3f}")
    table.add_row("inside the engines", f"{engines:.1f}", f"{engines / pages:.3f}")
    table.add_row("Dagster, store and checks", f"{total - engines:.1f}", f"{(total - engines) / pages:.3f}")
    table.add_row("command line, nothing changed", f"{nothing:.1f}", f"{nothing / pages:.3f}")
    Console().print(table)
    Console().print(f"overhead beyond the engines: {(total - engines) / engines:.1%}")


if __name__ == "__main__":
    main()
