"""What lies in a release folder, read from the footers of its files. Pure but for the reading."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import StoreError
from resources.release.dataset.configs import SUMMARY
from resources.release.dataset.part_paths import ALL_CONFIGS, published
from resources.states import LOST, State

_FEATURES = b"huggingface"
"""Footer key under which `datasets` keeps the features of a file."""

_AGAIN = "materialize hf_release again for"
_SUMMARISED = ("pages", "queries", "lineage")
"""Configs whose files hold a summary: a card needs it, and a file without one must not count as nothing."""

INCOMPLETE = [state.value for state in (State.PARTIAL, *LOST)]
"""Ends of a page that leave out something the page holds."""

Inventory = Mapping[str, list["Part"]]
"""The files of each config in shard order; a config without a single file is a key too."""


@dataclass(frozen=True, slots=True)
class Part:
    """One shard of one config. `features` is JSON, as `datasets` writes it."""

    shard: str
    path: str
    rows: int
    bytes: int
    features: str
    summary: Mapping[str, Any] = field(default_factory=dict)


def list_parts(folder: Path) -> Inventory:
    """Every published file under `folder`."""
    return {config: [_part(folder, path) for path in published(folder, config)] for config in ALL_CONFIGS}


def in_use(parts: Iterable[Part]) -> list[Part]:
    """The parts that make up a config: those with the features that most of its rows have.

    While a corpus is being redone with another vector width, the shards of both widths cannot be one dataset: the
    larger group of rows is loaded, and `waiting` names the other parts.
    """
    parts = list(parts)
    if not parts:
        return []
    rows: Counter[str] = Counter()
    for part in parts:
        rows[part.features] += part.rows
    features = rows.most_common(1)[0][0]
    return [part for part in parts if part.features == features]


def waiting_lines(inventory: Inventory) -> Iterator[str]:
    """A line for each config with rows that nobody can load: its shards are of two vector widths, say."""
    for config, parts in inventory.items():
        used = in_use(parts)
        waiting = [part.shard for part in parts if part.rows and part not in used]
        if waiting:
            rows, loaded = (sum(part.rows for part in some) for some in (parts, used))
            more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
            yield (
                f"{config} loads {loaded} of {rows} rows: {waiting[0]}{more} has other columns, or vectors of another "
                "width, than the rest; materialize its tables and hf_release again"
            )


def incomplete_pages(folder: Path, parts: Iterable[Part]) -> Iterator[dict[str, str]]:
    """page_id, state and reason of the pages that lost something or everything, in corpus order."""
    for part in parts:
        if any(part.summary["ended"][state] for state in INCOMPLETE):
            yield from pq.read_table(
                folder / part.path, columns=["page_id", "state", "reason"], filters=[("state", "in", INCOMPLETE)]
            ).to_pylist()


def documents(inventory: Inventory, license: str | None) -> Iterator[tuple[str | None, str, str | None, int]]:
    """(document, source file, licence, pages) in corpus order; `license` is that of pages that state none."""
    for part in inventory["pages"]:
        for document, source, stated, pages in part.summary["documents"]:
            yield document, source, stated or license, pages


def licences(inventory: Inventory, license: str | None) -> dict[str | None, int]:
    """Pages by licence, as their sources state it."""
    counted: Counter[str | None] = Counter()
    for _, _, stated, pages in documents(inventory, license):
        counted[stated] += pages
    return dict(counted)


def features_of(table: pa.Table) -> str:
    """The features of a config's table, as its file will have them."""
    return table.schema.metadata[_FEATURES].decode()


def _part(folder: Path, path: Path) -> Part:
    try:
        footer = pq.read_metadata(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise StoreError(f"{path} is not readable ({error}): delete it and {_AGAIN} {path.stem}") from None
    metadata = footer.metadata or {}
    if _FEATURES not in metadata or (path.parent.name in _SUMMARISED and SUMMARY not in metadata):
        raise StoreError(f"{path} is no file of a release: delete it and {_AGAIN} {path.stem}")
    return Part(
        shard=path.stem,
        path=path.relative_to(folder).as_posix(),
        rows=footer.num_rows,
        bytes=path.stat().st_size,
        features=metadata[_FEATURES].decode(),
        summary=json.loads(metadata.get(SUMMARY, b"{}")),
    )
