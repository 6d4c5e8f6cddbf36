"""Measure searches over a corpus of the reference's size: time, memory, and recall.

    python -m benchmarks.finding.search [--pages 40781] [--dim 2048] [--queries 50]

Pages are made up: vectors around the centres of 361 documents, text, and random vectors of its passages. The tables
are written to a temporary folder; questions are random directions near a page, and sentences for the complete search
from words to passages. The plain way is one float32 product in NumPy. At most two threads are used.
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "2"

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.documents_out import NOUNS
from benchmarks.made_up_vectors import column, noise, unit, with_vectors
from kopub.embedding.sentence import SentenceEmbedder, passages
from kopub.pages.manifest import shard_key
from kopub.search.options import Mode, Where
from kopub.search.searcher import Searcher
from kopub.search.vectors import VECTORS, Vectors
from kopub.search.words import TOKENS, made_from
from kopub.store.rows import MADE_WITH
from kopub.store.schemas import (
    OCR_RESULTS,
    PARSED_TEXTS,
    RAW_PAGES,
    RETRIEVAL_TOKENS,
    page_embeddings,
    passage_embeddings,
)
from kopub.store.table_store import ShardStore

DOCUMENTS, PER_SHARD, REGIONS, TOP = 361, 1166, 7, 10
WORDS = [*NOUNS, "산업"]
ASSET = VECTORS[Mode.TEXT]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40_781)
    parser.add_argument("--dim", type=int, default=2048)
    parser.add_argument("--queries", type=int, default=50)
    arguments = parser.parse_args()
    out = Console(highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), arguments, out)


def measure(folder: Path, arguments: argparse.Namespace, out: Console) -> None:
    chance = np.random.default_rng(0)
    store = ShardStore(url=str(folder / "store"))
    shards = [shard_key(at) for at in range(-(-arguments.pages // PER_SHARD))]
    centres = noise(chance, DOCUMENTS, arguments.dim)
    questions: list[np.ndarray] = []
    for at, shard in enumerate(shards):
        count = min(PER_SHARD, arguments.pages - at * PER_SHARD)
        vectors = unit(centres[chance.integers(DOCUMENTS, size=count)] + noise(chance, count, arguments.dim))
        write(store, shard, vectors, chance)
        near = vectors[: -(-arguments.queries // len(shards))]
        questions += list(unit(near + 0.5 * noise(chance, len(near), arguments.dim) / arguments.dim**0.5))
    questions = questions[: arguments.queries]
    embedder = SentenceEmbedder(dim=arguments.dim)

    # This has its own process, because memory that it frees would be counted below.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        made = pool.submit(make, store.url, shards, arguments.dim, folder).result()
    out.print(f"{arguments.pages:,} vectors of {arguments.dim}: made from the tables in {made[0]:.1f} s")
    out.print(f"texts of their pages: made from the tables in {made[1]:.1f} s")
    out.print(f"their words: found in one shard and indexed in {made[2]:.1f} s; indexed alone in {made[3]:.1f} s")
    out.print(f"vectors of their passages: made from the tables in {made[4]:.1f} s")
    sizes = {kind.name: sum(path.stat().st_size for path in kind.iterdir()) for kind in (folder / "search").iterdir()}
    listed = ", ".join(f"{name} {size / 1e6:.0f}" for name, size in sorted(sizes.items()))
    out.print(f"index files: {sum(sizes.values()) / 1e6:.0f} MB ({listed})")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        out.print(pool.submit(first_answer, store.url, shards, arguments.dim, folder).result())
    pa.default_memory_pool().release_unused()
    before = memory()
    started = time.perf_counter()
    searcher, vectors = opened(store, shards, embedder, folder)
    out.print(f"opened again in {since(started):.2f} s")
    out.print(f"nearest {TOP}: {timed(lambda query: vectors.nearest(query, TOP), questions)}")
    out.print(f"memory for it: {grown(before)}")
    sentences = [" ".join(chance.choice(WORDS, 4)) for _ in questions]
    for shard in shards:
        searcher.page(shard, f"{shard}_1")
    for mode in (Mode.TEXT, Mode.BM25, Mode.MEANING, Mode.FUSION):
        searcher.search(sentences[0], mode=mode)
        asked = timed(lambda query, mode=mode: searcher.search(query, mode=mode), sentences)
        out.print(f"words to pages with passages by {mode}: {asked}; memory {grown(before)}")
    tables = Where(has_table=True, documents=frozenset(searcher.documents[:9]))
    searcher.search(sentences[0], mode=Mode.FUSION, where=tables)
    asked = timed(lambda query: searcher.search(query, mode=Mode.FUSION, where=tables), sentences)
    out.print(f"the same of nine documents, with a table: {asked}")

    write(store, shards[0], unit(noise(chance, min(PER_SHARD, arguments.pages), arguments.dim)), chance)
    started, spent = time.perf_counter(), time.process_time()
    searcher.search(sentences[0], mode=Mode.FUSION)
    out.print(f"a question after a shard changed: {since(started):.1f} s, {time.process_time() - spent:.1f} CPU s")

    matrix = np.concatenate([shard.matrix for shard in vectors.shards]).astype(np.float32)
    ids = [page for shard in vectors.shards for page in shard.table["page_id"].to_pylist()]

    def plain(query: np.ndarray) -> list[str]:
        scores = matrix @ query
        best = np.argpartition(scores, -TOP)[-TOP:]
        return [ids[row] for row in best[np.argsort(-scores[best])]]

    out.print(f"the plain way: {timed(plain, questions)}, {matrix.nbytes / 1e6:.0f} MB of float32")
    out.print(f"recall@{TOP} against it: {recall(vectors, questions, plain):.4f}")


def first_answer(url: str, shards: Sequence[str], dim: int, folder: Path) -> str:
    """Return the time from a new searcher to its first answer."""
    started, spent = time.perf_counter(), time.process_time()
    searcher = Searcher(ShardStore(url=url), shards, SentenceEmbedder(dim=dim), "cpu", folder / "search")
    searcher.search("산업 기술의 발전", mode=Mode.FUSION)
    return f"the first question of a process: {since(started):.2f} s, {time.process_time() - spent:.2f} CPU s"


def make(url: str, shards: Sequence[str], dim: int, folder: Path) -> tuple[float, float, float, float, float]:
    """Make all that a search caches; return the seconds of each part.

    The parts are the vectors, the texts, the words, only the index of the words, and the passages.
    """
    started = time.perf_counter()
    searcher, _ = opened(ShardStore(url=url), shards, SentenceEmbedder(dim=dim), folder)
    vectors = since(started)
    for shard in shards:
        searcher.page(shard, "")
    texts = since(started) - vectors
    searcher.words()
    words = since(started) - vectors - texts
    for path in (folder / "search" / "words").glob("*.arrow"):
        path.unlink()
    searcher, _ = opened(ShardStore(url=url), shards, SentenceEmbedder(dim=dim), folder)
    searcher.words()
    index = since(started) - vectors - texts - words
    searcher.vectors(Mode.MEANING)
    return vectors, texts, words, index, since(started) - vectors - texts - words - index


def opened(store: ShardStore, shards: Sequence[str], embedder: Any, folder: Path) -> tuple[Searcher, Vectors]:
    searcher = Searcher(store, shards, embedder, "cpu", folder / "search")
    return searcher, searcher.vectors(Mode.TEXT)


def recall(vectors: Vectors, questions: Sequence[np.ndarray], plain: Callable[[np.ndarray], list[str]]) -> float:
    shares = [
        len({near.page_id for near in vectors.nearest(query, TOP)} & set(plain(query))) / TOP for query in questions
    ]
    return float(np.mean(shares))


def write(store: ShardStore, shard: str, vectors: np.ndarray, chance: np.random.Generator) -> None:
    """Write a shard's tables for a search, with seven paragraphs a page, each a passage."""
    page_ids = [f"{shard}_{row + 1}" for row in range(len(vectors))]
    same = {"state": "ok", "reason": None, "fingerprint": ""}
    rows = [{"page_id": page_id, **same} for page_id in page_ids]
    table = with_vectors(rows, page_embeddings(vectors.shape[1]), vectors)
    embedder = SentenceEmbedder(dim=vectors.shape[1])
    made_with = json.dumps({"engines": [embedder.recipe()]})
    stamp = {"recipe": shard, MADE_WITH: made_with}
    store.write(ASSET, shard, table, stamp)
    known = {"format": "PNG", "width": 2480, "height": 3508, "sha256": "", "source": shard, "doc_id": shard}
    raw = [
        {"page_id": page_id, "page_idx": row, "page_no": row + 1, **known, **same}
        for row, page_id in enumerate(page_ids)
    ]
    store.write("raw_pages", shard, pa.Table.from_pylist(raw, RAW_PAGES), {"recipe": shard})
    read = [
        {"page_id": page_id, "page_idx": row, "regions": regions(chance), **same}
        for row, page_id in enumerate(page_ids)
    ]
    store.write("ocr_results", shard, pa.Table.from_pylist(read, OCR_RESULTS), {"recipe": shard})
    texts = ["\n\n".join(region["content"] for region in row["regions"]) for row in read]
    spans = [list(passages(text)) for text in texts]
    said = with_passages(rows, spans, embedder.passage_dim, chance)
    made_with = json.dumps({"engines": [embedder.passage_recipe()]})
    store.write(VECTORS[Mode.MEANING], shard, said, {"recipe": shard, MADE_WITH: made_with})
    parsed = [
        {"page_id": page_id, "text": text, "n_chars": len(text), **same}
        for page_id, text in zip(page_ids, texts, strict=True)
    ]
    table = pa.Table.from_pylist(parsed, PARSED_TEXTS)
    store.write("parsed_texts", shard, table, {"recipe": shard})
    if shard != shard_key(0):
        # The words are stored as by retrieval_scores; the search itself finds those of the first shard.
        searched = table.select(["page_id", "text", "state"])
        tokens = pa.table({"page_id": page_ids, "tokens": [text.split() for text in texts]}, RETRIEVAL_TOKENS)
        store.write(TOKENS, shard, tokens, made_from(searched))


