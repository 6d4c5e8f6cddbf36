"""Indexing: a source of pages becomes a shard manifest, and its queries a table beside it."""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field, ValidationError

from resources.errors import SourceError
from resources.files import replace_bytes
from resources.pages import ids, manifest
from resources.pages.arrow import open_pages
from resources.pages.documents import shards
from resources.pages.documents.folder import Document, LeftOut, find_documents
from resources.pages.documents.pdf import DPI, is_pdf
from resources.pages.hub_dataset import download, role
from resources.pages.manifest import Manifest, QueryFile, Shard, shard_key
from resources.pages.names import natural
from resources.pages.queries import Query, assign, digest, parse_queries, read_table, to_table
from resources.printable import counted, quoted

Progress = Callable[[str], None]

QUERIES = "queries.parquet"
LEFT_OUT = "left_out.txt"
"""Lists files of a folder that are not in the corpus: a line each, with the reason after a tab."""
_NAMED = 10
"""Files that a line on the terminal names for one reason."""
_FORMATS: dict[str, Literal["arrow", "parquet"]] = {".arrow": "arrow", ".parquet": "parquet"}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class _Source:
    """What was found in a source: files of pages, or documents to make them from."""

    name: str
    files: list[Path]
    documents: list[Document] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    questions: pa.Table | None = None
    annotations: pa.Table | None = None
    questions_name: str = ""
    revision: str | None = None


class _SavedSplits(BaseModel):
    """The file that `datasets` writes beside several splits: what is used of it."""

    splits: list[str]


class _SavedFile(BaseModel):
    filename: str


class _SavedState(BaseModel):
    """The file that `datasets` writes beside the files of one split: what is used of it."""

    files: list[_SavedFile] = Field(alias="_data_files")


_Saved = TypeVar("_Saved", bound=BaseModel)


@dataclass(slots=True)
class _Seen:
    """The page ids of the files so far with their shards, and counts of rows that cannot keep their id."""

    shard_of: dict[str, str] = field(default_factory=dict)
    duplicates: int = 0
    unusable: int = 0


def index(source: str, home: Path, progress: Progress | None = None, dpi: int = DPI) -> Manifest:
    """Write `home`/shards.json and, when there are queries, `home`/queries.parquet.

    `source` is a folder that `datasets` saved, a folder of .arrow or .parquet files (one file is
    one shard, in natural order of their names), a folder with PDFs and images in it or below, any of
    these named corpus/ with questions beside it, one such file, or the id of a Hub dataset. Pages of
    PDFs are drawn at `dpi`, and image files taken in, into shards in `home`/rendered, once. Files that
    are left out are listed in `home`/left_out.txt. `progress` gets a line for every step. Raises
    `SourceError`, or `StoreError` when a file cannot be written; what was indexed before stays.
    """
    tell = progress or _say_nothing
    found = _find(source, tell)
    if found.documents:
        with shards.exclusive(home):
            found = replace(found, files=shards.render(found.documents, home, dpi, tell))
            result = _index(source, found, home, tell)
            shards.clear(home, found.files)
    else:
        result = _index(source, found, home, tell)
    _list_left_out(found.left_out, home, tell)
    return result


def _index(source: str, found: _Source, home: Path, tell: Progress) -> Manifest:
    seen = _Seen()
    shards: list[Shard] = []
    for at, path in enumerate(found.files, start=1):
        shard = _scan(path, shard_key(len(shards)), home, seen)
        if shard is None:
            tell(f"{path.name} has no rows: left out")
            continue
        shards.append(shard)
        pages = counted(shard.rows, "page")
        tell(f"{shard.key} ({at} of {len(found.files)}): {path.name}, {pages}, {shard.bytes:,} bytes")
    if not shards:
        raise SourceError(f"{found.name} has no pages")
    if seen.duplicates:
        tell(f"{seen.duplicates:,} rows repeat the id of an earlier page: they will be quarantined")
    if seen.unusable:
        tell(f"{seen.unusable:,} rows have no usable id: they will be quarantined")
    queries = _index_queries(found, seen.shard_of, [shard.key for shard in shards], home, tell)
    result = Manifest(
        source=found.name if found.revision else _relative(Path(source), home),
        revision=found.revision,
        shards=shards,
        queries=queries,
    )
    replace_bytes(home / manifest.NAME, result.to_json().encode())
    if queries is None:
        (home / QUERIES).unlink(missing_ok=True)
    return Manifest.load(home)


