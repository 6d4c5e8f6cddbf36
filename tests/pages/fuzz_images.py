"""Check that each of 40,000 damaged pages decodes or raises `UndecodableImage`, and nothing else.

    python -m tests.pages.fuzz_images [--mutants N] [--first N] [--processes N] [--pixels N]

Every mutant is inspected and decoded in a process with limits of memory and time, so a crash of the
process is a finding too. Mutant N is the same in every run, on every machine with the same encoders.
Exits with 1 when there is a finding.
"""

import argparse
import os
import resource
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any
from unittest.mock import patch

import click

MUTANTS = 40_000
MEMORY = 3 << 30
"""Bytes that a process may take beyond its size after warm-up."""
SECONDS = 60
"""Longest time for one mutant."""
PIXELS = 1 << 22
"""Most pixels of a decoded mutant; with the limit of real pages most time would go into huge empty images."""
LONGEST_REASON = 300
CHUNK = 500
"""Mutants per process."""

TAKEN, REFUSED, LATE = "taken", "refused", "refused by decode only"
SOUND = (TAKEN, REFUSED, LATE)
"""Outcomes that are right; all others are findings."""


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a mutant; `detail` is the reason of a refusal, or the finding."""

    number: int
    seed: str
    outcome: str
    detail: str = ""


def fuzz(numbers: range, processes: int = 1, pixels: int = PIXELS) -> Iterator[Result]:
    """Yield the results of some mutants, in no particular order."""
    parts = [numbers[at : at + CHUNK] for at in range(0, len(numbers), CHUNK)]
    with ThreadPoolExecutor(processes) as threads:
        for results in threads.map(lambda part: list(_part(part, pixels)), parts):
            yield from results


def _part(numbers: range, pixels: int) -> Iterator[Result]:
    """Yield results of mutants in one process, replaced after each mutant that ends it."""
    from tests.support.sources.image_mutants import mutant

    while numbers:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, numbers, pixels))
        process.start()
        theirs.close()
        done = 0
        with suppress(EOFError):
            while done < len(numbers):
                yield ours.recv()
                done += 1
        process.join()
        if done < len(numbers):
            number = numbers[done]
            yield Result(number, mutant(number)[0], "ended the process", f"exit code {process.exitcode}")
            done += 1
        numbers = numbers[done:]


def _work(connection: Connection, numbers: range, pixels: int) -> None:
    from PIL import Image

    from kopub.pages.page import decode
    from tests.support.sources.image_mutants import mutant, seeds

    # Native decoders write to the file descriptor itself, past `sys.stderr`.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    warnings.simplefilter("ignore")
    for data in seeds().values():
        with suppress(Exception):
            decode(data)
    # Pillow refuses images of more than twice this many pixels.
    Image.MAX_IMAGE_PIXELS = pixels // 2
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    for number in numbers:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        name, data = mutant(number)
        connection.send(Result(number, name, *look(data)))


def look(data: bytes) -> tuple[str, str]:
    """Return the outcome of a page and its detail."""
    import numpy as np

    from kopub.pages import page as page_images

    try:
        info, refusal = _outcome(page_images.inspect, data)
        pixels, late = _outcome(page_images.decode, data)
        _outcome(page_images.is_plain, data)
        with patch.object(page_images, "_wuffs", lambda: None):
            same, late_too = _outcome(page_images.decode, data)
    except Exception as error:
        return f"raised {type(error).__name__}", str(error)
    if late != late_too or not np.array_equal(pixels, same):  # pyright: ignore[reportArgumentType]
        return "differs between decoders", f"{late} | {late_too}"
    if bad := [reason for reason in (refusal, late) if not reason.isprintable() or len(reason) > LONGEST_REASON]:
        return "reason is no line", repr(bad)
    if info is not None and pixels is not None and pixels.shape != (info.height, info.width, 3):
        return "size differs", f"{info} {pixels.shape}"
    if info is not None:
        return (TAKEN, "") if pixels is not None else (LATE, late)
    return REFUSED, refusal


def _outcome(read: Callable[[bytes], Any], data: bytes) -> tuple[Any, str]:
    """Return a function's result for a page, or None and the reason of its refusal."""
    from kopub.errors import UndecodableImage

    try:
        return read(data), ""
    except UndecodableImage as error:
        return None, str(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=MUTANTS)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pixels", type=int, default=PIXELS, help="largest mutant that is decoded")
    arguments = parser.parse_args()
    outcomes: Counter[tuple[str, str]] = Counter()
    found = []
    for result in fuzz(
        range(arguments.first, arguments.first + arguments.mutants), arguments.processes, arguments.pixels
    ):
        outcomes[result.outcome, result.seed.split()[0]] += 1
        if result.outcome not in SOUND:
            found.append(result)
            click.echo(f"mutant {result.number} of {result.seed}: {result.outcome}: {result.detail[:200]}")
    for (outcome, format), count in sorted(outcomes.items()):
        click.echo(f"{outcome:24} {format:5} {count:7,}")
    click.echo(f"{outcomes.total():,} mutants, {len(found):,} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
