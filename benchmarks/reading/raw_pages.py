"""The check of pages by numbers of threads, alone and beside the import of the layout model.

    python -m benchmarks.reading.raw_pages                  # 720 pages, of 24 unique ones of 2480x3508
    python -m benchmarks.reading.raw_pages --threads 2 4 16

Each row is a process of its own. A page is hashed twice and checked once, as in a first run. Beside the import it goes
on until that is over.
"""

import argparse
import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path

from benchmarks.whole_graph.setup import unique_pages
from kopub_assets.raw_pages import THREADS
from resources.config.places import ROOT
from resources.pages.pixels.images import inspect
from resources.parallel import bounded_map

COUNT = 720


def check(data: bytes) -> None:
    for _ in range(2):
        hashlib.sha256(data).hexdigest()
    inspect(data)


def measure(folder: Path, threads: int, importing: bool) -> str:
    pages = [bytes(page.data) for page in unique_pages(folder, "raw", 24)]
    imported = threading.Event()

    def load() -> None:
        import torch  # noqa: F401
        from transformers import PPDocLayoutV3ForObjectDetection  # noqa: F401

        imported.set()

    def wanted() -> Iterator[bytes]:
        for number, page in zip(count(), cycle(pages), strict=False):
            if imported.is_set() if importing else number == COUNT:
                return
            yield page

    started = time.monotonic()
    if importing:
        threading.Thread(target=load).start()
    done = sum(1 for _ in bounded_map(check, wanted(), threads))
    seconds = time.monotonic() - started
    beside = f"{seconds:6.1f} s" if importing else "       -"
    return f"{threads:8}{done / seconds:10.0f}{beside:>14}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, default=ROOT / "samples" / "corpus", help="folder of Arrow shards")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, THREADS, 16])
    parser.add_argument("--one", nargs=2, metavar=("THREADS", "IMPORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(measure(arguments.pages, int(arguments.one[0]), arguments.one[1] == "import"), flush=True)
        return
    print(f"{'threads':>8}{'pages/s':>10}{'import takes':>14}", flush=True)
    for importing in ("alone", "import"):
        for threads in arguments.threads:
            command = [sys.executable, "-m", "benchmarks.reading.raw_pages", "--pages", str(arguments.pages)]
            subprocess.run([*command, "--one", str(threads), importing], check=True)


if __name__ == "__main__":
    main()
