"""The shards of an index that is being written: the ids of their pages, which are doubled, and their keys."""

import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from resources.errors import SourceError
from resources.pages import ids
from resources.pages.arrow import open_pages
from resources.pages.manifest import Shard, shard_key
from resources.pages.places.corpus_place import CorpusPlace
from resources.pages.places.object_paths import SourcePath, on_disk, sha256_of
from resources.pages.source_files import format_of

Rows = Sequence[tuple[str | None, str | None]]
"""The id and the document of every row of a file."""


@dataclass(frozen=True, slots=True)
class PageRows:
    """A shard with its rows, None where its file cannot be read now; its key is empty until it has one.

    `written` is when its file was last written, in nanoseconds; None for one at a URL.
    """

    shard: Shard
    rows: Rows | None
    written: int | None = None


@dataclass(slots=True)
class SeenIds:
    """The page ids of the shards so far, and counts of rows that cannot keep their id."""

    shard_of: dict[str, str] = field(default_factory=dict)
    duplicates: int = 0
    unusable: int = 0

    def take(self, file: PageRows) -> Shard:
        """The entry of the next shard, with the ids in it that belong to a page of an earlier one."""
        if file.rows is None:
            return file.shard
        duplicates: set[str] = set()
        for page_id, _ in file.rows:
            if page_id is None or ids.problem_with(page_id):
                self.unusable += 1
            elif page_id in self.shard_of:
                self.duplicates += 1
                if self.shard_of[page_id] != file.shard.key:
                    duplicates.add(page_id)
            else:
                self.shard_of[page_id] = file.shard.key
        return file.shard.model_copy(update={"duplicates": sorted(duplicates)})


def read_file(path: SourcePath, place: CorpusPlace, source: str, key: str = "") -> PageRows | None:
    """A file of pages, read as a whole; None when it has no rows. Raises `SourceError` for a damaged one."""
    format = format_of(path)
    assert format is not None, "a file of pages was found by its suffix"
    # Before it is read: what is written meanwhile is noticed later.
    written = path.stat().st_mtime_ns if isinstance(path, Path) else None
    with on_disk(path) as file:
        pages = open_pages(file, format, place=str(path))
    rows: list[tuple[str | None, str | None]] = []
    layers = 0
    for batch in pages.batches():
        if problem := batch.problem or batch.misread:
            raise SourceError(_not_whole(path, problem) if batch.problem else f"{path}: {problem}")
        for at in range(batch.rows):
            row = batch.row(at)
            rows.append((row.id, row.file_name))
            layers += row.text_layer is not None
    if pages.problem:
        raise SourceError(_not_whole(path, pages.problem))
    if not rows:
        return None
    shard = Shard(
        key=key,
        file=place.relative(path),
        format=format,
        rows=len(rows),
        bytes=path.stat().st_size if isinstance(path, Path) else path.size,
        sha256=sha256_of(path),
        text_layers=layers,
        source=source,
    )
    return PageRows(shard, rows, written)


def with_keys(
    files: Sequence[PageRows], had: Sequence[Shard], others: Sequence[PageRows], retired: Mapping[str, str]
) -> tuple[list[PageRows], dict[str, str]]:
    """The files, each with a key, and the keys of those that the source `had` and that nothing has any more.

    A file keeps the key that its bytes, or else its path, had, or gets the one back under which its bytes were
    `retired`; the others get the lowest numbers that nothing has or had.
    """
    keys = {at: file.shard.key for at, file in enumerate(files) if file.shard.key}
    free = {shard.key: shard for shard in had if shard.key not in keys.values()}
    for same in (lambda shard: (shard.sha256, shard.file), lambda shard: shard.sha256, lambda shard: shard.file):
        known: dict[Any, list[str]] = defaultdict(list)
        for shard in reversed(free.values()):
            known[same(shard)].append(shard.key)
        for at, file in enumerate(files):
            if at not in keys and (left := known.get(same(file.shard))):
                keys[at] = left.pop()
                del free[keys[at]]
    gone = {**retired, **{key: shard.sha256 for key, shard in free.items()}}
    back = {sha256: key for key, sha256 in gone.items()}
    for at, file in enumerate(files):
        if at not in keys and file.shard.sha256 in back:
            keys[at] = back.pop(file.shard.sha256)
            del gone[keys[at]]
    used = {*keys.values(), *gone, *(file.shard.key for file in others)}
    numbers = (key for number in itertools.count() if (key := shard_key(number)) not in used)
    keyed = [
        replace(file, shard=file.shard.model_copy(update={"key": keys.get(at) or next(numbers)}))
        for at, file in enumerate(files)
    ]
    return keyed, gone


def document_of(row: tuple[str | None, str | None]) -> str:
    page_id, name = row
    return name or (page_id or "").rpartition("_")[0] or page_id or ""


def _not_whole(path: SourcePath, problem: str) -> str:
    return f"{path}: {problem}; bring in a whole file and index again"
