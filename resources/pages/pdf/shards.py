"""A folder of PDFs as Parquet shards of page images, drawn once and kept below the home.

A shard's name is a fingerprint of what its pages are drawn from, and its metadata spells that out.
So a shard is never written over, what there is already need not be drawn, and a run that was
killed goes on at the first shard that is missing.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from resources.errors import SourceError, StoreError
from resources.files import cannot_write, replace_file
from resources.fingerprints import fingerprint
from resources.pages import manifest
from resources.pages.arrow import BYTES, FILE_NAME, ID, IMAGE, PAGE_NUMBER, PROBLEM
from resources.pages.manifest import Manifest
from resources.pages.pdf.documents import SUFFIX, Document
from resources.pages.pdf.packing import Run, place_runs
from resources.pages.pdf.pool import Failed, PdfCrew
from resources.pages.pdf.rendering import version
from resources.printable import first_line

FOLDER = "rendered"
SHARD_PAGES = 500

_NAMES = "pdf-*.parquet"
_METADATA = b"kopub.rendered"
_SCHEMA = pa.schema(
    [
        (ID, pa.string()),
        (IMAGE, pa.struct([(BYTES, pa.binary()), ("path", pa.string())])),
        (FILE_NAME, pa.string()),
        (PAGE_NUMBER, pa.int32()),
        (PROBLEM, pa.string()),
    ]
)
_GROUP_ROWS = 16
_GROUP_BYTES = 1 << 25
"""A row group ends after so many pages or bytes: it is read as a whole, and 16 scans may have 200 MB."""

Progress = Callable[[str], None]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Shard:
    """What a file holds. `manner` is that of the drawing: pages of another cannot be used."""

    manner: str
    runs: tuple[Run, ...]

    @property
    def name(self) -> str:
        return _NAMES.replace("*", fingerprint(self.metadata()))

    @property
    def rows(self) -> int:
        return sum(run.count for run in self.runs)

    def metadata(self) -> str:
        """As it stands in the file; in ASCII, for names of files may have more in them than UTF-8."""
        return json.dumps({"manner": self.manner, "runs": [asdict(run) for run in self.runs]})

    @classmethod
    def of(cls, path: Path) -> "_Shard | None":
        """None when the file is none of these, or not whole."""
        try:
            with pq.ParquetFile(path) as file:
                content = json.loads((file.schema_arrow.metadata or {})[_METADATA])
                return cls(content["manner"], tuple(Run(**run) for run in content["runs"]))
        except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
            return None


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """One process at a time draws into a home: at its end it removes what its corpus does not need.

    Raises `SourceError` when another does, and `StoreError` when the home cannot be written.
    """
    folder = home / FOLDER
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise SourceError(f"another `kopub index` draws PDFs into {home}: wait for it, or end it") from None
    except OSError as error:
        raise StoreError(cannot_write(folder, error)) from error
    try:
        yield
    finally:
        lock.release()


def render(documents: Sequence[Document], home: Path, dpi: int, progress: Progress) -> list[Path]:
    """The shards of the documents' pages, in the order of their keys, after drawing what is not there yet.

    Which PDF is in which shard follows the index that `home` has. A PDF or a page that cannot be
    drawn is a row without bytes and with a problem. Call it under `alone`. Raises `StoreError`.
    """
    folder = home / FOLDER
    manner = f"{dpi} dpi, {version()}"
    stored = {path: shard for path in sorted(folder.glob(_NAMES)) if (shard := _Shard.of(path))}
    with PdfCrew() as crew:
        runs = _runs(documents, crew, [run for shard in stored.values() for run in shard.runs])
        progress(f"{len(documents):,} PDFs, {sum(run.count for run in runs if run.pages):,} pages")
        shards = [_Shard(manner, tuple(runs)) for runs in place_runs(runs, _before(home, stored), SHARD_PAGES)]
        paths = [folder / shard.name for shard in shards]
        drawn = {run: (path, shard) for path, shard in stored.items() if shard.manner == manner for run in shard.runs}
        by_place = {document.place: document.path for document in documents}
        for at, (path, shard) in enumerate(zip(paths, shards, strict=True), start=1):
            new = sum(run.count for run in shard.runs if run not in drawn and run.problem is None)
            if path not in stored:
                rows = _rows(shard, drawn, by_place, crew, dpi)
                replace_file(path, lambda temporary, shard=shard, rows=rows: _write(temporary, shard, rows))
            told = f"{new:,} of {shard.rows:,} pages drawn" if path not in stored else f"{shard.rows:,} pages kept"
            progress(f"{path.name} ({at} of {len(shards)}): {told}")
            for problem in pq.read_table(path, columns=[PROBLEM])[PROBLEM].drop_null().to_pylist():
                progress(f"will be quarantined: {problem}")
    return paths


def clear(home: Path, keep: Iterable[Path]) -> None:
    """Remove the shards that are not to be kept, and what a run that was killed left of one."""
    folder = home / FOLDER
    for path in {*folder.glob(_NAMES), *folder.glob(f".{_NAMES}.*.tmp")} - set(keep):
        path.unlink()


def _before(home: Path, stored: dict[Path, _Shard]) -> list[Sequence[Run]]:
    """The runs of every shard of the index that `home` has; none where it is of another source."""
    index = home / manifest.NAME
    if index.exists():
        # One that cannot be used is about to be replaced.
        with suppress(SourceError):
            old = Manifest.read(index)
            paths = [old.path(shard.file) for shard in old.shards]
            return [stored[path].runs if path in stored else () for path in paths]
    return []


def _runs(documents: Sequence[Document], crew: PdfCrew, known: Iterable[Run]) -> list[Run]:
    """The runs of all documents, in order. A PDF that is known is not opened."""
    facts = _facts(documents, crew, known)
    runs = []
    for document in documents:
        sha256, pages, problem = facts[document.place]
        for first in range(0, pages or 1, SHARD_PAGES):
            count = min(SHARD_PAGES, (pages or 1) - first)
            runs.append(Run(document.place, document.name, document.id, sha256, first, count, pages, problem))
    return runs


def _facts(
    documents: Sequence[Document], crew: PdfCrew, known: Iterable[Run]
) -> dict[str, tuple[str, int, str | None]]:
    """SHA-256, number of pages and problem of each document, by its place."""
    before = {(run.place, run.sha256): run for run in known}
    facts: dict[str, tuple[str, int, str | None]] = {}
    new: list[tuple[Document, str]] = []
    for document in documents:
        try:
            sha256 = document.sha256()
        except OSError as error:
            facts[document.place] = "", 0, f"the PDF cannot be read: {error.strerror}"
            continue
        if run := before.get((document.place, sha256)):
            facts[document.place] = sha256, run.pages, run.problem
        else:
            new.append((document, sha256))
    counted = crew.pages(document.path for document, _ in new)
    for (document, sha256), pages in zip(new, counted, strict=True):
        facts[document.place] = (sha256, 0, pages.reason) if isinstance(pages, Failed) else (sha256, pages, None)
    return facts


def _rows(
    shard: _Shard, drawn: dict[Run, tuple[Path, _Shard]], paths: dict[str, Path], crew: PdfCrew, dpi: int
) -> Iterator[Row]:
    """The rows of a shard: of a PDF that cannot be opened, of another shard that has them, or drawn now."""
    wanted = [run for run in shard.runs if run not in drawn and run.problem is None]
    pages = crew.draw(((paths[run.place], run.first + at) for run in wanted for at in range(run.count)), dpi)
    for run in shard.runs:
        if run in drawn:
            yield from _copied(run, *drawn[run])
        elif run.problem is not None:
            yield _row(run, f"{run.id}{SUFFIX}", None, Failed(run.problem))
        else:
            for at in range(run.count):
                number = run.first + at + 1
                yield _row(run, f"{run.id}_{number}", number, next(pages))


def _row(run: Run, page_id: str, number: int | None, page: bytes | Failed) -> Row:
    problem = None
    if isinstance(page, Failed):
        problem = f"{run.name}{'' if number is None else f', page {number}'}: {page.reason}"
    return {
        ID: page_id,
        IMAGE: {BYTES: None if problem else page, "path": None},
        FILE_NAME: run.name,
        PAGE_NUMBER: number,
        PROBLEM: problem,
    }


def _copied(run: Run, path: Path, shard: _Shard) -> Iterator[Row]:
    """The rows of a run in another shard. Raises `SourceError`."""
    start = sum(other.count for other in shard.runs[: shard.runs.index(run)])
    with pq.ParquetFile(path) as file:
        end = 0
        for group in range(file.num_row_groups):
            begin, end = end, end + file.metadata.row_group(group).num_rows
            if begin < start + run.count and start < end:
                skipped = max(start - begin, 0)
                try:
                    rows = file.read_row_group(group)
                except (pa.ArrowException, OSError) as error:
                    raise SourceError(f"{path} is damaged ({first_line(error)}): delete it and index again") from None
                yield from rows.slice(skipped, start + run.count - begin - skipped).to_pylist()


def _write(path: Path, shard: _Shard, rows: Iterator[Row]) -> None:
    schema = _SCHEMA.with_metadata({_METADATA: shard.metadata()})
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False, write_statistics=False) as writer:
        for group in _groups(rows):
            writer.write_table(pa.Table.from_pylist(group, schema))


def _groups(rows: Iterator[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    size = 0
    for row in rows:
        group.append(row)
        size += len(row[IMAGE][BYTES] or b"")
        if len(group) == _GROUP_ROWS or size >= _GROUP_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group
