"""Builds the configs of a shard from its tables and writes them as Parquet files.

Rows are in page order, and only the tables decide a value, so equal tables give equal files. `id`, `text` and the
columns of `qrels` are named as BEIR and mteb expect.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from datasets import Features

from kopub.errors import StoreError, without_paths
from kopub.layout.regions import Task
from kopub.recognition.regions import TextOrigin, crop_index
from kopub.release import features
from kopub.release.base import PAGE_ASSETS, PageImages, ReleaseInput
from kopub.release.files import CHUNKS, CORRECTIONS, PASSAGES, SUMMARY
from kopub.states import LOST, State, count_states, decisive
from kopub.store.corpus_tables import DOCUMENT_CHUNKS, FIGURE_NOTES, FIGURE_VECTORS, PASSAGE_VECTORS, TABLES
from kopub.store.rows import lineage_rows, one_row_a_part, region_ids, vector_width, with_vector
from kopub.texts.markup import defuse
from kopub.texts.regions import join_regions
from kopub.texts.text_quality import doubtful

PICTURES_PER_GROUP = 100
"""The Hub's viewer reads a row group whole, up to 300 MB; a crop is rarely over 1 MB."""

_READ = (Task.TEXT.value, Task.TABLE.value, Task.FORMULA.value)
"""The tasks of regions to be read."""

_TEXT_COLUMNS = [
    "text",
    "n_chars",
    "script",
    "doubt",
    "doubts",
    "text_layer",
    "text_layer_reason",
    "text_layer_distance",
]
"""The columns of `parsed_texts` that `pages` has."""

_WORDED = {
    "pages": ("reason", "text_layer_reason"),
    "regions": ("reason",),
    "lineage": ("reason", "model", "parameters", "versions"),
    "figure_notes": ("reason",),
    CORRECTIONS: ("reason",),
}
"""Columns, by config, with words of libraries and settings, which may name folders of this machine."""

_HAS_VECTOR = pc.field("vector").is_valid()

Row = dict[str, Any]


def build_configs(shard: str, tables: ReleaseInput, page_images: bool, authors: bool) -> dict[str, pa.Table]:
    """Return the tables of one shard by config.

    Their metadata has the features that `datasets` reads. Embedding tables hold only rows with a vector; `pages` has
    the states of the others. With `page_images` it has a column `image` of nulls, which are filled page by page when
    the file is written. Corrections name their authors only if `authors` is set. Raises `StoreError` if a table does
    not hold the same pages as the others, or readings do not belong to its regions.
    """
    tables = _in_page_order(tables)
    queries = tables.query_embeddings.filter(_HAS_VECTOR)
    named_queries = queries.append_column("id", queries["query_id"]).append_column("text", queries["query"])
    # Every metric would count pages that cannot be found as misses.
    judgements: list[Row] = []
    for query in queries.select(["query_id", "ground_truth"]).to_pylist():
        for page_id in query["ground_truth"]:
            if page_id not in tables.unknown_pages:
                judgements.append({"query-id": query["query_id"], "corpus-id": page_id, "score": 1})
    built = {
        "pages": _table(_pages(tables), features.page_features(page_images)),
        "regions": _table(_regions(tables), features.REGIONS),
        "crops": _crops(tables.ocr_results),
        "image_embeddings": _vectors(tables.corpus_image_embeddings),
        "text_embeddings": _vectors(tables.corpus_text_embeddings),
        "queries": _public_columns(named_queries, features.query_features(vector_width(queries.schema))),
        "qrels": _table(judgements, features.QRELS),
        "lineage": _public_columns(
            lineage_rows(shard, tables.tables, tables.made, tables.ledger), features.LINEAGE_ROWS
        ),
    }
    if tables.chunks is not None:
        chunks: list[Row] = []
        for document in tables.chunks.select(["page_id", "doc_id", "chunks"]).to_pylist():
            for chunk in document["chunks"] or ():
                # A chunk is named after the first page of its document.
                identity = {"id": f"{document['page_id']}-{chunk['index']}", "doc_id": document["doc_id"]}
                chunks.append({**chunk, **identity, "page_id": chunk["places"][0]["page_id"]})
        built[CHUNKS] = _table(chunks, features.CHUNKS)
    built |= _parts(tables)
    if tables.corrections is not None:
        corrections = tables.corrections
        if not authors:
            at = corrections.column_names.index("author")
            corrections = corrections.set_column(at, "author", pa.nulls(len(corrections), pa.string()))
        built[CORRECTIONS] = _public_columns(corrections, features.CORRECTIONS)
    for config, columns in _WORDED.items():
        if config in built:
            table = built[config]
            for name in columns:
                # A few sentences stand in all rows, so each is searched for paths once.
                words = table[name].unique().drop_null()
                clean = pa.array(map(without_paths, words.to_pylist()), words.type)
                if clean != words:
                    place = pc.call_function("index_in", [table[name]], pc.SetLookupOptions(words))
                    column = clean.take(place).combine_chunks()
                    table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
            built[config] = table
    return _summarise(built, tables)


