"""A config's table as a Parquet file that the Hub's viewer and streaming readers can use. Pure."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import StoreError
from resources.release.base import PageImages
from resources.release.dataset.configs import PICTURES_PER_GROUP

_ROWS_PER_GROUP = 1000
_BYTES_PER_GROUP = 100_000_000
"""The Hub's viewer reads a group whole: its advice is 100 to 300 MB, and the writer holds one in memory."""


def write(table: pa.Table, path: Path, images: PageImages | None = None) -> None:
    """Write a table: content-defined chunks, so that a changed page moves few bytes, and a page index.

    With `images` the column `image` is filled, one row group at a time. Raises `StoreError` when
    an image is not the one that the page was made from.
    """
    # A row group of no rows is an error to `datasets`, so an empty table is written without one.
    with pq.ParquetWriter(
        path, table.schema, compression="zstd", write_page_index=True, use_content_defined_chunking=True
    ) as writer:
        if images is not None:
            for group in _filled(table, images):
                writer.write_table(group)
        elif table.num_rows:
            most = PICTURES_PER_GROUP if "image" in table.column_names else _ROWS_PER_GROUP
            writer.write_table(table, row_group_size=min(most, _BYTES_PER_GROUP * table.num_rows // table.nbytes + 1))


def _filled(table: pa.Table, images: PageImages) -> Iterator[pa.Table]:
    """The table in row groups, each with its page images."""
    known = table.select(["page_id", "sha256"]).to_pylist()
    group: list[dict[str, object] | None] = []
    start = size = 0
    for row, page in enumerate(known):
        data = images(page["page_id"])
        if data is None:
            group.append(None)
        else:
            if hashlib.sha256(data).hexdigest() != page["sha256"]:
                raise StoreError(
                    f"the image of {page['page_id']} changed since raw_pages was made: materialize it again"
                )
            group.append({"bytes": data, "path": None})
            size += len(data)
        if len(group) == PICTURES_PER_GROUP or size >= _BYTES_PER_GROUP:
            yield _with_images(table.slice(start, len(group)), group)
            start, size, group = row + 1, 0, []
    if group:
        yield _with_images(table.slice(start), group)


def _with_images(pages: pa.Table, group: Sequence[dict[str, object] | None]) -> pa.Table:
    column = pages.schema.get_field_index("image")
    return pages.set_column(column, pages.schema.field(column), pa.array(group, pages.schema.field(column).type))
