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
from resources.release.dataset.configs import CONFIGS, LOST, SUMMARY

_FEATURES = b"huggingface"
"""Footer key under which `datasets` keeps the features of a file."""

_AGAIN = "materialize hf_release again for"
_SUMMARISED = {
    "pages": frozenset({"states", "lost", "doubtful", "documents"}),
    "queries": frozenset({"states", "unjudged"}),
    "lineage": frozenset({"made"}),
}

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


def part_path(config: str, shard: str) -> str:
    """Where a shard of a config lies, relative to the release."""
    return f"data/{config}/{shard}.parquet"


def survey(folder: Path) -> Inventory:
    """Every published file under `folder`."""
    return {config: [_part(folder, path) for path in published(folder, config)] for config in CONFIGS}


def published(folder: Path, config: str) -> list[Path]:
    """The files of a config, in shard order."""
    return sorted((folder / "data" / config).glob("shard_*.parquet"), key=lambda path: (len(path.stem), path.stem))


def require_summaries(inventory: Inventory) -> None:
    """Raise `StoreError` when files of an older version lack what a card needs: none of it may count as nothing."""
    for config, keys in _SUMMARISED.items():
        for part in inventory[config]:
            if not part.summary.keys() >= keys:
                raise StoreError(f"{part.path} was written by another version: {_AGAIN} {part.shard}")


def in_use(parts: Iterable[Part]) -> list[Part]:
    """The parts that make up a config: those with the features that most of its rows have.

    While a corpus is being redone with another vector width, the shards of both widths cannot be
    one dataset; the fewer ones wait outside until they are the more.
    """
    parts = list(parts)
    rows: Counter[str] = Counter()
    for part in parts:
        rows[part.features] += part.rows
    if not rows.total():
        return []
    features = rows.most_common(1)[0][0]
    return [part for part in parts if part.features == features]


def lost_pages(folder: Path, parts: Iterable[Part]) -> Iterator[dict[str, str]]:
    """page_id, state and reason of the pages that failed or are quarantined, in corpus order."""
    for part in parts:
        states = part.summary["states"].values()
        if any(counts[state] for counts in states for state in LOST):
            columns = ["page_id", "state", "reason"]
            yield from pq.read_table(folder / part.path, columns=columns, filters=[("state", "in", LOST)]).to_pylist()


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
    if _FEATURES not in metadata:
        raise StoreError(f"{path} is no file of a release: delete it and {_AGAIN} {path.stem}")
    return Part(
        shard=path.stem,
        path=path.relative_to(folder).as_posix(),
        rows=footer.num_rows,
        bytes=path.stat().st_size,
        features=metadata[_FEATURES].decode(),
        summary=json.loads(metadata.get(SUMMARY, b"{}")),
    )