def _say_nothing(line: str) -> None:
    """For callers that show no progress."""


def _find(source: str, progress: Progress) -> _Source:
    folder = Path(source)
    if folder.is_dir():
        return _find_in_folder(folder)
    if folder.is_file():
        found = find_documents(folder)
        if found.documents:
            return _Source(source, [], found.documents)
        if folder.suffix not in _FORMATS:
            raise SourceError(f"{source} is no file of pages: {found.left_out[0].reason}")
        return _Source(source, _page_files([folder], source))
    if _HUB_ID.fullmatch(source) and not folder.parent.is_dir():
        corpus = download(source, progress)
        return _Source(source, corpus.files, [], [], corpus.questions, corpus.annotations, source, corpus.revision)
    raise SourceError(
        f"{source} is neither a folder, an .arrow or .parquet file, a document nor the id of a Hub dataset"
    )


def _find_in_folder(folder: Path) -> _Source:
    pages = folder / "corpus" if (folder / "corpus").is_dir() else folder
    beside = {role(path.stem): path for path in sorted(folder.glob("*.parquet"))}
    questions, annotations = beside.get("qa"), beside.get("annotations")
    files, documents, left_out = _pages_in(pages)
    if documents and pages != folder:
        around = find_documents(folder)
        if len(around.documents) > len(documents):
            raise SourceError(
                f"{folder} holds documents in corpus/ and outside of it: put all into it, or give it another name"
            )
        left_out = around.left_out
    return _Source(
        name=str(folder),
        files=files,
        documents=documents,
        left_out=[each for each in left_out if each.path not in (questions, annotations)],
        questions=read_table(questions) if questions else None,
        annotations=read_table(annotations) if annotations else None,
        questions_name=str(questions or ""),
    )


def _pages_in(folder: Path) -> tuple[list[Path], list[Document], list[LeftOut]]:
    """The files of pages in a folder, or the documents in it and below, and what is left out; one of both is empty."""
    files = list(filter(_holds_pages, _saved_files(folder) or folder.iterdir()))
    found = find_documents(folder)
    if files:
        documents = [each for each in found.documents if each.path.parent == folder]
        pdf = next((each.path for each in documents if is_pdf(each.path)), None)
        if pdf:
            raise _two_kinds(folder, pdf, files[0])
        reason = f"beside {files[0].name}, which holds the pages: index it from a folder of its own"
        return _page_files(files, str(folder)), [], [LeftOut(each.path, each.name, reason) for each in documents]
    for place, document in {each.path.parent: each.path for each in found.documents}.items():
        if other := next(filter(_holds_pages, sorted(place.iterdir())), None):
            raise _two_kinds(place, document, other)
    left_out = [
        replace(each, reason="a file of pages: index its folder alone") if _holds_pages(each.path) else each
        for each in found.left_out
    ]
    if not found.documents:
        more = f"; left out: {left_out[0].name} ({left_out[0].reason})" if left_out else ""
        raise SourceError(f"{folder} has no .arrow or .parquet file of pages, no PDF and no image{more}")
    return [], found.documents, left_out


def _two_kinds(place: Path, document: Path, pages: Path) -> SourceError:
    return SourceError(
        f"{place} holds documents and .arrow or .parquet files ({document.name}, {pages.name}): "
        "give each kind a folder of its own and index one"
    )


def _list_left_out(left_out: Sequence[LeftOut], home: Path, tell: Progress) -> None:
    """Tell of every reason to leave files out with its first files, and write all of them into the home."""
    path = home / LEFT_OUT
    if not left_out:
        path.unlink(missing_ok=True)
        return
    replace_bytes(path, "".join(f"{each.name}\t{each.reason}\n" for each in left_out).encode())
    by_reason: dict[str, list[str]] = defaultdict(list)
    for each in left_out:
        by_reason[each.reason].append(each.name)
    for reason, names in by_reason.items():
        for name in names[:_NAMED]:
            tell(f"left out: {name} ({reason})")
        if len(names) > _NAMED:
            tell(f"left out: {len(names) - _NAMED:,} more for this reason, listed in {path}")


