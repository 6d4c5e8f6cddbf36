"""Measure a release of a whole corpus: time, memory, and its first row's delay.

Pages are made up, as many and as large as those of the reference corpus: 40,781 in 35 shards, each with a dozen regions
and 900 characters, two vectors of 2,048 dimensions, and no pictures. Only the release is timed, not the making of the
tables, but their memory is counted.
"""

import argparse
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.made_up_vectors import with_random_vectors
from kopub.release.base import ReleaseDescription, ReleaseInput
from kopub.release.files import list_parts, loadable_parts
from kopub.release.local import LocalRelease
from kopub.release.verify import verify
from kopub.store import schemas

REGIONS = 12
SYLLABLES = 75
"""Syllables of a region, for 900 characters a page."""
DIM = 2048
QUERIES = 17
"""Queries of a shard, for 600 in all."""


@dataclass
class Stopwatch:
    """A clock of wall-clock seconds and of CPU seconds on all cores."""

    wall: float = 0.0
    cpu: float = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        wall, cpu = self._started
        self.wall += time.perf_counter() - wall
        self.cpu += time.process_time() - cpu

    def __str__(self) -> str:
        return f"{self.wall:.1f} s ({self.cpu:.1f} CPU s)"


def main() -> None:
    parser = argparse.ArgumentParser(description="What a release of a whole corpus costs.")
    parser.add_argument("--pages", type=int, default=40_781)
    parser.add_argument("--shards", type=int, default=35)
    parser.add_argument("--folder", type=Path, help="where the release goes; a temporary folder when left out")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(options.folder or Path(temporary) / "release", options.pages, options.shards)


def measure(folder: Path, pages: int, shards: int) -> None:
    release = LocalRelease(folder=str(folder))
    keys = [f"shard_{n:02d}" for n in range(shards)]
    sizes = [pages // shards + (n < pages % shards) for n in range(shards)]
    about = ReleaseDescription(title="Benchmark", source="made up", profile="cpu", shards=keys)
    whole, one, end, check, again = (Stopwatch() for _ in range(5))
    for n, (key, size) in enumerate(zip(keys, sizes, strict=True)):
        made = shard_tables(n, size)
        with whole:
            release.publish(key, made)
    with whole, end:
        release.finish(about)
    made = shard_tables(0, sizes[0], seed=1)
    with one:
        release.publish(keys[0], made)
        release.finish(about)
    with again:
        release.finish(about)
    with check:
        problems = list(verify(folder))
    assert not problems, problems
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    held = sum(part.bytes for parts in list_parts(folder).values() for part in parts) / 1e6
    rows = {config: sum(part.rows for part in loadable_parts(parts)) for config, parts in list_parts(folder).items()}
    print(f"{pages:,} pages in {shards} shards, {rows['regions']:,} regions, {rows['lineage']:,} rows of lineage")
    print(f"released in {whole}, {held:,.0f} MB; of it the card and the lists {end}")
    print(f"one shard anew {one}; the card alone {again}")
    print(f"verified in {check}: {len(problems)} problems")
    print(f"peak memory {peak:.2f} GB")
    for config in ("pages", "text_embeddings"):
        print(f"first row of {config}, streaming: {first_row(folder, config):.2f} s")


def first_row(folder: Path, config: str) -> float:
    """Return the seconds until a user gets the first row, once `datasets` is imported."""
    from datasets import load_dataset

    started = time.perf_counter()
    next(iter(load_dataset(str(folder), config, split="train", streaming=True)))
    return time.perf_counter() - started


def shard_tables(shard: int, pages: int, seed: int = 0, dim: int = DIM) -> ReleaseInput:
    """Return the tables of a shard whose pages were all read."""
    chance = np.random.default_rng([shard, seed])
    ids = [f"doc{shard}_{n + 1}" for n in range(pages)]
    ended = [{"page_id": page, "state": "ok", "reason": None, "fingerprint": f"{seed:016x}"} for page in ids]
    syllables = chance.integers(0xAC00, 0xD7A4, (pages, REGIONS, SYLLABLES)).astype(np.uint32)
    texts = [["".join(map(chr, region)) for region in page] for page in syllables.tolist()]
    box, grid = [0.0, 0.0, 100.0, 50.0], [0, 0, 100, 50]
    layout = [
        {"index": n, "label": "text", "task": "text", "score": 0.9, "bbox": box, "bbox_2d": grid, "polygon": None}
        for n in range(REGIONS)
    ]
    read = {"label": "text", "native_label": "text", "bbox_2d": grid, "state": "ok", "attempts": 1, "seconds": 0.1}
    raw = [
        {
            **row,
            "page_idx": n,
            "doc_id": f"doc{shard}_{n // 113}",
            "page_no": n + 1,
            "sha256": f"{n:064x}",
            "format": "PNG",
            "width": 2480,
            "height": 3508,
            "n_bytes": 500_000,
            "license": "CC-BY-SA-4.0",
            "source": f"data-{shard:05d}.arrow",
        }
        for n, row in enumerate(ended)
    ]
    readings = [
        {
            **row,
            "page_idx": n,
            "regions": [{**read, "index": at, "content": text} for at, text in enumerate(page)],
            "markdown": "\n\n".join(page),
            "image_crops": [],
            "crop_images": [],
        }
        for n, (row, page) in enumerate(zip(ended, texts, strict=True))
    ]
    parsed = [
        {**row, "text": "\n".join(page), "n_chars": REGIONS * SYLLABLES} for row, page in zip(ended, texts, strict=True)
    ]
    queries = [
        {
            "query_id": f"q{shard}_{n}",
            "query": texts[n][0],
            "answer": "그것",
            "type": "text",
            "domain": "law",
            "ground_truth": [ids[n]],
            "state": "ok",
            "fingerprint": "f",
        }
        for n in range(min(QUERIES, pages))
    ]
    return ReleaseInput(
        raw_pages=pa.Table.from_pylist(raw, schemas.RAW_PAGES),
        layout_regions=pa.Table.from_pylist([{**row, "regions": layout} for row in ended], schemas.LAYOUT_REGIONS),
        ocr_results=pa.Table.from_pylist(readings, schemas.OCR_RESULTS),
        parsed_texts=pa.Table.from_pylist(parsed, schemas.PARSED_TEXTS),
        corpus_image_embeddings=with_random_vectors(ended, schemas.page_embeddings(dim), chance),
        corpus_text_embeddings=with_random_vectors(ended, schemas.page_embeddings(dim), chance),
        query_embeddings=with_random_vectors(queries, schemas.query_embeddings(dim), chance),
    )


if __name__ == "__main__":
    main()
