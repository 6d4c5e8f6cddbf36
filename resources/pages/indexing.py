"""Indexing: a source of pages becomes a shard manifest, and its queries a table beside it."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field, ValidationError

from resources.errors import SourceError, TableBusy
from resources.pages import ids, manifest
from resources.pages.arrow import open_pages
from resources.pages.documents import shards
from resources.pages.documents.folder import Document, LeftOut, find_documents
from resources.pages.documents.pdf import DPI, is_pdf
from resources.pages.documents.rendered import Rendered
from resources.pages.hub_dataset import download, role
from resources.pages.manifest import Manifest, QueryFile, Shard, shard_key
from resources.pages.names import natural
from resources.pages.places.corpus_place import CorpusPlace, place_of
from resources.pages.places.object_paths import ObjectPath, SourcePath, on_disk, sha256_of
from resources.pages.queries import Query, assign, digest, parse_queries, read_table, to_table
from resources.printable import counted, quoted
from resources.urls import is_url

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
    files: Sequence[SourcePath]
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


def index(source: str, where: Path | CorpusPlace, progress: Progress | None = None, dpi: int = DPI) -> Manifest:
    """Write shards.json into a home, or into the place of a shared index, and queries.parquet when there are queries.

    `source` is a folder that `datasets` saved, a folder of .arrow or .parquet files (one file is
    one shard, in natural order of their names), a folder with PDFs and images in it or below, any of
    these named corpus/ with questions beside it, one such file, the URL of any of these, or the id of a Hub
    dataset. Pages of PDFs are drawn at `dpi`, and image files taken in, into shards in rendered/ beside the index,
    once. Files that are left out are listed in left_out.txt beside it. `progress` gets a line for every step. Raises
    `SourceError`, or `StoreError` when a file cannot be written; what was indexed before stays.
    """
    tell, place = progress or _say_nothing, place_of(where)
    found = _find(source, place, tell)
    if place.url and not is_url(source) and not found.documents:
        tell(f"{place} is shared, and its files lie on this machine: other nodes must have them at the same paths")
    with _alone(place, tell):
        if found.documents:
            rendered = Rendered(place)
            with rendered.exclusive():
                found = replace(found, files=shards.render(found.documents, rendered, _before(place), dpi, tell))
                result = _index(source, found, place, tell)
                rendered.clear(found.files)
        else:
            result = _index(source, found, place, tell)
        _list_left_out(found.left_out, place, tell)
    return result


@contextmanager
def _alone(place: CorpusPlace, tell: Progress) -> Iterator[None]:
    """One process of all nodes at a time writes an index on object storage. Raises `StoreError`."""
    if not place.remote:
        yield
        return
    from resources.store.files.objects import Objects
    from resources.store.locks import held
    from resources.store.locks.objects import ObjectLock

    objects, what = Objects.at(place.url)[0], f"the index at {place}"
    try:
        held.acquire(place.lock, ObjectLock(objects, place.lock, what), what, wait=False)
    except TableBusy:
        tell(f"another `kopub index` writes {what}: waiting for it")
        held.acquire(place.lock, ObjectLock(objects, place.lock, what), what, wait=True)
    try:
        yield
    finally:
        held.release(place.lock)


def _before(place: CorpusPlace) -> Manifest | None:
    """The index that is about to be replaced; None where there is none that can be used."""
    with suppress(SourceError):
        before = Manifest.load(place)
        return before if before.index == place else None
    return None


def _index(source: str, found: _Source, place: CorpusPlace, tell: Progress) -> Manifest:
    seen = _Seen()
    shards: list[Shard] = []
    for at, path in enumerate(found.files, start=1):
        shard = _scan(path, shard_key(len(shards)), place, seen)
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
    queries = _index_queries(found, seen.shard_of, [shard.key for shard in shards], place, tell)
    result = Manifest(
        source=found.name if found.revision else place.relative(source),
        revision=found.revision,
        shards=shards,
        queries=queries,
    )
    place.write(manifest.NAME, result.to_json().encode())
    if queries is None:
        place.remove(QUERIES)
    return Manifest.load(place)


def _say_nothing(line: str) -> None:
    """For callers that show no progress."""


def _find(source: str, place: CorpusPlace, progress: Progress) -> _Source:
    folder = ObjectPath.listed(source, place.fetched) if is_url(source) else Path(source)
    if folder.is_dir():
        return _find_in_folder(folder)
    if folder.is_file():
        found = find_documents(folder)
        if found.documents:
            return _Source(source, [], found.documents)
        if folder.suffix not in _FORMATS:
            raise SourceError(f"{source} is no file of pages: {found.left_out[0].reason}")
        return _Source(source, _page_files([folder], source))
    if _HUB_ID.fullmatch(source) and isinstance(folder, Path) and not folder.parent.is_dir():
        corpus = download(source, progress)
        return _Source(source, corpus.files, [], [], corpus.questions, corpus.annotations, source, corpus.revision)
    raise SourceError(
        f"{source} is neither a folder, an .arrow or .parquet file, a document nor the id of a Hub dataset"
        if isinstance(folder, Path)
        else f"there is nothing at {source}: correct the URL"
    )


def _find_in_folder(folder: SourcePath) -> _Source:
    pages = folder / "corpus" if (folder / "corpus").is_dir() else folder
    tables = sorted(path for path in folder.iterdir() if path.suffix == ".parquet")
    beside = {role(path.stem): path for path in tables}
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
        questions=_table(questions) if questions else None,
        annotations=_table(annotations) if annotations else None,
        questions_name=str(questions or ""),
    )


def _table(path: SourcePath) -> pa.Table:
    with on_disk(path) as file:
        return read_table(file)


def _pages_in(folder: SourcePath) -> tuple[list[SourcePath], list[Document], list[LeftOut]]:
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


def _two_kinds(place: SourcePath, document: SourcePath, pages: SourcePath) -> SourceError:
    return SourceError(
        f"{place} holds documents and .arrow or .parquet files ({document.name}, {pages.name}): "
        "give each kind a folder of its own and index one"
    )


def _list_left_out(left_out: Sequence[LeftOut], place: CorpusPlace, tell: Progress) -> None:
    """Tell of every reason to leave files out with its first files, and list all of them beside the index."""
    if not left_out:
        place.remove(LEFT_OUT)
        return
    place.write(LEFT_OUT, "".join(f"{each.name}\t{each.reason}\n" for each in left_out).encode())
    by_reason: dict[str, list[str]] = defaultdict(list)
    for each in left_out:
        by_reason[each.reason].append(each.name)
    for reason, names in by_reason.items():
        for name in names[:_NAMED]:
            tell(f"left out: {name} ({reason})")
        if len(names) > _NAMED:
            tell(f"left out: {len(names) - _NAMED:,} more for this reason, listed in {place.location(LEFT_OUT)}")


def _saved_files(folder: SourcePath) -> list[SourcePath]:
    """The files of the dataset that `datasets` saved in `folder`, in its order; none when there is no such dataset."""
    if (path := folder / "dataset_dict.json").is_file():
        splits = _read_json(path, _SavedSplits).splits
        if len(splits) != 1:
            raise SourceError(f"{folder} has the splits {', '.join(splits)}: name the folder of one")
        return _saved_files(folder / splits[0])
    if (path := folder / "state.json").is_file():
        return [folder / file.filename for file in _read_json(path, _SavedState).files]
    return []


def _read_json(path: SourcePath, model: type[_Saved]) -> _Saved:
    try:
        return model.model_validate(manifest.parsed_json(path.read_bytes()))
    except ValidationError as error:
        raise SourceError(f"{path} cannot be read: {manifest.first_fault(error)}") from None
    except (OSError, ValueError) as error:
        raise SourceError(f"{path} cannot be read: {error!r}") from None


def _page_files(paths: Iterable[SourcePath], name: str) -> list[SourcePath]:
    files = list(filter(_holds_pages, paths))
    if not files:
        raise SourceError(f"{name} is no .arrow or .parquet file of pages, no PDF and no image")
    return sorted(files, key=lambda path: natural(path.name))


def _holds_pages(path: SourcePath) -> bool:
    return path.suffix in _FORMATS and path.name[0] != "." and role(path.stem) == "corpus"


def _scan(path: SourcePath, key: str, place: CorpusPlace, seen: _Seen) -> Shard | None:
    """The manifest entry of a file; None when it has no rows. Raises `SourceError` for a damaged file."""
    format = _FORMATS[path.suffix]
    with on_disk(path) as file:
        pages = open_pages(file, format, place=str(path))
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
    return Shard(
        key=key,
        file=place.relative(path),
        format=format,
        rows=rows,
        bytes=path.stat().st_size if isinstance(path, Path) else path.size,
        sha256=sha256_of(path),
        duplicates=sorted(duplicates),
        text_layers=sum(layer is not None for layer in pages.text_layers()),
    )


def _not_whole(path: SourcePath, problem: str) -> str:
    return f"{path}: {problem}; bring in a whole file and index again"


def _index_queries(
    found: _Source, shard_of: dict[str, str], keys: Sequence[str], place: CorpusPlace, progress: Progress
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
    place.write(QUERIES, buffer.getvalue().to_pybytes())
    progress(f"{len(queries):,} queries")
    return QueryFile(file=QUERIES, rows=len(queries), sha256=digest(table), unknown=unknown)


def _unknown_pages(queries: Sequence[Query], shard_of: dict[str, str]) -> list[str]:
    pages = dict.fromkeys(page for query in queries for page in query.ground_truth)
    return [page for page in pages if page not in shard_of]