def _in_page_order(tables: ReleaseInput) -> ReleaseInput:
    """Return the tables with their rows in the order of `raw_pages`, by id.

    The corpus may have been indexed again in another order.
    """
    order = tables.raw_pages["page_id"].to_pylist()
    if len(set(order)) != len(order):
        raise StoreError("raw_pages has two pages of one id: materialize raw_pages again")
    ordered: dict[str, pa.Table] = {}
    for asset, table in tables.page_tables.items():
        rows = {page_id: row for row, page_id in enumerate(table["page_id"].to_pylist())}
        if table.num_rows != len(order) or rows.keys() != set(order):
            raise StoreError("{asset} does not hold the pages of raw_pages: materialize {asset} again", asset)
        # A table in order is kept as it is, since taking rows would copy its pictures.
        if list(rows) != order:
            ordered[asset] = table.take([rows[page_id] for page_id in order])
    return tables.replaced(ordered) if ordered else tables


def _pages(tables: ReleaseInput) -> Iterator[Row]:
    ends = {asset: _by_page(table, ["state", "reason"]) for asset, table in tables.page_tables.items()}
    layouts = _by_page(tables.layout_regions, ["regions"])
    readings = _by_page(tables.ocr_results, ["markdown"])
    texts = _by_page(tables.parsed_texts, _TEXT_COLUMNS)
    for page in tables.raw_pages.to_pylist():
        page_id = page["page_id"]
        states = {asset: ends[asset][page_id]["state"] for asset in PAGE_ASSETS}
        ended = decisive(states)
        reason = ends[ended][page_id]["reason"] if ended else None
        yield {
            **page,
            "id": page_id,
            "origin": asdict(tables.origin(page["page_idx"])) if tables.origin else None,
            "state": states[ended] if ended else State.OK,
            "reason": ended and (f"{ended}: {reason}" if reason else ended),
            "states": states,
            "n_regions": len(layouts[page_id]["regions"] or ()),
            **texts[page_id],
            "text": texts[page_id]["text"] or "",
            "markdown": defuse(readings[page_id]["markdown"] or ""),
        }


def _regions(tables: ReleaseInput) -> Iterator[Row]:
    layouts = _by_page(tables.layout_regions, ["regions"])
    for page in tables.ocr_results.select(["page_id", "regions", "state", "reason"]).to_pylist():
        page_id = page["page_id"]
        for region in join_regions(page_id, layouts[page_id]["regions"], page["regions"]):
            # For a page that was not read, its reason applies to each of its regions.
            ended = page if region.content is None else {"state": region.state, "reason": region.reason}
            yield {
                "region_id": f"{page_id}_{region.index}",
                "page_id": page_id,
                "index": region.index,
                "label": region.kind,
                "native_label": region.label,
                "task": region.task,
                "score": region.score,
                "bbox": region.box,
                "bbox_2d": region.box_2d,
                "polygon": region.polygon,
                "content": region.content,
                "origin": region.origin,
                "state": ended["state"],
                "reason": ended["reason"],
            }


