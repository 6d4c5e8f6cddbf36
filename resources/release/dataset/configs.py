"""A shard's tables as they are published: one dataset config each. Pure.

Row order is page order, and nothing but the tables decides a value, so equal tables give equal
files. `id` and `text`, and the columns of `qrels`, are the names that BEIR and mteb read.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from resources.errors import StoreError
from resources.release.base import PAGE_ASSETS, ReleaseInput
from resources.release.dataset import features
from resources.states import State, count_states
from resources.store.lineage_rows import lineage_rows
from resources.texts.text_quality import doubtful

if TYPE_CHECKING:
    from datasets import Features

CONFIGS = ("pages", "regions", "crops", "image_embeddings", "text_embeddings", "queries", "qrels", "lineage")
SUMMARY = b"kopub.summary"
"""Footer key of what a file says about its shard, as JSON: all that a card and the gates need to know."""

LOST = (State.FAILED.value, State.QUARANTINED.value)
"""Ends that leave out something the page holds."""

PICTURES_PER_GROUP = 100
"""A row group is read whole by the Hub's viewer, which takes up to 300 MB; a crop is rarely over 1 MB."""

Row = dict[str, Any]


def build(shard: str, tables: ReleaseInput, page_images: bool = False) -> dict[str, pa.Table]:
    """The tables of one shard by config, with the features that `datasets` reads in their metadata.

    Embedding tables hold the rows that have a vector; `pages` says what became of the others. With
    `page_images` its column `image` is there, and null: the file is filled page by page. Raises
    `StoreError` when a table does not hold the same pages as the others.
    """
    _check_same_pages(tables)
    image_dim, text_dim, query_dim = (
        table.schema.field("vector").type.list_size
        for table in (tables.corpus_image_embeddings, tables.corpus_text_embeddings, tables.query_embeddings)
    )
    queries = _with_vector(tables.query_embeddings)
    built = {
        "pages": _table(_pages(tables), features.page_features(page_images)),
        "regions": _table(_regions(tables), features.region_features()),
        "crops": _crops(tables.ocr_results),
        "image_embeddings": _vectors(tables.corpus_image_embeddings, features.vector_features(image_dim)),
        "text_embeddings": _vectors(tables.corpus_text_embeddings, features.vector_features(text_dim)),
        "queries": _queries(queries, features.query_features(query_dim)),
        "qrels": _table(_qrels(queries, tables.unknown_pages), features.qrel_features()),
        "lineage": _lineage(shard, tables),
    }
    return _summarised(built, tables)


def _check_same_pages(tables: ReleaseInput) -> None:
    page_ids = tables.raw_pages["page_id"].to_pylist()
    for asset, table in tables.page_tables.items():
        if table["page_id"].to_pylist() != page_ids:
            raise StoreError(f"{asset} does not hold the pages of raw_pages: materialize {asset} again")


def _pages(tables: ReleaseInput) -> Iterator[Row]:
    named = tables.page_tables
    states = {asset: table["state"].to_pylist() for asset, table in named.items()}
    reasons = {asset: table["reason"].to_pylist() for asset, table in named.items()}
    layouts = tables.layout_regions["regions"].to_pylist()
    markdown = tables.ocr_results["markdown"].to_pylist()
    texts = tables.parsed_texts.select(["text", "n_chars", "doubt", "doubts"]).to_pylist()
    for at, page in enumerate(tables.raw_pages.to_pylist()):
        lost = (asset for asset in PAGE_ASSETS if states[asset][at] in LOST)
        not_ok = (asset for asset in PAGE_ASSETS if states[asset][at] != State.OK)
        ended = next(lost, next(not_ok, None))
        reason = reasons[ended][at] if ended else None
        yield {
            **page,
            "id": page["page_id"],
            "state": states[ended][at] if ended else State.OK,
            "reason": ended and (f"{ended}: {reason}" if reason else ended),
            "states": {asset: states[asset][at] for asset in PAGE_ASSETS},
            "n_regions": len(layouts[at] or ()),
            **texts[at],
            "text": texts[at]["text"] or "",
            "markdown": markdown[at] or "",
        }


def _regions(tables: ReleaseInput) -> Iterator[Row]:
    readings = tables.ocr_results.select(["page_id", "regions", "state", "reason"]).to_pylist()
    for layout, reading in zip(tables.layout_regions["regions"].to_pylist(), readings, strict=True):
        read = {region["index"]: region for region in reading["regions"] or ()}
        # A page that was not read says why for each of its regions.
        unread = {"content": None, "label": None, "state": reading["state"], "reason": reading["reason"]}
        for region in layout or ():
            page_id, index = reading["page_id"], region["index"]
            text = read.get(index, unread)
            yield {
                **region,
                "region_id": f"{page_id}_{index}",
                "page_id": page_id,
                "native_label": region["label"],
                **{name: text[name] for name in unread},
            }


