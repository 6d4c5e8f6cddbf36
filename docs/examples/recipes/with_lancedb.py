"""Passages from LanceDB: `python with_lancedb.py HOME QUESTION` prints the best with page and box."""

import sys
from pathlib import Path

import lancedb

import kopub


def find(home: str, question: str) -> list[tuple[str, list[int], str]]:
    (asked,) = kopub.open(home).embed([question], queries=True)
    table = lancedb.connect(Path(home, "lancedb")).open_table("chunks")
    return [(row["page_id"], row["bbox_2d"], row["text"]) for row in table.search(asked).limit(3).to_list()]


if __name__ == "__main__":
    for page, box, text in find(*sys.argv[1:]):
        print(page, box, text[:200])
