"""Measure the time, memory and disk of `kopub export` of documents at the reference's size.

    python -m benchmarks.documents_out [--pages 40781] [--lines 9] [--nouns 14]
        [--formats markdown docling chunks document_chunks] [--folder F]

The tables are made up, by default for as many pages as the reference, in shards of 1,166 pages and documents of 113:
A4 pages at 300 dpi with a running head, a page number, numbered titles and 1,000 characters in printed lines; a table
on every third page, a picture of 60 KB on every fourth, a note on every tenth. With `--lines 1`, paragraphs have one
line, and nothing must be joined; with `--nouns 50000`, words are rarely repeated, so that few joints are known. Each
format is written in a process of its own, then again over the same files. `document_chunks` is the asset, whose second
run finds nothing to do. `MB` is the peak memory of the process.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from benchmarks.finding.package import peak

PER_SHARD, PER_DOCUMENT = 1166, 113
WIDTH, HEIGHT = 2480, 3508
LEFT, RIGHT, LINE = 250, 2230, 62
PICTURE = 60_000
NOUNS = ["정부", "예산", "사업", "계획", "지원", "기술", "개발", "환경", "교육", "정책", "연구", "결과", "분석", "지역"]
SYLLABLES = (
    "가거고구기나노다대도동라로리마모문바보부비사상서선성소수시신아안양여연영원유이인일자장재전정제조주지진차하한해화회"
)
ENDINGS = ["는", "을", "의", "에서", "으로", "과", "도", "까지"]
VERBS = ["늘어났다", "추진한다", "마련하였다", "검토하고 있다", "나타났다"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40_781)
    parser.add_argument("--lines", type=int, default=9, help="lines of print in a paragraph")
    parser.add_argument("--nouns", type=int, default=len(NOUNS), help="how many; made-up ones from the fifteenth on")
    parser.add_argument("--formats", nargs="+", default=["markdown", "docling"])
    parser.add_argument("--folder", type=Path, help="where tables and files go, or are; a temporary one when left out")
    parser.add_argument("--apart", help="one export, in this process")
    options = parser.parse_args()
    if options.apart:
        print(json.dumps(exported(options.folder, options.apart)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary) / "corpus"
        if not folder.exists():
            started, chance = time.perf_counter(), Random(1)
            NOUNS.extend("".join(chance.choices(SYLLABLES, k=3)) for _ in range(options.nouns - len(NOUNS)))
            write_tables(folder, options.pages, options.lines)
            print(f"{options.pages:,} pages made in {time.perf_counter() - started:.0f} s", flush=True)
        for name in options.formats:
            for again in ("", ", again"):
                command = [sys.executable, "-m", "benchmarks.documents_out", "--folder", str(folder), "--apart", name]
                done = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
                print(f"{name}{again}: " + ", ".join(f"{what} {value}" for what, value in done.items()), flush=True)


def exported(folder: Path, name: str) -> dict[str, Any]:
    """Export as the command does after reading its settings."""
    started = time.perf_counter()
    if name == "document_chunks":
        return {**made_chunks(folder), "seconds": round(time.perf_counter() - started, 1), **spent()}
    from kopub.documents.export import write_documents
    from kopub.processes import keep_little
    from kopub.store.corpus_tables import TABLES
    from kopub.store.table_store import ShardStore

    keep_little()
    # The command sets this before Arrow is loaded.
    pa.set_memory_pool(pa.system_memory_pool())
    store, out = ShardStore(url=str(folder / "store")), folder / name
    shards = sorted(store.published(TABLES.pages.name))
    done = write_documents(store, shards, out, [name])
    seconds, pages = time.perf_counter() - started, done.pages.total()
    size = sum(path.stat().st_size for path in out.glob("*") if path.is_file())
    return {
        "pages": pages,
        "documents": done.documents,
        "pictures": done.pictures,
        "joined": done.joined,
        "seconds": round(seconds, 1),
        "ms a page": round(1000 * seconds / pages, 2),
        "MB of text": round(size / 1e6, 1),
        **spent(),
    }


def spent() -> dict[str, float]:
    """Return the CPU time and peak memory of this process."""
    return {"CPU seconds": round(time.process_time(), 1), "MB": round(peak())}


def made_chunks(folder: Path) -> dict[str, Any]:
    """Make the asset's tables of all shards with Dagster in this process."""
    import dagster  # noqa: F401 - a run has it in memory

    from kopub.config.choices import Documents
    from kopub.store.corpus_tables import TABLES
    from kopub.store.table_store import ShardStore
    from kopub.tables.asset import RunContext
    from kopub.tables.checks import Problems
    from kopub.tables.document_chunks import DocumentChunks
    from kopub.tables.shard_loop import make_all

    store = ShardStore(url=str(folder / "store"))
    keys = tuple(sorted(store.published(TABLES.pages.name)))
    corpus = SimpleNamespace(manifest=SimpleNamespace(keys=keys))
    resources: Any = {"store": store, "corpus": corpus, "documents": Documents(chunks=True)}
    asset = DocumentChunks(resources)
    run = RunContext("benchmark", keys, Problems(asset.checks, {}), lambda line: None, lambda line: None)
    made = make_all(asset, run)
    return {"documents": sum(shard.metadata["dagster/row_count"] for shard in made.values())}


