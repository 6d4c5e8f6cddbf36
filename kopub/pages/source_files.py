"""A source's files and their rows: pages, questions, documents and left-out files."""

import itertools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pydantic import BaseModel, Field, ValidationError

from kopub.errors import SourceError, spelt
from kopub.files import is_url
from kopub.pages import manifest
from kopub.pages.arrow import open_pages
from kopub.pages.corpus import read_table
from kopub.pages.documents.conversion import NO_DOCUMENT
from kopub.pages.documents.folder import LeftOut, SourceFile, find_documents
from kopub.pages.documents.pdf import is_pdf
from kopub.pages.manifest import Shard, shard_key
from kopub.pages.places import CorpusPlace, ObjectPath, SourcePath, natural, on_disk, require_utf8, sha256_of
from kopub.states import phrase

if TYPE_CHECKING:
    from datasets import Dataset

_FORMATS: dict[str, Literal["arrow", "parquet"]] = {".arrow": "arrow", ".parquet": "parquet", ".pq": "parquet"}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_OF = re.compile(r"(.*-)(\d+)(-of-)(\d+)(\D*)")
"""A file name that states the number of files: `train-00000-of-00003.parquet`."""
_OF_DATASETS = frozenset({"dataset_dict.json", "dataset_info.json", "state.json"})
"""Files that `datasets` writes beside its data, and that can be left out without loss."""
_OF_HOME = frozenset(
    [
        manifest.NAME,
        manifest.GOLD,
        manifest.BEGUN,
        "queries.parquet",
        "left_out.txt",
        "rendered",
        "store",
        "sources",
        "evaluations",
    ]
)
"""Names that the platform writes into a home, which are not part of a source in the same folder."""
_READ_FROM = {
    "qa": "questions are read from one table beside the pages, called …-qa",
    "queries": "questions are read from one table beside the pages, called …-qa",
    "annotations": "annotations are read from one table beside the pages, called …-annotations",
}
"""The reason to leave out a table, by its role."""
_MISSING = "not there, although the names of the others count it"


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of a source: either `pages`, in order, or `documents`."""

    name: str
    pages: Sequence[SourcePath]
    documents: list[SourceFile] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    questions: pa.Table | None = None
    annotations: pa.Table | None = None
    questions_name: str = ""
    revision: str | None = None


class _SavedSplits(BaseModel):
    """The used part of the file that `datasets` writes beside several splits."""

    splits: list[str]


class _SavedFile(BaseModel):
    filename: str


class _SavedState(BaseModel):
    """The used part of the file that `datasets` writes beside a split."""

    files: list[_SavedFile] = Field(alias="_data_files")


def find_files(source: str, place: CorpusPlace, progress: Callable[[str], None]) -> SourceFiles:
    """Return the files of a source indexed at `place`. Raises `SourceError`, `StoreError` for a URL."""
    folder = ObjectPath.listed(source, place.fetched) if is_url(source) else Path(source)
    require_utf8(place.relative(source))
    if folder.is_dir():
        if isinstance(folder, Path) and not os.access(folder, os.R_OK | os.X_OK):
            raise SourceError("{source} cannot be read: you lack the permission to open this folder", source)
        return _in_folder(folder, isinstance(folder, Path) and folder.resolve() == place.folder.resolve())
    if folder.is_file():
        contents = find_documents(folder)
        if contents.documents:
            return SourceFiles(source, [], contents.documents)
        if format_of(folder) is None:
            raise SourceError("{source} is no file of pages: {reason}", source, contents.left_out[0].reason)
        if not _holds_pages(folder):
            raise SourceError("{source} is no .arrow or .parquet file of pages, and {reason}", source, NO_DOCUMENT)
        return SourceFiles(source, [folder])
    if isinstance(folder, Path):
        require_source(source)
        return download(source, progress)
    raise SourceError("there is nothing at {source}: correct the URL", source)


def require_source(source: str) -> None:
    """Raise `SourceError` for what is no folder, file, URL or Hub dataset."""
    path = Path(source)
    is_hub_id = _HUB_ID.fullmatch(source) and not path.parent.is_dir()
    if not (is_url(source) or path.is_dir() or path.is_file() or is_hub_id):
        form = "{source} is neither a folder, an .arrow or .parquet file, a document nor the id of a Hub dataset"
        raise SourceError(form, source)


def format_of(path: SourcePath) -> Literal["arrow", "parquet"] | None:
    """Return a file's format by its suffix, or None if it is not a table."""
    return _FORMATS.get(path.suffix.lower())


