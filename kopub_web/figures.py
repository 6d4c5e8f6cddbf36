"""Which figures a corpus has, from the tables of readings."""

from collections.abc import Iterable

import pyarrow as pa

from resources.recognition.crops import crop_index
from resources.store.corpus_tables import TABLES
from resources.store.shard_store import ShardStore
from resources.store.table_source import IsOfCorpus

FIGURES = pa.schema([("page_id", pa.string()), ("region", pa.int32()), ("label", pa.string())])
"""A row for each figure: its page, the index of its region, and that region's label."""


def figures_of(store: ShardStore, shards: Iterable[str], is_of_corpus: IsOfCorpus) -> pa.Table:
    """The figures of the shards in their order; of schema `FIGURES`. Raises `StoreError`."""
    asset = TABLES.readings.name
    made = store.published(asset)
    tables = [
        _figures(store.read(asset, shard, ["page_id", "image_crops"]))
        for shard in shards
        if shard in made and is_of_corpus(asset, shard)
    ]
    return pa.concat_tables(tables) if tables else FIGURES.empty_table()


def _figures(readings: pa.Table) -> pa.Table:
    crops = readings["image_crops"].combine_chunks()
    each = crops.flatten()
    regions = pa.array([crop_index(path) for path in each.field("path").to_pylist()], pa.int32())
    pages = readings["page_id"].combine_chunks().take(crops.value_parent_indices())
    return pa.Table.from_arrays([pages, regions, each.field("label")], schema=FIGURES)
