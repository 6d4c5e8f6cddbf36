"""Fingerprints of what determines a result: parameters, weights and code."""

import hashlib
import importlib.util
import io
import json
import tokenize
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from resources import files

_LAYOUT_ONLY = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER}
_BLOCK = {tokenize.INDENT: "{", tokenize.DEDENT: "}"}


def fingerprint(value: Any) -> str:
    """16 hex digits of the SHA-256 of `value` as canonical JSON; the same on every machine and run."""
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def code_fingerprint(modules: Iterable[str]) -> str:
    """Fingerprint of the modules' code: comments, docstrings and formatting do not count.

    Token text is joined without blanks, which also makes f-strings read alike before and after
    Python 3.12 split them into several tokens. Modules are found, not imported.
    """
    return fingerprint({module: module_fingerprint(module) for module in modules})


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
def module_fingerprint(module: str) -> str:
    """Fingerprint of one module's code. Raises `ModuleNotFoundError`."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no source for module {module}")
    return hashlib.sha256(_normalised(Path(spec.origin).read_text("utf-8")).encode()).hexdigest()


def _normalised(source: str) -> str:
    kept: list[str] = []
    line: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NEWLINE:
            is_docstring = len(line) == 1 and line[0][-1] in "\"'"
            if not is_docstring:
                kept.append("".join(line))
            line = []
        elif token.type in _BLOCK:
            kept.append(_BLOCK[token.type])
        elif token.type not in _LAYOUT_ONLY:
            keyword_needs_blank = line and line[-1][-1:].isidentifier() and token.string[:1].isidentifier()
            line.append(f" {token.string}" if keyword_needs_blank else token.string)
    return "\n".join(kept)


@cache
def file_sha256(path: Path) -> str:
    """SHA-256 of a weights file, read once per process."""
    return files.file_sha256(path)
