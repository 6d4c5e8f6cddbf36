"""Exports tables as JSON lines, crops and NumPy arrays, for tools without Parquet.

This is `kopub export`.
"""

import json
import os
import shutil
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa

from kopub.errors import StoreError, without_paths
from kopub.files import cannot_write, replace_bytes, temporary_files
from kopub.pages.documents.folder import EXPORTED_TABLES
from kopub.release.base import OpenImages, PageImages, TableReader, image_suffix
from kopub.store.corpus_tables import FIGURE_NOTES, FIGURE_VECTORS, TABLES, VECTOR_TABLES
from kopub.store.rows import region_ids, vector_matrix, with_vector
from kopub.texts.markup import defuse
from kopub.texts.regions import join_regions

_LAYOUTS, _READINGS, _TEXTS = TABLES.regions.name, TABLES.readings.name, TABLES.texts.name
_ARRAYS = {
    "corpus_images": VECTOR_TABLES["image"],
    "corpus_ocr_text": VECTOR_TABLES["text"],
    "queries": TABLES.query_vectors,
}
_FIGURES = "figures"
_NOTES = "figure_notes.jsonl"
_IMAGES = "pages"
_CONTENT = ("ocr_results.jsonl", "parsed_texts.jsonl", _NOTES, "crops", "embeddings", _IMAGES)
_PARTIAL = ".????????.partial"
"""The names of folders that hold an export until it is complete."""
_MAKING = frozenset({"bbox", "attempts", "seconds"})
"""Fields of a note that say nothing about its figure."""


@dataclass(frozen=True, slots=True)
class ExportCounts:
    """The counts of an export: JSON lines, picture files, and rows of each array."""

    pages: int
    crops: int
    vectors: dict[str, int]


def export(
    reader: TableReader, shards: Sequence[str], out: Path, figures: Sequence[str] = (), images: OpenImages | None = None
) -> ExportCounts:
    """Write the tables of `shards`, in that order, into the folder `out`.

    `page_idx` numbers the pages from 0 over all shards, and line `page_idx` of both JSON files is that page, whatever
    its state. The `label` of a region is that of the layout (`doc_title`), its `kind` what was read (`text`, `table`,
    `formula`, or `image` with null as content). An array holds only the rows with a vector, as float16: rows of zeros
    or NaN for the others would be found by some searches and break others. Row `i` of `embeddings/NAME.npy` belongs to
    entry `i` of `embeddings/NAME_ids.json`. `figures` are the tables of figures to write too; a figure's id is that of
    its page, `_` and the index of its region. With `images`, the pictures of whole pages are written to `pages/`, and
    named by `page_image`.

    An earlier export in `out` is replaced when the new one is complete. Raises `StoreError` if `out` holds anything
    else; nothing is written anywhere else.
    """
    try:
        if out.exists() and not out.is_dir():
            raise StoreError("{path} is a file; name a new or empty folder to export into", out)
        left_over = {*out.glob(_PARTIAL), *(marks := temporary_files(out / EXPORTED_TABLES))}
        if out.is_dir() and set(out.iterdir()) - left_over and not (out / EXPORTED_TABLES).is_file():
            raise StoreError("{folder} holds files that no export wrote; name a new or empty folder", out)
        out.mkdir(parents=True, exist_ok=True)
        # What a killed export left there goes.
        for mark in marks:
            mark.unlink(missing_ok=True)
        for folder in left_over.difference(marks):
            shutil.rmtree(folder)
        fresh = out / f".{uuid.uuid4().hex[:8]}.partial"
        try:
            (fresh / "crops").mkdir(parents=True)
            (fresh / "embeddings").mkdir()
            pages, crops = _write_pages(reader, shards, fresh, images)
            vectors = {name: _write_array(reader, shards, name, fresh / "embeddings") for name in _ARRAYS}
            if FIGURE_VECTORS.name in figures:
                vectors[_FIGURES] = _write_array(reader, shards, _FIGURES, fresh / "embeddings")
            if FIGURE_NOTES.name in figures:
                _write_notes(reader, shards, fresh / _NOTES)
            exported = ExportCounts(pages, crops, vectors)
            _mark(out, {"complete": False})
            for name in _CONTENT:
                old = out / name
                if old.is_dir() and not old.is_symlink():
                    shutil.rmtree(old)
                elif old.exists():
                    old.unlink()
                if (fresh / name).exists():
                    os.replace(fresh / name, old)
            _mark(out, {"complete": True, "shards": list(shards), **asdict(exported)})
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return exported
    except OSError as error:
        raise StoreError(cannot_write(out, error)) from error


def _mark(out: Path, says: dict[str, Any]) -> None:
    replace_bytes(out / EXPORTED_TABLES, (json.dumps(says, indent=1) + "\n").encode())