def _in_folder(folder: SourcePath, is_home: bool) -> SourceFiles:
    """Return the files in and below a folder; a home's own files are left out."""
    pages = folder / "corpus" if (folder / "corpus").is_dir() else folder
    beside = {role(path.stem): path for path in sorted(folder.iterdir()) if format_of(path) == "parquet"}
    around = find_documents(folder)
    in_order = sorted(_saved_files(pages) or pages.iterdir(), key=lambda path: (natural(path.name), path.name))
    files = list(filter(_holds_pages, in_order))
    documents: list[SourceFile] = []
    if files:
        for document in around.documents:
            if document.path.parent == pages and is_pdf(document.path):
                raise _two_kinds(pages, document.path, files[0])
        left_out = [*_beside_shards(files, [*around.left_out, *around.documents], pages), *_gaps(files)]
    else:
        left_out: list[LeftOut] = []
        for file in around.left_out:
            is_shard = _holds_pages(file.path)
            left_out.append(replace(file, reason="a file of pages: index its folder alone") if is_shard else file)
        documents = (around if pages == folder else find_documents(pages)).documents
        for place, path in {document.path.parent: document.path for document in documents}.items():
            if other := next(filter(_holds_pages, sorted(place.iterdir())), None):
                raise _two_kinds(place, path, other)
        if not documents:
            more = phrase("; left out: {file} ({reason})", left_out[0].name, left_out[0].reason) if left_out else ""
            raise SourceError("{folder} has no pages in Arrow or Parquet, and {reason}{more}", pages, NO_DOCUMENT, more)
        if len(around.documents) > len(documents):
            form = "{folder} holds documents in corpus/ and outside of it: put all into it, or give it another name"
            raise SourceError(form, folder)
    used: set[str] = set()
    tables: dict[str, pa.Table] = {}
    for kind in ("qa", "annotations"):
        if path := beside.get(kind):
            used.add(str(path))
            require_utf8(path)
            with on_disk(path) as file:
                tables[kind] = read_table(file)
    own = _OF_HOME if is_home else frozenset[str]()
    return SourceFiles(
        name=str(folder),
        pages=files,
        documents=documents,
        left_out=[file for file in left_out if str(file.path) not in used and file.name.split("/")[0] not in own],
        questions=tables.get("qa"),
        annotations=tables.get("annotations"),
        questions_name=str(beside.get("qa", "")),
    )


def _two_kinds(place: SourcePath, document: SourcePath, pages: SourcePath) -> SourceError:
    form = (
        "{place} holds documents and .arrow or .parquet files ({document}, {pages}): give each kind a folder of its "
        "own and index one"
    )
    return SourceError(form, place, document.name, pages.name)


def _beside_shards(
    files: Sequence[SourcePath], others: Iterable[SourceFile | LeftOut], folder: SourcePath
) -> Iterator[LeftOut]:
    """Yield the files around the page files in `folder`, with reasons to leave them out."""
    taken = set(map(str, files))
    is_saved = (files[0].parent / "state.json").is_file()
    for other in others:
        if str(other.path) in taken or other.path.name in _OF_DATASETS:
            continue
        if isinstance(other, SourceFile):
            form = "beside {files}, which holds the pages"
            what = phrase(form, files[0].name) if other.path.parent == folder else "a document"
            reason = phrase("{what}: index it from a folder of its own", what)
        elif other.path.name[0] == "." or format_of(other.path) is None:
            reason = other.reason
        elif (kind := role(other.path.stem)) != "corpus":
            reason = _READ_FROM[kind]
        elif other.path.name == manifest.GOLD:
            reason = "known answers are read from the home: copy it there"
        elif is_saved and other.path.parent == files[0].parent:
            reason = "the file of the dataset beside it does not list it"
        else:
            reason = "a file of pages in another folder: index that folder too, with --add"
        yield LeftOut(other.path, other.name, reason)


