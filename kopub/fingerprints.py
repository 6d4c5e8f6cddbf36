"""Fingerprints and versions of everything that determines a result: code, parameters, weights, rows.

`recipes.lock` holds the hash of everything that a versioned module imports. `make check` and a test compare the two,
so that a change to that code gets either a new version (results change) or a new lock (they do not).
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kopub import files

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class CodeVersion:
    """The version of the code behind `name`, with a reason for each version.

    Versions count from 1. `name` is unique in the project and stands in `recipes.lock`: the name of an asset, or the
    section and name of an engine (`recognition.tesseract`).
    """

    name: str
    steps: Mapping[int, str]

    def __post_init__(self) -> None:
        if not self.steps or list(self.steps) != list(range(1, len(self.steps) + 1)) or not all(self.steps.values()):
            raise ValueError(f"the versions of {self.name} are to count from 1, each with its reason")

    @property
    def bare_name(self) -> str:
        """The name without an engine's section."""
        return self.name.rpartition(".")[2]

    @property
    def number(self) -> int:
        return len(self.steps)

    def since(self, before: int | None) -> str:
        """Return the reasons for the versions after `before`, which may be unknown."""
        return "; ".join(why for number, why in self.steps.items() if before is not None and number > before)


def fingerprint(value: Any) -> str:
    """Return 16 hex digits of the SHA-256 of `value` as canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:16]


def canonical_json(value: Any) -> str:
    """Return `value` as JSON in a form that is the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def table_fingerprint(table: "pa.Table") -> str:
    """Return the fingerprint of a table's rows as Parquet encodes them.

    The footer of the file does not count.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    # The file ends with its footer, the footer's length in four bytes, and four magic bytes.
    footer = int.from_bytes(content[-8:-4], "little") + 8
    return fingerprint([table.column_names, hashlib.sha256(content[:-footer]).hexdigest()])


@cache
def file_sha256(path: Path) -> str:
    """Return the SHA-256 of a weights file, which is read once per process."""
    return files.file_sha256(path)