def write_tables(folder: Path, pages: int, lines: int) -> None:
    """Write the tables of `pages` pages that documents are made from."""
    from kopub.store.corpus_tables import TABLES
    from kopub.store.table_source import SOURCE
    from kopub.store.table_store import ShardStore
    from kopub.tables.provenance import Provenance

    store, chance = ShardStore(url=str(folder / "store")), Random(0)
    for at, start in enumerate(range(0, pages, PER_SHARD)):
        made = [page_rows(number, lines, chance) for number in range(start, min(start + PER_SHARD, pages))]
        for table, rows in zip((TABLES.pages, TABLES.regions, TABLES.readings), zip(*made, strict=True), strict=True):
            filled = pa.Table.from_pylist(list(rows), table.schema)
            stamp = Provenance.of(table.name, "x", "", {}, {SOURCE: str(at)})
            store.write(table.name, f"shard_{at:02d}", filled, stamp.metadata(filled))


def page_rows(number: int, lines: int, chance: Random) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return a page's rows in `raw_pages`, `layout_regions` and `ocr_results`."""
    document, page_no = f"보고서{number // PER_DOCUMENT:03d}.pdf", number % PER_DOCUMENT + 1
    page_id = f"{document}_{page_no}"
    ends = {"state": "ok", "reason": None, "fingerprint": "0"}
    regions, read, crops = [], [], []
    for index, (label, (top, bottom), content) in enumerate(page_regions(number, page_no, lines, chance)):
        task = {"table": "table", "image": "skip", "header": "abandon", "number": "abandon"}.get(label, "text")
        box = [LEFT, top, RIGHT, bottom]
        grid = [round(1000 * edge / extent) for edge, extent in zip(box, (WIDTH, HEIGHT) * 2, strict=True)]
        named = {"index": index, "label": label, "bbox_2d": grid}
        regions.append({**named, "task": task, "score": 0.9, "bbox": box})
        said = {"native_label": label, "content": content, "state": "ok", "finish_reason": "stop", "attempts": 1}
        read.append({**named, **said})
        if label == "image":
            crops.append(
                {"path": f"crops/{page_id}_{index}.jpg", "bbox": [round(edge) for edge in box], "label": label}
            )
    sha256 = hashlib.sha256(page_id.encode()).hexdigest()
    known = {"page_id": page_id, "page_idx": number % PER_SHARD, **ends}
    source = {"doc_id": document, "page_no": page_no, "sha256": sha256, "width": WIDTH, "height": HEIGHT, "source": "x"}
    pictures = [chance.randbytes(PICTURE) for _ in crops]
    return (
        {**known, **source},
        {"page_id": page_id, "regions": regions, **ends},
        {**known, "regions": read, "markdown": "", "image_crops": crops, "crop_images": pictures},
    )


def page_regions(number: int, page_no: int, lines: int, chance: Random) -> Iterator[tuple[str, tuple[int, int], str]]:
    """Yield label, (upper, lower) edge and content of each region, from top to bottom."""
    yield "header", (120, 170), f"{number // PER_DOCUMENT}년도 사업 보고서"
    top = 300
    for part in range(1, 4):
        yield "paragraph_title", (top, top + LINE), f"{part}. {chance.choice(NOUNS)} {chance.choice(NOUNS)}"
        said = printed_lines(chance, lines)
        bottom = top + 2 * LINE + LINE * len(said)
        yield "text", (top + 2 * LINE, bottom), "\n".join(said) + ("1)" if number % 10 == 0 and part == 1 else "")
        top = bottom + LINE
        if part == 1 and number % 3 == 0:
            rows = "".join(f"<tr><td>{noun}</td><td>{chance.randrange(10_000):,}</td></tr>" for noun in NOUNS[:8])
            yield "table", (top, top + 500), f"<table><tr><td>구분</td><td>금액</td></tr>{rows}</table>"
            top += 560
        if part == 2 and number % 4 == 0:
            yield "image", (top, top + 500), ""
            yield "figure_title", (top + 510, top + 560), f"그림 {page_no}. {chance.choice(NOUNS)} 추이"
            top += 620
    if number % 10 == 0:
        yield "footnote", (3200, 3250), f"1) {' '.join(chance.choices(NOUNS, k=6))}"
    yield "number", (3350, 3400), f"- {page_no} -"


def printed_lines(chance: Random, count: int) -> list[str]:
    """Return a paragraph in lines of some 40 characters, the last one short.

    As in Korean print, lines may end inside a word.
    """
    words: list[str] = []
    while sum(map(len, words)) + len(words) < 40 * count:
        said = [f"{chance.choice(NOUNS)}{chance.choice(ENDINGS)}" for _ in range(chance.randrange(4, 8))]
        words += [*said, f"{chance.choice(VERBS)}."]
    text = " ".join(words)
    full = [text[at : at + 40].strip() for at in range(0, 40 * (count - 1), 40)]
    return [*full, f"{chance.choice(VERBS)}."]


if __name__ == "__main__":
    main()
