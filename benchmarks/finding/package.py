"""Measure `kopub.open` of a release of the reference's size: time, memory, rows, a search.

    python -m benchmarks.finding.package [--pages 40781] [--shards 35] [--folder F]

Pages are made up as in `benchmarks.finding.release`: a dozen regions and 900 characters each, with vectors of 64
dimensions. Opening is measured in processes of their own, from before the first import to the whole catalogue in
memory; the files were read before, as on a machine in regular use. The search is compared with its engine alone.
"""

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

DIM = 64
PAGES = 50
"""Most pages that are read, one after the other."""
QUESTIONS = 30
PARTS = ("states", "regions", "markdown", "vectors", "pictures", "lineage")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40_781)
    parser.add_argument("--shards", type=int, default=35)
    parser.add_argument("--folder", type=Path, help="where the release is, or goes; a temporary folder when left out")
    parser.add_argument("--apart", choices=APART, help="one measurement, in this process")
    options = parser.parse_args()
    if options.apart:
        print(json.dumps(APART[options.apart](options.folder)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "release"
        if not folder.exists():
            make(folder, options.pages, options.shards)
        environment = {**os.environ, "KOPUB_EMBEDDING__DIM": str(DIM), "XDG_CACHE_HOME": temporary}
        for name in APART:
            command = [sys.executable, "-m", "benchmarks.finding.package", "--folder", str(folder), "--apart", name]
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in json.loads(done.stdout).items()))


def make(folder: Path, pages: int, shards: int) -> None:
    """Make a release with the hashed engine's recipe, so that it can be searched."""
    from benchmarks.finding.release import shard_tables
    from kopub.embedding.hashed import HashedEmbedder
    from kopub.release.base import VECTORS, ReleaseDescription
    from kopub.release.local import LocalRelease
    from kopub.store.rows import MADE_WITH

    release = LocalRelease(folder=str(folder))
    made_with = {MADE_WITH: json.dumps({"version": 1, "engines": [HashedEmbedder(dim=DIM).recipe()]})}
    made = dict.fromkeys(VECTORS.values(), made_with)
    keys = [f"shard_{n:02d}" for n in range(shards)]
    started = time.perf_counter()
    for n, key in enumerate(keys):
        tables = shard_tables(n, pages // shards + (n < pages % shards), dim=DIM)
        release.publish(key, replace(tables, made=made))
    release.finish(ReleaseDescription(title="Benchmark", source="made up", profile="cpu", shards=keys))
    print(f"{pages:,} pages in {shards} shards made in {time.perf_counter() - started:.0f} s")


def opening(folder: Path) -> dict[str, object]:
    started = time.perf_counter()
    import kopub

    corpus = kopub.open(folder)
    pages = len(corpus.pages)
    opened = time.perf_counter() - started
    documents = len(corpus.documents)
    return {
        "pages": pages,
        "documents": documents,
        "seconds": round(opened, 3),
        "with documents": round(time.perf_counter() - started, 3),
        "MB": round(peak()),
    }


def looking(folder: Path) -> dict[str, object]:
    """Return the ms of each part of random pages: first, median and longest."""
    import kopub

    corpus = kopub.open(folder)
    chosen = random.Random(0).sample(range(len(corpus.pages)), min(PAGES, len(corpus.pages)))
    found = {}
    for part in PARTS:
        pages = [corpus.pages[at] for at in chosen]
        taken = [timed(partial(getattr, page, part)) for page in pages]
        found[part] = "/".join(f"{value:.1f}" for value in (taken[0], sorted(taken)[len(taken) // 2], max(taken)))
    return {**found, "ms (first/median/longest), MB": round(peak())}


def searching(folder: Path) -> dict[str, object]:
    """Return the median ms of a question through the package and by the engine alone."""
    import kopub
    from kopub.search.options import Mode

    corpus = kopub.open(folder, profile="cpu")
    first = timed(lambda: corpus.search("질문", mode="text"))
    engine, _ = corpus._searcher
    asked: dict[str, Callable[[str], object]] = {
        "package": lambda question: corpus.search(question, mode="text"),
        "engine": lambda question: engine.search(question, mode=Mode.TEXT),
    }
    taken: dict[str, list[float]] = {name: [] for name in asked}
    for n in range(QUESTIONS):
        # They alternate in coming first, because the second benefits from what the first has read.
        for name in sorted(asked, reverse=bool(n % 2)):
            taken[name].append(timed(partial(asked[name], f"질문 {n}")))
    package, alone = (sorted(taken[name])[QUESTIONS // 2] for name in ("package", "engine"))
    return {
        "first ms, with what it keeps": round(first),
        "package ms": round(package, 1),
        "engine ms": round(alone, 1),
        "ratio": round(package / alone, 2),
    }


APART: dict[str, Callable[[Path], dict[str, object]]] = {"open": opening, "page": looking, "search": searching}


def timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - started)


def peak() -> float:
    """Return the peak memory of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Here `getrusage` would include the memory of the process that started this one.
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    main()
