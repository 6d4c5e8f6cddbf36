"""The check of pages by numbers of threads, alone and beside the import of the layout model.

    python -m benchmarks.reading.raw_pages                  # 2,200 pages, of 24 unique ones of 2480x3508
    python -m benchmarks.reading.raw_pages --threads 2 4 16

Each row is a process of its own; the first has no pages. As in a first run, all pages are hashed on every core; then
each is hashed again and checked, by so many threads.
"""

import argparse
import hashlib
import subprocess
import sys
import threading
import time
from itertools import cycle, islice
from pathlib import Path

from benchmarks.whole_graph.setup import unique_pages
from kopub_assets.raw_pages import CHECKERS
from resources.config.places import ROOT
from resources.pages.pixels.images import inspect
from resources.parallel import bounded_map, ordered_map

UNIQUE = 24
"""Pages that are held in memory, 30 MB: the disk is not measured."""


def hashed(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def check(data: bytes) -> None:
    hashed(data)
    inspect(data)


def measure(folder: Path, count: int, threads: int, importing: bool) -> str:
    """A row: seconds until all pages are checked, and until the import, which begins with them, is over."""
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
    for _ in bounded_map(check, pages, threads):
        pass
    checked = time.monotonic() - started
    if not importing:
        return f"{threads:8}{checked:12.1f} s"
    loading.join()
    return f"{threads:8}{checked:12.1f} s{imported:12.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, default=ROOT / "samples" / "corpus", help="folder of Arrow shards")
    parser.add_argument("--count", type=int, default=2200)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, CHECKERS, 4, 16])
    parser.add_argument("--one", nargs=2, metavar=("THREADS", "IMPORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        threads, importing = int(arguments.one[0]), arguments.one[1] == "import"
        print(measure(arguments.pages, arguments.count, threads, importing), flush=True)
        return
    print(f"{'threads':>8}{'checked':>14}{'imported':>14}", flush=True)
    rows = [(0, 1, "import")]
    for importing in ("alone", "import"):
        rows += [(arguments.count, threads, importing) for threads in arguments.threads]
    for count, threads, importing in rows:
        command = [sys.executable, "-m", "benchmarks.reading.raw_pages", "--pages", str(arguments.pages)]
        subprocess.run([*command, "--count", str(count), "--one", str(threads), importing], check=True)


if __name__ == "__main__":
    main()
