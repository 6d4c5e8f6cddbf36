"""Scans of an archive as a corpus: `python scans.py FOLDER OUT`, then `kopub index OUT`.

One folder of FOLDER is one document, and its pictures are the pages in the order of their names.
"""

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SHARD_PAGES = 1000
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("file_name", pa.string()),
        ("page_number", pa.int32()),
        ("license", pa.string()),
    ]
)


def rows(folder: Path, license: str) -> Iterator[dict[str, Any]]:
    """A row for each picture, `{document}_{page}` as its id."""
    for document in sorted(path for path in folder.iterdir() if path.is_dir()):
        for number, scan in enumerate(sorted(document.glob("*.jpg")), start=1):
            yield {
                "id": f"{document.name}_{number}",
                "image": {"bytes": scan.read_bytes(), "path": scan.name},
                "file_name": document.name,
                "page_number": number,
                "license": license,
            }


def write_shards(folder: Path, out: Path, license: str = "CC0-1.0") -> None:
    """One Parquet file for each shard: what changes in one shard leaves the others as they are."""
    out.mkdir(parents=True, exist_ok=True)
    pages = rows(folder, license)
    shards = iter(lambda: list(islice(pages, SHARD_PAGES)), [])
    for at, shard in enumerate(shards):
        pq.write_table(pa.Table.from_pylist(shard, SCHEMA), out / f"scans-{at:04d}.parquet")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder for each document, with its pages as JPEGs")
    parser.add_argument("out", type=Path, help="where the shards are written")
    asked = parser.parse_args()
    write_shards(asked.folder, asked.out)
