"""Measure what it costs to keep the reader of a user's file from other files and the network.

    python -m benchmarks.isolation [FILE ...]

Each file (default: a PDF of the documents and a DOCX of one line) is made by a process that is confined and by one that
is not, in turn, for several rounds. Reported are the CPU seconds of the processes, start included, and the ratio of the
minima, because other work on the machine can only add time.
"""

import argparse
import resource
import tempfile
from pathlib import Path
from unittest import mock

import docx

from kopub.folders import ROOT
from kopub.pages.documents import conversion, page_maker
from kopub.pages.documents.text_layer import RenderedImage
from kopub.processes import ChildPool

ROUNDS = 7
PAGES = 20
"""Times that the first page of a PDF is made in one process, as the pages of a document are."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        letter = Path(folder, "letter.docx")
        document = docx.Document()
        document.add_paragraph("한 줄")
        document.save(str(letter))
        for path in arguments.files or [ROOT / "docs" / "examples" / "budget.pdf", letter]:
            measure = make_pages if path.suffix == ".pdf" else convert
            seconds: dict[bool, list[float]] = {True: [], False: []}
            for _ in range(arguments.rounds):
                for is_confined, taken in seconds.items():
                    before = children_seconds()
                    measure(path, is_confined)
                    taken.append(children_seconds() - before)
            confined, free = (min(taken) for taken in seconds.values())
            print(f"{path.name}: {confined:.3f} CPU s confined, {free:.3f} not: {confined / free - 1:+.1%}")


def make_pages(path: Path, is_confined: bool) -> None:
    """Make the first page of a PDF several times in one new process."""
    pool = ChildPool(f"{page_maker.__name__}:work", 1, page_maker.SECONDS, {} if is_confined else None)
    try:
        for _ in range(PAGES):
            with path.open("rb") as file:
                assert isinstance(pool.ask(("make", path, 0, 200), file), RenderedImage)
    finally:
        pool.end()


def convert(path: Path, is_confined: bool) -> None:
    """Convert an office file to PDF in a new process, as `kopub index` does."""
    start = conversion.start_child

    def start_free(target: str, group: int, confined: object) -> object:
        return start(target, group=group)

    with mock.patch.object(conversion, "start_child", start if is_confined else start_free):
        conversions = conversion.Conversions()
        try:
            assert isinstance(conversions.pdf(path.name, path), conversion.Conversion)
        finally:
            conversions.end()


def children_seconds() -> float:
    """Return the CPU seconds of all processes that this one has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
