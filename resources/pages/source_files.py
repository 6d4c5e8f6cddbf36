"""What a source holds: files of pages, or documents to make them from, tables of questions, and what is left out."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeVar

import pyarrow as pa
from pydantic import BaseModel, Field, ValidationError

from resources.errors import SourceError
from resources.pages import manifest
from resources.pages.documents.folder import Document, LeftOut, find_documents
from resources.pages.documents.pdf import is_pdf
from resources.pages.hub_dataset import download, role
from resources.pages.names import natural
from resources.pages.places.corpus_place import CorpusPlace
from resources.pages.places.object_paths import ObjectPath, SourcePath, on_disk
from resources.pages.queries import read_table
from resources.urls import is_url

_FORMATS: dict[str, Literal["arrow", "parquet"]] = {".arrow": "arrow", ".parquet": "parquet", ".pq": "parquet"}
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")
_OF = re.compile(r"(.*-)(\d+)(-of-)(\d+)(\D*)")
"""A file that says how many there are: `train-00000-of-00003.parquet`."""
_OF_DATASETS = frozenset({"dataset_dict.json", "dataset_info.json", "state.json"})
"""What `datasets` writes beside its files: nothing of it is lost."""
_OF_HOME = frozenset(
    [manifest.NAME, manifest.GOLD, "queries.parquet", "left_out.txt", "rendered", "store", "sources", "evaluations"]
)
"""What is written into a home, which is no part of a source that lies in the same folder."""
_READ_FROM = {
    "qa": "questions are read from one table beside the pages, called …-qa",
    "queries": "questions are read from one table beside the pages, called …-qa",
    "annotations": "annotations are read from one table beside the pages, called …-annotations",
}
"""Why a table of this role is left out."""


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """What was found in a source: `pages` are files of pages in their order; of these and `documents` one is empty."""

    name: str
    pages: Sequence[SourcePath]
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


def find_files(source: str, place: CorpusPlace, progress: Callable[[str], None]) -> SourceFiles:
    """What a source holds, which is indexed at `place`. Raises `SourceError`, and `StoreError` for one at a URL."""
    folder = ObjectPath.listed(source, place.fetched) if is_url(source) else Path(source)
    if folder.is_dir():
        return _in_folder(folder, isinstance(folder, Path) and folder.resolve() == place.folder.resolve())
    if folder.is_file():
        found = find_documents(folder)
        if found.documents:
            return SourceFiles(source, [], found.documents)
        if format_of(folder) is None:
            raise SourceError(f"{source} is no file of pages: {found.left_out[0].reason}")
        if not _holds_pages(folder):
            raise SourceError(f"{source} is no .arrow or .parquet file of pages, no PDF and no image")
        return SourceFiles(source, [folder])
    if _HUB_ID.fullmatch(source) and isinstance(folder, Path) and not folder.parent.is_dir():
        corpus = download(source, progress)
        return SourceFiles(source, corpus.files, [], [], corpus.questions, corpus.annotations, source, corpus.revision)
    raise SourceError(
        f"{source} is neither a folder, an .arrow or .parquet file, a document nor the id of a Hub dataset"
        if isinstance(folder, Path)
        else f"there is nothing at {source}: correct the URL"
    )


def format_of(path: SourcePath) -> Literal["arrow", "parquet"] | None:
    """How the rows of a file are stored, by its suffix; None for a file of another kind."""
    return _FORMATS.get(path.suffix.lower())


def _in_folder(folder: SourcePath, is_home: bool) -> SourceFiles:
    """What is in a folder and below; of a home, what the platform writes there is no part of its own source."""
    pages = folder / "corpus" if (folder / "corpus").is_dir() else folder
    beside = {role(path.stem): path for path in sorted(folder.iterdir()) if format_of(path) == "parquet"}
    questions, annotations = beside.get("qa"), beside.get("annotations")
    around = find_documents(folder)
    files = sorted(filter(_holds_pages, _saved_files(pages) or pages.iterdir()), key=lambda path: natural(path.name))
    documents: list[Document] = []
    if files:
        pdf = next((each.path for each in around.documents if each.path.parent == pages and is_pdf(each.path)), None)
        if pdf:
            raise _two_kinds(pages, pdf, files[0])
        left_out = [*_beside_shards(files, [*around.left_out, *around.documents], pages), *_gaps(files)]
    else:
        left_out = [_with_shards_named(each) for each in around.left_out]
        documents = _documents_in(pages, (around if pages == folder else find_documents(pages)).documents, left_out)
        if len(around.documents) > len(documents):
            raise SourceError(
                f"{folder} holds documents in corpus/ and outside of it: put all into it, or give it another name"
            )
    used = {str(path) for path in (questions, annotations) if path}
    own = _OF_HOME if is_home else frozenset[str]()
    return SourceFiles(
        name=str(folder),
        pages=files,
        documents=documents,
        left_out=[each for each in left_out if str(each.path) not in used and each.name.split("/")[0] not in own],
        questions=_table(questions) if questions else None,
        annotations=_table(annotations) if annotations else None,
        questions_name=str(questions or ""),
    )


def _table(path: SourcePath) -> pa.Table:
    with on_disk(path) as file:
        return read_table(file)


def _documents_in(folder: SourcePath, found: list[Document], left_out: Sequence[LeftOut]) -> list[Document]:
    """The documents that were `found` in a folder. Raises `SourceError` for none, and for files of pages beside one."""
    for place, document in {each.path.parent: each.path for each in found}.items():
        if other := next(filter(_holds_pages, sorted(place.iterdir())), None):
            raise _two_kinds(place, document, other)
    if not found:
        more = f"; left out: {left_out[0].name} ({left_out[0].reason})" if left_out else ""
        raise SourceError(f"{folder} has no .arrow or .parquet file of pages, no PDF and no image{more}")
    return found


def _two_kinds(place: SourcePath, document: SourcePath, pages: SourcePath) -> SourceError:
    return SourceError(
        f"{place} holds documents and .arrow or .parquet files ({document.name}, {pages.name}): "
        "give each kind a folder of its own and index one"
    )


def _beside_shards(
    files: Sequence[SourcePath], others: Iterable[Document | LeftOut], folder: SourcePath
) -> Iterator[LeftOut]:
    """What lies beside the files of pages in `folder`, in it, above it and below, with the reason to leave it out."""
    taken = {str(path) for path in files}
    saved = (files[0].parent / "state.json").is_file()
    for each in others:
        if str(each.path) in taken or each.path.name in _OF_DATASETS:
            continue
        if isinstance(each, Document):
            what = f"beside {files[0].name}, which holds the pages" if each.path.parent == folder else "a document"
            reason = f"{what}: index it from a folder of its own"
        elif not _is_table(each.path):
            reason = each.reason
        elif (kind := role(each.path.stem)) != "corpus":
            reason = _READ_FROM[kind]
        elif saved and each.path.parent == files[0].parent:
            reason = "the file of the dataset beside it does not list it"
        else:
            reason = "a file of pages in another folder: index that folder too, with --add"
        yield LeftOut(each.path, each.name, reason)


def _gaps(files: Sequence[SourcePath]) -> Iterator[LeftOut]:
    """The files that are not there although the others' names count them."""
    found = {match.groups() for path in files if (match := _OF.fullmatch(path.name))}
    parts = {(first, len(number), of, count, end) for first, number, of, count, end in found}
    for first, width, of, count, end in sorted(parts):
        # A hostile name may count billions.
        for at in range(min(int(count), len(files) * 100)):
            if (first, f"{at:0{width}d}", of, count, end) not in found:
                name = f"{first}{at:0{width}d}{of}{count}{end}"
                yield LeftOut(files[0].parent / name, name, "not there, although the names of the others count it")


def _with_shards_named(left_out: LeftOut) -> LeftOut:
    reason = "a file of pages: index its folder alone"
    return replace(left_out, reason=reason) if _holds_pages(left_out.path) else left_out


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


def _is_table(path: SourcePath) -> bool:
    return format_of(path) is not None and path.name[0] != "."


def _holds_pages(path: SourcePath) -> bool:
    return _is_table(path) and role(path.stem) == "corpus"
