"""The column `regions` of a corpus: the boxes of each page that are known beforehand. Arrow; reads no image."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import SourceError
from resources.pages.arrow import FILE_MAGIC, ID
from resources.pages.manifest import Manifest, Shard
from resources.pages.places.corpus_place import CorpusPlace
from resources.printable import first_line

REGIONS = "regions"
TYPE = pa.list_(pa.struct([("label", pa.string()), ("task", pa.string()), ("bbox", pa.list_(pa.float64()))]))
"""A region: its label, its task, and its box as shares of width and height, (x1, y1, x2, y2), each 0 to 1."""

Named = Mapping[str, list[dict[str, Any]] | None]
"""By page id, the regions that the corpus names; None for a row that names none."""


def named_regions(corpus: CorpusPlace) -> Named:
    """Of every page of a corpus by the place of its index; of two rows with one id the first one's.

    Raises `SourceError` where a file has no such column or cannot be read, and `StoreError` where it is fetched.
    """
    manifest = Manifest.load(corpus)
    found: dict[str, list[dict[str, Any]] | None] = {}
    for shard in manifest.shards:
        place = manifest.place(shard.file)
        try:
            with manifest.held(shard.file, shard.sha256) as path:
                for page_id, regions in _rows(path, shard, place):
                    found.setdefault(page_id, regions)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SourceError(f"{place} cannot be read: {first_line(error)}") from None
    return found


def _rows(path: Path, shard: Shard, place: str) -> list[tuple[str, list[dict[str, Any]] | None]]:
    with pa.memory_map(str(path)) as file:
        if shard.format == "parquet":
            stored = pq.ParquetFile(file)
            _check(stored.schema_arrow, place)
            table = stored.read([ID, REGIONS])
        else:
            is_file = file.read(len(FILE_MAGIC)) == FILE_MAGIC
            file.seek(len(FILE_MAGIC) if is_file else 0)
            reader = pa.ipc.open_stream(file)
            _check(reader.schema, place)
            table = reader.read_all().select([ID, REGIONS])
        table.validate(full=True)
        return list(zip(table[ID].to_pylist(), table[REGIONS].to_pylist(), strict=True))


def _check(schema: pa.Schema, place: str) -> None:
    if schema.names.count(REGIONS) != 1 or not schema.field(REGIONS).type.equals(TYPE):
        raise SourceError(
            f"{place} has no column {REGIONS} of the type {TYPE}: name the regions of its pages there, "
            "or let another layout engine find them"
        )
