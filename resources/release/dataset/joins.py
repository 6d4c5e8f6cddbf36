"""Whether the configs of a release join: whatever names a page, a region or a query names one that is there. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resources.printable import visible
from resources.release.base import VECTORS
from resources.release.dataset.part_paths import FIGURE_CONFIGS, part_path
from resources.release.dataset.released_files import Inventory
from resources.states import MADE

_NAMED, _SHOWN = 3, 80
"""Ids that a line names as examples, and how much of each."""
_JPEG = b"\xff\xd8\xff"
_PICTURES = 100
"""Crops in memory at a time."""

Regions = set[tuple[str, int]]


def joins(folder: Path, inventory: Inventory, shards: Sequence[str], complete: bool) -> Iterator[str]:
    """What does not join in `shards`, a line each; only ids are read of the other shards.

    A release that is not `complete` may have queries about pages that are still to come.
    """
    pages = Counter(_ids(folder, inventory, "pages", "page_id"))
    yield from _named("pages has ids twice", (page for page, count in pages.items() if count > 1))
    queries = set(_ids(folder, inventory, "queries", "query_id"))
    for shard in shards:
        of_shard = _Shard(folder, shard)
        yield from of_shard.vectors()
        yield from of_shard.regions()
        yield from of_shard.figures()
        yield from of_shard.lineage()
        yield from of_shard.qrels(queries, pages.keys() if complete else None)


class _Shard:
    """The files of one shard."""

    def __init__(self, folder: Path, shard: str) -> None:
        self._folder = folder
        self._shard = shard
        self._pages = self._read("pages", ["page_id", "n_regions", "states"])
        self._page_ids = self._pages["page_id"].to_pylist()

    def vectors(self) -> Iterator[str]:
        """A page has one vector where its state is ok or partial, and none where it is not."""
        states = self._pages["states"].combine_chunks()
        for config, asset in VECTORS.items():
            ended = zip(self._page_ids, states.field(asset).to_pylist(), strict=True)
            made = {page for page, state in ended if state in MADE}
            found = Counter(self._read(config, ["page_id"])["page_id"].to_pylist())
            twice = (page for page, count in found.items() if count > 1)
            yield from self._problem(f"{config} has two vectors of pages", twice)
            unknown = f"{config} has vectors of pages that are not there or were not made"
            yield from self._problem(unknown, found.keys() - made)
            yield from self._problem(f"{config} lacks the vectors of pages", made - found.keys())

    def regions(self) -> Iterator[str]:
        """A page has the regions that it counts, and a crop is a picture of one of them."""
        regions = self._read("regions", ["page_id", "index"])
        found = Counter(regions["page_id"].to_pylist())
        owed = dict(zip(self._page_ids, self._pages["n_regions"].to_pylist(), strict=True))
        yield from self._problem("regions has regions of pages that are not there", found.keys() - owed.keys())
        wrong = (page for page, count in owed.items() if (count or 0) != found[page])
        yield from self._problem("regions has not as many as pages says", wrong)
        yield from self._crops(set(zip(regions["page_id"].to_pylist(), regions["index"].to_pylist(), strict=True)))

    def figures(self) -> Iterator[str]:
        """A figure is a region of a page that is there, and comes once."""
        for config in FIGURE_CONFIGS:
            if not (self._folder / part_path(config, self._shard)).is_file():
                continue
            found = Counter(self._read(config, ["region_id"])["region_id"].to_pylist())
            known = set(self._read("regions", ["region_id"])["region_id"].to_pylist())
            yield from self._problem(f"{config} has figures that are no regions", found.keys() - known)
            twice = (figure for figure, count in found.items() if count > 1)
            yield from self._problem(f"{config} has figures twice", twice)

    def lineage(self) -> Iterator[str]:
        """It has a row for every page at every step, and for no other page."""
        lineage = self._read("lineage", ["page_id", "asset"])
        of_pages = lineage.filter(pc.field("page_id").is_valid())
        pages = set(self._page_ids)
        for asset in sorted(set(of_pages["asset"].to_pylist())):
            found = set(of_pages.filter(pc.field("asset") == asset)["page_id"].to_pylist())
            yield from self._problem(f"lineage lacks pages of {asset}", pages - found)
            yield from self._problem(f"lineage has pages of {asset} that are not there", found - pages)

    def qrels(self, queries: Collection[str], pages: Collection[str] | None) -> Iterator[str]:
        """A judgement is about a query and, where they are known, about a page that is there."""
        qrels = self._read("qrels", ["query-id", "corpus-id"])
        asked, answers = (set(qrels[name].to_pylist()) for name in ("query-id", "corpus-id"))
        yield from self._problem("qrels has queries that are not there", asked - set(queries))
        if pages is not None:
            yield from self._problem("qrels has pages that are not there", answers - set(pages))

    def _crops(self, regions: Regions) -> Iterator[str]:
        unknown: list[str] = []
        damaged: list[str] = []
        with pq.ParquetFile(self._folder / part_path("crops", self._shard)) as file:
            for batch in file.iter_batches(batch_size=_PICTURES, columns=["page_id", "index", "path", "image"]):
                for crop in batch.to_pylist():
                    if (crop["page_id"], crop["index"]) not in regions:
                        unknown.append(crop["path"])
                    if not _is_picture(crop["image"]):
                        damaged.append(crop["path"])
        yield from self._problem("crops has pictures of regions that are not there", unknown)
        yield from self._problem("crops has rows without a picture", damaged)

    def _read(self, config: str, columns: list[str]) -> pa.Table:
        return pq.read_table(self._folder / part_path(config, self._shard), columns=columns)

    def _problem(self, problem: str, ids: Iterable[str]) -> Iterator[str]:
        yield from _named(f"{self._shard}: {problem}", ids)


def _ids(folder: Path, inventory: Inventory, config: str, column: str) -> Iterator[str]:
    for part in inventory[config]:
        yield from pq.read_table(folder / part.path, columns=[column])[column].to_pylist()


def _is_picture(image: Mapping[str, Any] | None) -> bool:
    """Whether a crop holds what crops are written as."""
    return image is not None and (image["bytes"] or b"").startswith(_JPEG)


def _named(problem: str, ids: Iterable[str]) -> Iterator[str]:
    """One line with how many and the first few; none when there are none."""
    found = sorted(ids)
    if found:
        first = ", ".join(visible(name, _SHOWN) for name in found[:_NAMED])
        yield f"{problem}: {len(found)} ({first}{', …' if len(found) > _NAMED else ''})"
