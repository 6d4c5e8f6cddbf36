"""Measure the inspection of pages, alone and while the layout model is imported.

    python -m benchmarks.reading.raw_pages                       # 2,200 pages, of 24 unique ones of 2480x3508
    python -m benchmarks.reading.raw_pages --threads 2 4 16      # only checks them, in so many threads
    python -m benchmarks.reading.raw_pages --upright             # finds the transform that sets each page upright, too
    python -m benchmarks.reading.raw_pages --cost                # CPU ms a page of that, and of decoding, on one thread

Each row is a process of its own; the first has no pages. As in a first run, all pages are hashed on every core; then
each is hashed again and inspected: by the given number of threads or, with --upright, of processes, where 1 means a
thread for each core.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import mean

from benchmarks.whole_graph.setup import unique_pages
from kopub.folders import ROOT
from kopub.pages.inspection import CHECKERS, MOST_PROCESSES, Inspector
from kopub.pages.page import decode, inspect
from kopub.pages.straightening import find_transform
from kopub.parallel import bounded_map, ordered_map, tuned_for_decoding

UNIQUE = 24
"""Pages kept in memory, 30 MB, so that the disk is not measured."""
REPEATS = 7


def hashed(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check(data: bytes) -> None:
    hashed(data)
    inspect(data)


def set_upright(inspector: Inspector, data: bytes) -> None:
    hashed(data)
    inspector.inspect(data, may_turn=True)


def measure(folder: Path, count: int, workers: int, importing: bool, upright: bool) -> str:
    """Return a row: seconds until all pages are inspected, and until the import ends.

    Both begin at the same time.
    """
    unique = [bytes(page.data) for page in unique_pages(folder, "raw", UNIQUE)]
    pages = list(islice(cycle(unique), count))
    started = time.monotonic()
    imported = 0.0

    def load() -> None:
        import torch  # noqa: F401
        from transformers import PPDocLayoutV3ForObjectDetection  # noqa: F401

        nonlocal imported
        imported = time.monotonic() - started

    loading = threading.Thread(target=load)
    if importing:
        loading.start()
    for _ in ordered_map(hashed, pages):
        pass
    if upright:
        with Inspector(count, upright, workers) as inspector:
            for _ in bounded_map(partial(set_upright, inspector), pages, inspector.threads):
                pass
    else:
        for _ in bounded_map(check, pages, workers):
            pass
    inspected = time.monotonic() - started
    if not importing:
        return f"{workers:8}{inspected:12.1f} s"
    loading.join()
    return f"{workers:8}{inspected:12.1f} s{imported:12.1f} s"


def cost(folder: Path) -> str:
    """Return the mean CPU ms of decoding a page and of finding its transform.

    Both are given for a single measurement and for the best of several.
    """
    spent: dict[str, list[list[float]]] = {"decode": [], "find the transform": []}
    with tuned_for_decoding():
        for page in list(unique_pages(folder, "raw", UNIQUE)):
            data, pixels = bytes(page.data), decode(page.data)
            for what, work in (
                ("decode", partial(decode, data)),
                ("find the transform", partial(find_transform, pixels)),
            ):
                spent[what].append([_cpu_ms(work) for _ in range(REPEATS)])
    return "\n".join(
        f"{what}: {mean(times[0] for times in pages):.0f} CPU ms a page measured once, "
        f"{mean(map(min, pages)):.0f} at its best of {REPEATS}"
        for what, pages in spent.items()
    )


def _cpu_ms(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, default=ROOT / "samples" / "corpus", help="folder of Arrow shards")
    parser.add_argument("--count", type=int, default=2200)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, CHECKERS, 4, 16])
    cores = os.cpu_count() or 1
    parser.add_argument("--processes", type=int, nargs="+", default=[1, min(cores, MOST_PROCESSES)])
    parser.add_argument("--upright", action="store_true", help="find what sets each page upright")
    parser.add_argument("--cost", action="store_true", help="CPU milliseconds of one page instead")
    parser.add_argument("--one", nargs=2, metavar=("WORKERS", "IMPORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cost:
        print(cost(arguments.pages))
        return
    if arguments.one:
        workers, importing = int(arguments.one[0]), arguments.one[1] == "import"
        print(measure(arguments.pages, arguments.count, workers, importing, arguments.upright), flush=True)
        return
    print(f"{'workers':>8}{'inspected':>14}{'imported':>14}", flush=True)
    rows = [(0, 1, "import")]
    for importing in ("alone", "import"):
        given = arguments.processes if arguments.upright else arguments.threads
        rows += [(arguments.count, workers, importing) for workers in given]
    for count, workers, importing in rows:
        command = [sys.executable, "-m", "benchmarks.reading.raw_pages", "--pages", str(arguments.pages)]
        command += ["--upright"] if arguments.upright else []
        subprocess.run([*command, "--count", str(count), "--one", str(workers), importing], check=True)


if __name__ == "__main__":
    main()
