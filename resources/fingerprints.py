"""Fingerprints of what determines a result: parameters, weights and rows."""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resources import files


def fingerprint(value: Any) -> str:
    """16 hex digits of the SHA-256 of `value` as canonical JSON; the same on every machine and run."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def canonical_json(value: Any) -> str:
    """`value` as JSON in the one spelling that equal values share."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def table_fingerprint(table: pa.Table) -> str:
    """Of the rows as Parquet encodes them; not of its footer, nor of how the table lies in memory or who made it."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(None).combine_chunks(),
        sink,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    content = memoryview(sink.getvalue())
    # The file ends in its footer, the length of it in four bytes, and four bytes of magic.
    footer = int.from_bytes(content[-8:-4], "little") + 8
    return fingerprint([table.column_names, hashlib.sha256(content[:-footer]).hexdigest()])


@cache
def file_sha256(path: Path) -> str:
    """SHA-256 of a weights file, read once per process."""
    return files.file_sha256(path)