def _gaps(files: Sequence[SourcePath]) -> Iterator[LeftOut]:
    """Yield the files that are missing although other files' names count them."""
    numbers: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in files:
        if match := _OF.fullmatch(path.name):
            first, number, of, count, end = match.groups()
            numbers[first, of, count, end].append(number)
    for (first, of, count, end), counted in sorted(numbers.items()):
        there, width = set(map(int, counted)), min(map(len, counted))
        # Files are numbered from 0, or from 1 up to their count.
        start = int(int(count) in there)
        # A hostile name may claim billions of files.
        for at in range(start, start + min(int(count), len(files) * 100)):
            if at not in there:
                name = f"{first}{at:0{width}d}{of}{count}{end}"
                yield LeftOut(files[0].parent / name, spelt(name), _MISSING)


def _saved_files(folder: SourcePath) -> list[SourcePath]:
    """Return the files of a dataset that `datasets` saved, in its order, if any."""
    path = folder / "dataset_dict.json"
    try:
        if path.is_file():
            splits = _SavedSplits.model_validate(manifest.parsed_json(path.read_bytes())).splits
            if len(splits) != 1:
                raise SourceError("{folder} has the splits {splits}: name the folder of one", folder, ", ".join(splits))
            folder = folder / splits[0]
        path = folder / "state.json"
        if not path.is_file():
            return []
        state = _SavedState.model_validate(manifest.parsed_json(path.read_bytes()))
        return [folder / file.filename for file in state.files]
    except ValidationError as error:
        raise SourceError("{path} cannot be read: {error}", path, manifest.first_fault(error)) from None
    except (OSError, ValueError) as error:
        raise SourceError("{path} cannot be read: {error}", path, repr(error)) from None


def _holds_pages(path: SourcePath) -> bool:
    return format_of(path) is not None and path.name[0] != "." and role(path.stem) == "corpus"


_BESIDE = frozenset({"qa", "annotations", "queries"})
"""Roles of tables beside the pages: questions, the ids of their pages, and indexed queries."""


def role(name: str) -> str:
    """Return a name's role by its last word: one of `_BESIDE`, or "corpus"."""
    word = name.lower().replace("_", "-").rpartition("-")[2]
    return word if word in _BESIDE else "corpus"