def with_passages(
    rows: Sequence[dict[str, Any]],
    spans: Sequence[Sequence[tuple[int, int]]],
    dim: int,
    chance: np.random.Generator,
) -> pa.Table:
    """Return the table of passages at `spans` of each page, with random vectors."""
    schema = passage_embeddings(dim)
    starts, ends = (pa.array([span[at] for each in spans for span in each], pa.int32()) for at in (0, 1))
    vectors = column(unit(noise(chance, len(starts), dim)))
    items = pa.StructArray.from_arrays([starts, ends, vectors], ["start", "end", "vector"])
    offsets = pa.array(np.cumsum([0, *map(len, spans)]), pa.int32())
    lists = pa.ListArray.from_arrays(offsets, items)
    at = schema.get_field_index("passages")
    table = pa.Table.from_pylist([{**row, "passages": []} for row in rows], schema)
    return table.set_column(at, schema.field(at), lists.cast(schema.field(at).type))


def regions(chance: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {
            "index": at,
            "label": "table" if at == 0 else "text",
            "native_label": "text",
            "state": "ok",
            "finish_reason": "stop",
            "attempts": 1,
            "seconds": 0.0,
            "bbox_2d": [100, 80 * at, 900, 80 * at + 70],
            "content": " ".join(chance.choice(WORDS, 46)),
        }
        for at in range(REGIONS)
    ]


def timed(search: Callable[[Any], object], queries: Sequence[Any]) -> str:
    walls, spent = [], time.process_time()
    for query in queries:
        started = time.perf_counter()
        search(query)
        walls.append(1000 * since(started))
    cpu = 1000 * (time.process_time() - spent) / len(queries)
    return f"p50 {np.median(walls):.1f} ms, p95 {np.quantile(walls, 0.95):.1f} ms, {cpu:.1f} CPU ms"


def since(started: float) -> float:
    return time.perf_counter() - started


def grown(before: dict[str, float]) -> str:
    return ", ".join(f"{name} {now - before[name]:+.0f} MB" for name, now in memory().items())


def memory() -> dict[str, float]:
    """Return the MB of this process: own, and of mapped files, which may be dropped."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {name: int(lines[key].split()[0]) / 1024 for name, key in (("own", "RssAnon"), ("mapped", "RssFile"))}


if __name__ == "__main__":
    main()