def _by_page(table: pa.Table, columns: list[str]) -> dict[str, Row]:
    """Return columns of a table by page."""
    rows = table.select(columns).to_pylist()
    return dict(zip(table["page_id"].to_pylist(), rows, strict=True))


def _crops(ocr_results: pa.Table) -> pa.Table:
    """Return the crops of a shard as a table.

    The pictures stay in Arrow from the store to the file; a shard can hold gigabytes of them.
    """
    published = features.CROPS.arrow_schema
    jpegs = ocr_results["crop_images"]
    held = pc.call_function("list_value_length", [jpegs]).to_pylist()
    rows: list[Row] = []
    for page, count in zip(ocr_results.select(["page_id", "image_crops"]).to_pylist(), held, strict=True):
        crops = page["image_crops"] or ()
        if len(crops) != (count or 0):
            form = "ocr_results of {page} lists {listed} pictures and holds {held}: materialize it again"
            raise StoreError(form, page["page_id"], len(crops), count or 0)
        for crop in crops:
            rows.append({"page_id": page["page_id"], "index": crop_index(crop["path"]), **crop})
    described = pa.Table.from_pylist(rows, published.remove(published.get_field_index("image")))
    pictures = pc.call_function("list_flatten", [jpegs])
    groups: list[pa.Array] = []
    for start in range(0, len(pictures), PICTURES_PER_GROUP):
        # `binary`, which the Image feature requires, holds at most 2 GB in a chunk: one row group has less.
        groups.append(pictures.slice(start, PICTURES_PER_GROUP).combine_chunks().cast(pa.binary()))
    columns = [pa.chunked_array(groups, pa.binary()), described["path"]]
    image = pa.Table.from_arrays(columns, ["bytes", "path"]).to_struct_array()
    return described.append_column("image", image).cast(published)


def _vectors(table: pa.Table) -> pa.Table:
    return _public_columns(
        table.filter(_HAS_VECTOR), features.vector_features(features.PAGE, vector_width(table.schema))
    )


def _parts(tables: ReleaseInput) -> dict[str, pa.Table]:
    """Return the configs of figures and passages, with a row for each.

    Those of vectors have the parts with a vector, that of notes all figures that should have a note.
    """
    built = {}
    if (vectors := tables.figures.get(FIGURE_VECTORS.name)) is not None:
        published = features.vector_features(features.FIGURE, vector_width(vectors.schema))
        figures = _identify_figures(vectors, "figures").filter(_HAS_VECTOR)
        built["figure_embeddings"] = _public_columns(figures, published)
    if (notes := tables.figures.get(FIGURE_NOTES.name)) is not None:
        built["figure_notes"] = _public_columns(_identify_figures(notes, "notes"), features.FIGURE_NOTES)
    if (passages := tables.figures.get(PASSAGE_VECTORS.name)) is not None:
        published = features.vector_features(features.PASSAGE, vector_width(passages.schema))
        built[PASSAGES] = _public_columns(with_vector(passages), published)
    return built


def _identify_figures(table: pa.Table, column: str) -> pa.Table:
    """Return a row for each figure, with the id of its region in `regions`."""
    figures = one_row_a_part(table, column)
    return figures.append_column("region_id", pa.array(region_ids(figures), pa.string()))


def _public_columns(table: pa.Table, published: Features) -> pa.Table:
    """Return the columns of `published`, in one chunk.

    The way a table was assembled must not affect its file.
    """
    return table.select(list(published)).cast(published.arrow_schema).combine_chunks()


def _table(rows: Iterable[Row], published: Features) -> pa.Table:
    return pa.Table.from_pylist(list(rows), published.arrow_schema)


