"""Small corpora in the schema of SDS KoPub, written as `datasets` and other programs do."""

import hashlib
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("text", pa.string()),
        ("file_name", pa.string()),
        ("page_number", pa.int32()),
        ("license", pa.string()),
    ]
)
QA_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("query", pa.string()),
        ("answer", pa.string()),
        ("type", pa.string()),
        ("domain", pa.string()),
        ("ground_truth", pa.list_(pa.string())),
    ]
)

Page = tuple[str | None, bytes | None]


def page_image(seed: int = 0, size: tuple[int, int] = (160, 220), format: str = "PNG", **options: Any) -> bytes:
    """Return an encoded page with black bars as text lines, which depend on `seed`."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    digest = hashlib.sha256(str(seed).encode()).digest()
    for line, length in enumerate(digest[:12]):
        top = (line + 1) * size[1] // 14
        draw.rectangle((size[0] // 10, top, size[0] // 10 + length * size[0] // 400, top + size[1] // 40), fill="black")
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def pages(*ids: str | None, first: int = 0) -> list[Page]:
    """Return a page for every id, whose image depends on its position, from `first` on."""
    return [(page_id, page_image(seed)) for seed, page_id in enumerate(ids, first)]


def table(rows: Iterable[Page], columns: Mapping[str, Sequence[Any]] | None = None) -> pa.Table:
    """Return a table of pages; `columns` holds values of optional columns, in row order."""
    filled = [
        {"id": page_id, "image": {"bytes": data, "path": None}}
        | {name: values[at] for name, values in (columns or {}).items()}
        for at, (page_id, data) in enumerate(rows)
    ]
    return pa.Table.from_pylist(filled, SCHEMA)


def write_arrow(path: Path, content: pa.Table, batch_rows: int = 100, file_format: bool = False) -> Path:
    """Write an Arrow stream, as `datasets` does, or file, in batches of `batch_rows`."""
    new = pa.ipc.new_file if file_format else pa.ipc.new_stream
    path.parent.mkdir(parents=True, exist_ok=True)
    with new(str(path), content.schema) as writer:
        writer.write_table(content, batch_rows)
    return path


def write_corpus(
    folder: Path,
    shards: Sequence[Sequence[Page]],
    queries: Sequence[Mapping[str, Any]] | None = None,
    batch_rows: int = 100,
) -> Path:
    """Write `folder`/corpus/data-N.arrow for each shard, and `folder`/qa.parquet if there are queries."""
    for at, rows in enumerate(shards):
        write_arrow(folder / "corpus" / f"data-{at}.arrow", table(rows), batch_rows)
    if queries is not None:
        pq.write_table(pa.Table.from_pylist([dict(query) for query in queries], QA_SCHEMA), folder / "qa.parquet")
    return folder


def query(query_id: str, text: str, *ground_truth: str) -> dict[str, Any]:
    """Return a row of qa.parquet."""
    return {"id": query_id, "query": text, "type": "text", "ground_truth": list(ground_truth)}


def cut(path: Path, size: int) -> None:
    """Truncate a file to its first `size` bytes."""
    path.write_bytes(path.read_bytes()[:size])