def _saved_files(folder: Path) -> list[Path]:
    """The files of the dataset that `datasets` saved in `folder`, in its order; none when there is no such dataset."""
    if (path := folder / "dataset_dict.json").is_file():
        splits = _read_json(path, _SavedSplits).splits
        if len(splits) != 1:
            raise SourceError(f"{folder} has the splits {', '.join(splits)}: name the folder of one")
        return _saved_files(folder / splits[0])
    if (path := folder / "state.json").is_file():
        return [folder / file.filename for file in _read_json(path, _SavedState).files]
    return []


def _read_json(path: Path, model: type[_Saved]) -> _Saved:
    try:
        return model.model_validate(manifest.read_json(path))
    except ValidationError as error:
        raise SourceError(f"{path} cannot be read: {manifest.first_fault(error)}") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read: {error!r}") from None


def _page_files(paths: Iterable[Path], name: str) -> list[Path]:
    files = list(filter(_holds_pages, paths))
    if not files:
        raise SourceError(f"{name} is no .arrow or .parquet file of pages, no PDF and no image")
    return sorted(files, key=lambda path: natural(path.name))


def _holds_pages(path: Path) -> bool:
    return path.suffix in _FORMATS and path.name[0] != "." and role(path.stem) == "corpus"


def _scan(path: Path, key: str, home: Path, seen: _Seen) -> Shard | None:
    """The manifest entry of a file; None when it has no rows. Raises `SourceError` for a damaged file."""
    format = _FORMATS[path.suffix]
    pages = open_pages(path, format)
    rows = 0
    duplicates: set[str] = set()
    for batch in pages.batches():
        if batch.problem:
            raise SourceError(_not_whole(path, batch.problem))
        for at in range(batch.rows):
            page_id = batch.row(at).id
            if page_id is None or ids.problem_with(page_id):
                seen.unusable += 1
            elif page_id in seen.shard_of:
                seen.duplicates += 1
                if seen.shard_of[page_id] != key:
                    duplicates.add(page_id)
            else:
                seen.shard_of[page_id] = key
        rows += batch.rows
    if pages.problem:
        raise SourceError(_not_whole(path, pages.problem))
    if not rows:
        return None
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Shard(
        key=key,
        file=_relative(path, home),
        format=format,
        rows=rows,
        bytes=path.stat().st_size,
        sha256=sha256,
        duplicates=sorted(duplicates),
        text_layers=sum(layer is not None for layer in pages.text_layers()),
    )


def _not_whole(path: Path, problem: str) -> str:
    return f"{path}: {problem}; bring in a whole file and index again"


def _index_queries(
    found: _Source, shard_of: dict[str, str], keys: Sequence[str], home: Path, progress: Progress
) -> QueryFile | None:
    if found.questions is None:
        progress(f"{found.name} has no queries")
        return None
    queries = parse_queries(found.questions, found.annotations, found.questions_name)
    if not queries:
        progress(f"{found.questions_name} has no rows: there are no queries")
        return None
    unknown = _unknown_pages(queries, shard_of)
    if unknown:
        progress(f"{len(unknown):,} ground-truth pages are not in the corpus, the first is {quoted(unknown[0])}")
    table = to_table(queries, assign(queries, shard_of, keys))
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer)
    replace_bytes(home / QUERIES, buffer.getvalue())
    progress(f"{len(queries):,} queries")
    return QueryFile(file=QUERIES, rows=len(queries), sha256=digest(table), unknown=unknown)


def _unknown_pages(queries: Sequence[Query], shard_of: dict[str, str]) -> list[str]:
    pages = dict.fromkeys(page for query in queries for page in query.ground_truth)
    return [page for page in pages if page not in shard_of]


def _relative(path: Path, home: Path) -> str:
    """`path` relative to `home` when it lies in it, else absolute. Links are not resolved: they may be better names."""
    path, home = Path(os.path.abspath(path)), Path(os.path.abspath(home))
    return path.relative_to(home).as_posix() if path.is_relative_to(home) else str(path)