def _summarise(built: dict[str, pa.Table], tables: ReleaseInput) -> dict[str, pa.Table]:
    """Return the tables with a summary of the shard in their metadata.

    With it, a card can be written from only the footers of the files.
    """
    regions = built["regions"]
    to_read = regions.filter(pc.field("task").isin(_READ))
    from_layers = regions.filter(pc.field("origin") == TextOrigin.TEXT_LAYER).num_rows
    pages = {
        "states": {asset: count_states(table["state"].to_pylist()) for asset, table in tables.page_tables.items()},
        "ended": count_states(built["pages"]["state"].to_pylist()),
        "regions": {
            "to_read": to_read.num_rows,
            "lost": to_read.filter(pc.field("state").isin(LOST)).num_rows,
            **({"text_layer": from_layers} if from_layers else {}),
        },
        "doubtful": len(doubtful(tables.parsed_texts)),
        "documents": _tally(tables.raw_pages, ("doc_id", "source", "license")),
    }
    summaries = {
        "pages": pages,
        "queries": {
            "states": {TABLES.query_vectors.name: count_states(tables.query_embeddings["state"].to_pylist())},
            "unjudged": sum(map(len, built["queries"]["ground_truth"].to_pylist())) - built["qrels"].num_rows,
        },
        "lineage": {
            "made": _tally(built["lineage"], ("asset", "engine", "model", "revision", "parameters", "versions"))
        },
    }
    if tables.chunks is not None:
        states = count_states(tables.chunks["state"].to_pylist())
        summaries[CHUNKS] = {"states": {DOCUMENT_CHUNKS.name: states}}
    if tables.corrections is not None:
        # A page that was corrected after its check no longer counts as checked.
        actions = zip(tables.corrections["page_id"].to_pylist(), tables.corrections["action"].to_pylist(), strict=True)
        last = dict(actions)
        changes = tables.corrections.filter(pc.field("action") != "checked")
        summaries[CORRECTIONS] = {
            "corrections": changes.num_rows,
            "pages": len(changes["page_id"].unique()),
            "checked": list(last.values()).count("checked"),
        }
    for config, summary in summaries.items():
        metadata = {**(built[config].schema.metadata or {}), SUMMARY: json.dumps(summary, ensure_ascii=False)}
        built[config] = built[config].replace_schema_metadata(metadata)
    return built


def _tally(table: pa.Table, columns: Sequence[str]) -> list[list[Any]]:
    """Return [*values, rows] of each combination of values, in the order of their first rows."""
    combinations = zip(*(table[name].to_pylist() for name in columns), strict=True)
    return [[*values, rows] for values, rows in Counter(combinations).items()]


_ROWS_PER_GROUP = 1000
_BYTES_PER_GROUP = 100_000_000
"""The Hub's viewer reads a row group whole and advises 100 to 300 MB; the writer holds one in memory."""


def write_parquet(table: pa.Table, path: Path, images: PageImages | None = None) -> None:
    """Write a table as a Parquet file with content-defined chunks and a page index.

    Thanks to the chunks, a changed page changes few bytes. With `images`, the column `image` is filled, one row group
    at a time. Raises `StoreError` if an image is not the one that the page was made from.
    """
    # An empty row group is an error for `datasets`, so an empty table is written without one.
    with pq.ParquetWriter(
        path, table.schema, compression="zstd", write_page_index=True, use_content_defined_chunking=True
    ) as writer:
        if images is None:
            if table.num_rows:
                most = PICTURES_PER_GROUP if "image" in table.column_names else _ROWS_PER_GROUP
                most = min(most, _BYTES_PER_GROUP * table.num_rows // table.nbytes + 1)
                writer.write_table(table, row_group_size=most)
            return
        pages = table.select(["page_id", "sha256"]).to_pylist()
        group: list[dict[str, object] | None] = []
        start = size = 0
        at = table.schema.get_field_index("image")
        for row, page in enumerate(pages, 1):
            data = images(page["page_id"])
            if data is None:
                group.append(None)
            else:
                if hashlib.sha256(data).hexdigest() != page["sha256"]:
                    form = "the image of {page} changed since raw_pages was made: materialize it again"
                    raise StoreError(form, page["page_id"])
                group.append({"bytes": data, "path": None})
                size += len(data)
            if len(group) == PICTURES_PER_GROUP or size >= _BYTES_PER_GROUP or row == len(pages):
                image = table.schema.field(at)
                writer.write_table(table.slice(start, len(group)).set_column(at, image, pa.array(group, image.type)))
                start, size, group = row, 0, []