def _write_pages(reader: TableReader, shards: Sequence[str], fresh: Path, images: OpenImages | None) -> tuple[int, int]:
    pages = crops = 0
    with (
        (fresh / "ocr_results.jsonl").open("w", encoding="utf-8") as results,
        (fresh / "parsed_texts.jsonl").open("w", encoding="utf-8") as texts,
    ):
        for shard in shards:
            readings = reader.read(_READINGS, shard)
            layouts = _by_page(reader, _LAYOUTS, shard, readings)
            parsed = _by_page(reader, _TEXTS, shard, readings)
            pictures = {} if images is None else _write_images(images(shard), readings["page_id"].to_pylist(), fresh)
            # One row at a time becomes Python objects, since pages carry pictures.
            for batch in readings.to_batches(max_chunksize=1):
                for page in batch.to_pylist():
                    identity = {"page_id": page["page_id"], "page_idx": pages}
                    for crop, data in zip(page["image_crops"] or (), page["crop_images"] or (), strict=True):
                        _crop_file(fresh, crop["path"]).write_bytes(data)
                        crops += 1
                    result = identity | _result(page, layouts[page["page_id"]]["regions"])
                    _write_line(results, result | pictures.get(page["page_id"], {}))
                    text = parsed[page["page_id"]]
                    own = {"text": text["text"] or "", "n_chars": text["n_chars"], "state": text["state"]}
                    _write_line(texts, identity | own)
                    pages += 1
    return pages, crops


def _write_images(
    opened: AbstractContextManager[PageImages], page_ids: Sequence[str], fresh: Path
) -> dict[str, dict[str, str | None]]:
    """Write the pictures of pages, and return their entries for the lines, by page."""
    (fresh / _IMAGES).mkdir(exist_ok=True)
    entries: dict[str, dict[str, str | None]] = {}
    with opened as image_of:
        for page_id in page_ids:
            data, path = image_of(page_id), None
            if data is not None:
                path = f"{_IMAGES}/{page_id}{image_suffix(data)}"
                (fresh / path).write_bytes(data)
            entries[page_id] = {"page_image": path}
    return entries


def _by_page(reader: TableReader, asset: str, shard: str, readings: pa.Table) -> dict[str, dict[str, Any]]:
    """Return the rows of a table by page, for each page that has a reading."""
    rows = {row["page_id"]: row for row in reader.read(asset, shard).to_pylist()}
    if rows.keys() != set(readings["page_id"].to_pylist()):
        form = "{asset} of {shard} does not hold the pages of {other}: materialize it again"
        raise StoreError(form, asset, shard, _READINGS)
    return rows


def _result(page: dict[str, Any], layout: Any) -> dict[str, Any]:
    """Return what a line of `ocr_results.jsonl` says of a page."""
    shown: list[dict[str, Any]] = []
    for region in join_regions(page["page_id"], layout, page["regions"]):
        if region.content is not None:
            content = None if region.kind == "image" else region.content
            place = {"kind": region.kind, "bbox_2d": region.box_2d}
            shown.append({"index": region.index, "label": region.label, **place, "content": content})
    return {
        "regions": shown,
        "markdown": defuse(page["markdown"] or ""),
        "image_crops": page["image_crops"] or [],
        "state": page["state"],
        "reason": _public_reason(page["reason"]),
    }


def _public_reason(reason: str | None) -> str | None:
    return reason and without_paths(reason)


def _crop_file(fresh: Path, path: str) -> Path:
    """Return the path to which a crop is written.

    Page ids are checked when a corpus is indexed; the file name is checked again.
    """
    parts = PurePosixPath(path).parts
    if len(parts) != 2 or parts[0] != "crops" or parts[1] in ("..", ".") or "\0" in path or "\\" in path:
        raise StoreError("ocr_results names the crop {path!r}, which is no file of crops/: materialize it again", path)
    return fresh / path


def _write_line(file: Any, row: dict[str, Any]) -> None:
    file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_notes(reader: TableReader, shards: Sequence[str], path: Path) -> None:
    """Write the notes on figures, one line for each page of `ocr_results.jsonl`."""
    with path.open("w", encoding="utf-8") as lines:
        pages = 0
        for shard in shards:
            rows = _by_page(reader, FIGURE_NOTES.name, shard, readings := reader.read(_READINGS, shard, ["page_id"]))
            for page_id in readings["page_id"].to_pylist():
                row = rows[page_id]
                notes: list[dict[str, Any]] = []
                for note in row["notes"] or ():
                    public = {name: value for name, value in note.items() if name not in _MAKING}
                    notes.append({**public, "reason": _public_reason(note["reason"])})
                line = {"page_id": page_id, "page_idx": pages, "notes": notes}
                _write_line(lines, {**line, "state": row["state"], "reason": _public_reason(row["reason"])})
                pages += 1


def _write_array(reader: TableReader, shards: Sequence[str], name: str, folder: Path) -> int:
    """Write the ids and vectors of an array, and return the number of its rows."""
    source = _ARRAYS.get(name, FIGURE_VECTORS)
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    for shard in shards:
        if source is FIGURE_VECTORS:
            rows = with_vector(reader.read(source.name, shard, ["page_id", "figures"]))
            ids += region_ids(rows)
        else:
            rows = reader.read(source.name, shard, [source.key, "vector"])
            rows = rows.filter(rows["vector"].is_valid())
            ids += rows[source.key].to_pylist()
        vectors.append(vector_matrix(rows["vector"]))
    widths = {matrix.shape[1] for matrix in vectors}
    if len(widths) > 1:
        numbers = " and ".join(map(str, sorted(widths)))
        form = "the vectors of {source} have {numbers} dimensions: materialize it again for every shard"
        raise StoreError(form, source, numbers)
    np.save(folder / f"{name}.npy", np.concatenate(vectors) if vectors else np.empty((0, 0), np.float16))
    (folder / f"{name}_ids.json").write_text(json.dumps(ids, ensure_ascii=False) + "\n", "utf-8")
    return len(ids)
