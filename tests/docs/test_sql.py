"""The statements of docs/sql.md ask tables with any text in them."""

import ast
import re
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from kopub.store.schemas import OCR_RESULTS, PARSED_TEXTS, RAW_PAGES
from kopub.store.table_store import TableStore

DOCUMENT = Path(__file__).parents[2] / "docs" / "sql.md"
HOSTILE = "'; DROP VIEW raw_pages; -- \" \\ {'a': NULL} \x1b[31m 😀"
CELLS = {
    "△70,764": "-70764.0",
    "-1": "-1.0",
    "−0.04": "0.0",
    f"-{'9' * 60}": "None",
    f"-{'9' * 37}.9": f"-{'9' * 37}.9",
    "-1,2,,3": "-123.0",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with one page whose every text is hostile."""
    cells = "".join(f"<tr><td>{cell}</td><td>{HOSTILE}</td></tr>" for cell in [*CELLS, "-", "-1e5", "--1"])
    read = {"index": 0, "content": f"<table>{cells}</table>", "origin": "recognizer", "state": "ok"}
    others = {"index": 1, "content": HOSTILE, "state": "ok"}, {"index": 2, "content": None, "state": "failed"}
    page = {"page_id": HOSTILE, "doc_id": HOSTILE, "state": "ok", "reason": HOSTILE, "text": HOSTILE}
    store = TableStore(str(tmp_path / "data" / "store"))
    for asset, schema in (("raw_pages", RAW_PAGES), ("ocr_results", OCR_RESULTS), ("parsed_texts", PARSED_TEXTS)):
        row = {**page, "regions": [read, *others]}
        loose = pa.schema([field.with_nullable(True) for field in schema])
        store.write(asset, "shard_00", pa.Table.from_pylist([row], loose), {})
    return tmp_path


def statements(home: Path) -> list[str]:
    """Return the statements of the document, of the tables in a home."""
    literals = re.findall(r'duckdb\.sql\(\s*(""".*?"""|".*?")', DOCUMENT.read_text("utf-8"), re.DOTALL)
    return [re.sub(r"'(?:data|budget)/", f"'{home}/data/", ast.literal_eval(literal)) for literal in literals]


def test_no_text_of_a_page_ends_or_changes_a_statement(home: Path):
    first, second, states, numbers, *_ = statements(home)
    connection = duckdb.connect()
    connection.sql(first)
    connection.sql(second)
    assert connection.sql(states).fetchall() == [(HOSTILE, "ok", 1, HOSTILE)]
    rows = connection.sql(numbers).fetchall()
    assert {cell: str(number) for cell, number, _ in rows} == CELLS