def download(dataset_id: str, progress: Callable[[str], None]) -> SourceFiles:
    """Return a dataset's configurations, from the cache or the Hub. Raises `SourceError`."""
    from datasets import get_dataset_config_names, load_dataset, load_dataset_builder
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    try:
        names = get_dataset_config_names(dataset_id)
        by_role: dict[str, list[str]] = defaultdict(list)
        for name in names:
            by_role[role(name)].append(name)
        if len(by_role["corpus"]) != 1:
            form = "{dataset} has the configurations {names}: which holds pages is not clear"
            raise SourceError(form, dataset_id, ", ".join(names))
        revision = load_dataset_builder(dataset_id, by_role["corpus"][0]).hash
        loaded: dict[str, Dataset] = {}
        for part in ("corpus", "qa", "annotations"):
            for name in by_role[part][:1]:
                progress(f"{dataset_id}: bringing in {name}")
                splits: Any = load_dataset(dataset_id, name, revision=revision)
                if len(splits) != 1:
                    form = "{name} has the splits {splits}; a corpus has one"
                    raise SourceError(form, f"{dataset_id} {name}", ", ".join(splits))
                loaded[part] = next(iter(splits.values()))
    except (DatasetsError, HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        form = "{dataset} cannot be brought in from the Hub: {error}; a folder with its Parquet files will do as well"
        raise SourceError(form, dataset_id, reason) from None
    return SourceFiles(
        name=dataset_id,
        pages=[Path(file["filename"]) for file in loaded["corpus"].cache_files],
        questions=loaded["qa"].data.table if "qa" in loaded else None,
        annotations=loaded["annotations"].data.table if "annotations" in loaded else None,
        questions_name=dataset_id,
        revision=str(revision),
    )


Rows = Sequence[tuple[str | None, str | None]]
"""The id and the document of every row of a file."""


@dataclass(frozen=True, slots=True)
class ShardRows:
    """A shard with its rows, which are None if its file cannot be read.

    Its key is empty until one is assigned. `written` is when its file was last written, in nanoseconds; None for a file
    at a URL.
    """

    shard: Shard
    rows: Rows | None
    written: int | None = None


def read_file(path: SourcePath, place: CorpusPlace, source: str, key: str = "") -> ShardRows | None:
    """Read a whole file of pages; None without rows. Raises `SourceError` for damage."""
    format = format_of(path)
    assert format is not None, "a file of pages was found by its suffix"
    # The time is taken before the file is read, so that a write during the read is noticed later.
    written = path.stat().st_mtime_ns if isinstance(path, Path) else None
    require_utf8(path)
    with on_disk(path) as file:
        pages = open_pages(file, format, place=str(path))
        size = file.stat().st_size
    rows: list[tuple[str | None, str | None]] = []
    layers = 0
    not_whole = "{path}: {reason}; bring in a whole file and index again"
    for batch in pages.batches():
        if batch.problem:
            raise SourceError(phrase(not_whole, path, batch.problem))
        if batch.misread:
            raise SourceError(phrase("{path}: {reason}", path, batch.misread))
        for at in range(batch.rows):
            row = batch.row(at)
            rows.append((row.id, row.file_name))
            layers += row.text_layer is not None
    if pages.problem:
        raise SourceError(phrase(not_whole, path, pages.problem))
    if not rows:
        return None
    shard = Shard(
        key=key,
        file=place.relative(path),
        format=format,
        rows=len(rows),
        bytes=size,
        sha256=sha256_of(path),
        text_layers=layers,
        source=source,
    )
    return ShardRows(shard, rows, written)


def with_keys(
    files: Sequence[ShardRows], had: Sequence[Shard], others: Sequence[ShardRows], retired: Mapping[str, str]
) -> tuple[list[ShardRows], dict[str, str]]:
    """Return the files with their keys, and all retired keys.

    A file keeps the key that its bytes, or else its path, `had`, or gets back the key under which its bytes were
    `retired`; the other files get the lowest numbers never used. Keys that the source `had` and no file has now are
    added to the retired ones.
    """
    keys = {at: file.shard.key for at, file in enumerate(files) if file.shard.key}
    free = {shard.key: shard for shard in had if shard.key not in keys.values()}
    # The surest likeness comes first: a file that was only moved keeps its key before one that took its place.
    for same in (lambda shard: (shard.sha256, shard.file), lambda shard: shard.sha256, lambda shard: shard.file):
        keys_of: dict[Any, list[str]] = defaultdict(list)
        for shard in reversed(free.values()):
            keys_of[same(shard)].append(shard.key)
        for at, file in enumerate(files):
            if at not in keys and (former := keys_of.get(same(file.shard))):
                keys[at] = former.pop()
                del free[keys[at]]
    gone = dict(retired)
    for key, shard in free.items():
        gone[key] = shard.sha256
    back = dict(zip(gone.values(), gone, strict=True))
    for at, file in enumerate(files):
        if at not in keys and file.shard.sha256 in back:
            keys[at] = back.pop(file.shard.sha256)
            del gone[keys[at]]
    used = {*keys.values(), *gone, *(file.shard.key for file in others)}
    unused = itertools.filterfalse(used.__contains__, map(shard_key, itertools.count()))
    keyed: list[ShardRows] = []
    for at, file in enumerate(files):
        key = keys.get(at) or next(unused)
        keyed.append(replace(file, shard=file.shard.model_copy(update={"key": key})))
    return keyed, gone