def _crops(ocr_results: pa.Table) -> pa.Table:
    """The pictures stay in Arrow from the store to the file; a shard can hold gigabytes of them."""
    published = features.crop_features().arrow_schema
    crops = [
        {"page_id": page["page_id"], "index": crop_index(crop["path"]), **crop}
        for page in ocr_results.select(["page_id", "image_crops"]).to_pylist()
        for crop in page["image_crops"] or ()
    ]
    known = pa.Table.from_pylist(crops, pa.schema([field for field in published if field.name != "image"]))
    jpegs = ocr_results["crop_images"]
    pictures = _regrouped(pa.chunked_array([chunk.flatten() for chunk in jpegs.chunks], jpegs.type.value_type))
    image = pa.Table.from_arrays([pictures, known["path"]], ["bytes", "path"]).to_struct_array()
    return known.append_column("image", image).cast(published)


def _regrouped(pictures: pa.ChunkedArray) -> pa.ChunkedArray:
    """The pictures in chunks of a row group each: `binary`, which the Image feature asks for, holds 2 GB to a chunk."""
    starts = range(0, len(pictures), PICTURES_PER_GROUP)
    groups = (pictures.slice(start, PICTURES_PER_GROUP).combine_chunks() for start in starts)
    return pa.chunked_array([group.cast(pa.binary()) for group in groups], pa.binary())


def crop_index(path: str) -> int:
    """The region that a crop was cut from: the number at the end of its file name."""
    return int(PurePosixPath(path).stem.rpartition("_")[2])


def _queries(queries: pa.Table, published: "Features") -> pa.Table:
    renamed = queries.append_column("id", queries["query_id"]).append_column("text", queries["query"])
    return _published(renamed, published)


def _qrels(queries: pa.Table, unknown_pages: Collection[str]) -> Iterator[Row]:
    """Without pages that nobody can find: to every metric they would be misses."""
    for query in queries.select(["query_id", "ground_truth"]).to_pylist():
        for page_id in query["ground_truth"]:
            if page_id not in unknown_pages:
                yield {"query-id": query["query_id"], "corpus-id": page_id, "score": 1}


def _vectors(table: pa.Table, published: "Features") -> pa.Table:
    return _published(_with_vector(table), published)


def _published(table: pa.Table, published: "Features") -> pa.Table:
    """The columns of `published`, in one chunk: how a table was put together must not show in its file."""
    return table.select(list(published)).cast(published.arrow_schema).combine_chunks()


def _with_vector(table: pa.Table) -> pa.Table:
    return table.filter(pc.field("vector").is_valid())


def _table(rows: Iterator[Row], published: "Features") -> pa.Table:
    return pa.Table.from_pylist(list(rows), published.arrow_schema)


def _lineage(shard: str, tables: ReleaseInput) -> pa.Table:
    """One row for each page or query and asset: by which engine, model, recipe and run it was made."""
    rows = lineage_rows(shard, tables.tables, tables.made, tables.ledger)
    return _published(rows, features.lineage_features())


def _summarised(built: dict[str, pa.Table], tables: ReleaseInput) -> dict[str, pa.Table]:
    """The tables with a summary of the shard in their metadata, so that a card needs only footers."""
    pages = {
        "states": {asset: count_states(table["state"].to_pylist()) for asset, table in tables.page_tables.items()},
        "lost": built["pages"].filter(pc.field("state").isin(LOST)).num_rows,
        "doubtful": len(doubtful(tables.parsed_texts)),
        "documents": _documents(tables.raw_pages),
    }
    summaries = {
        "pages": pages,
        "queries": {
            "states": {"query_embeddings": count_states(tables.query_embeddings["state"].to_pylist())},
            "unjudged": sum(map(len, built["queries"]["ground_truth"].to_pylist())) - built["qrels"].num_rows,
        },
        "lineage": {"made": _made(built["lineage"])},
    }
    for config, summary in summaries.items():
        metadata = {**(built[config].schema.metadata or {}), SUMMARY: json.dumps(summary, ensure_ascii=False)}
        built[config] = built[config].replace_schema_metadata(metadata)
    return built


def _documents(raw_pages: pa.Table) -> list[list[Any]]:
    """[document, source file, licence, pages] of every document, in the order of its first page."""
    named = zip(*(raw_pages[name].to_pylist() for name in ("doc_id", "source", "license")), strict=True)
    return [[*document, pages] for document, pages in Counter(named).items()]


def _made(lineage: pa.Table) -> list[list[Any]]:
    """[asset, engine, model, revision, parameters, versions, rows] of everything that made a row."""
    columns = ("asset", "engine", "model", "revision", "parameters", "versions")
    named = zip(*(lineage[name].to_pylist() for name in columns), strict=True)
    return [[*by, rows] for by, rows in Counter(named).items()]
