"""Measure the reading room at the reference's size: pages, a correction, memory, visitors.

    python benchmarks/finding/reading_room.py [--pages 40781] [--at-once 500] [--folder FOLDER]

A made-up corpus is written to a temporary folder, which is deleted at the end: page images, layouts, readings, texts
and vectors of 361 documents, with some pages lost, partly read or doubtful. The room is the command `kopub browse` in a
process of its own, queried over HTTP. Exits with 1 if a limit is missed.
"""

import argparse
import asyncio
import hashlib
import io
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console

import kopub
from benchmarks.made_up_vectors import with_random_vectors
from kopub.config.settings import Settings
from kopub.fingerprints import fingerprint
from kopub.pages.indexing import index
from kopub.search.words import TOKENS, made_from
from kopub.states import MADE
from kopub.store.corpus_tables import TABLES
from kopub.store.schemas import RETRIEVAL_TOKENS
from kopub.tables.graph import GRAPH

ROOT = Path(__file__).resolve().parents[2]
PROFILE = {"layout": {"engine": "cpu"}, "recognition": {"engine": "tesseract"}, "embedding": {"engine": "hashed"}}
DOCUMENTS, PER_SHARD, IMAGES, REGIONS = 361, 1166, 48, 12
WIDTH, HEIGHT = 620, 877
BROKEN, UNREAD, NO_LAYOUT, DOUBTFUL = 997, 499, 1499, 97
"""One of this many pages has bytes that are no image, loses a region, has no layout, or looks wrong."""
WORDS = ["정부", "예산", "사업", "계획", "지원", "기술", "개발", "환경", "교육", "정책", "연구", "결과", "분석", "지역"]
LIMITS = {"home": 300.0, "page": 200.0, "correction": 100.0, "memory": 500.0}
"""Milliseconds, and MB of own memory, without mapped files, which the system may drop."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40_781)
    parser.add_argument("--at-once", type=int, default=500)
    parser.add_argument("--folder", type=Path, help="An empty folder that is kept, or one that was kept before.")
    arguments = parser.parse_args()
    out = Console(highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory() as temporary:
        home = (arguments.folder or Path(temporary)) / "home"
        if not home.exists():
            started = time.perf_counter()
            write_corpus(home.parent / "source", arguments.pages)
            index(str(home.parent / "source"), home)
            write_tables(Settings.of(home, PROFILE, "cpu"))
            out.print(f"{arguments.pages:,} pages written in {time.perf_counter() - started:.0f} s")
        sys.exit(measure(home, arguments.at_once, out))


def write_corpus(folder: Path, pages: int) -> None:
    """Write Arrow files of drawn pages, and some questions."""
    from PIL import Image, ImageDraw

    images = []
    for seed in range(IMAGES):
        image = Image.new("L", (WIDTH, HEIGHT), 255)
        draw, chance = ImageDraw.Draw(image), random.Random(seed)
        for line in range(60):
            draw.rectangle((50, 40 + line * 13, 50 + chance.randint(100, 520), 46 + line * 13), fill=40)
        file = io.BytesIO()
        image.save(file, "PNG")
        images.append(file.getvalue())
    (folder / "corpus").mkdir(parents=True)
    per_document = -(-pages // DOCUMENTS)
    for shard, start in enumerate(range(0, pages, PER_SHARD)):
        rows = [
            {
                "id": f"document{number // per_document:03d}_{number % per_document + 1}",
                "image": {"bytes": b"no image" if _every(BROKEN, number) else images[number % IMAGES], "path": None},
            }
            for number in range(start, min(start + PER_SHARD, pages))
        ]
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(str(folder / "corpus" / f"pages-{shard:03d}.arrow"), table.schema) as writer:
            writer.write_table(table, 100)
    asked = [{"id": f"q{at}", "query": f"{WORDS[at]} {WORDS[at + 1]}?", "ground_truth": []} for at in range(10)]
    asked = [{**question, "ground_truth": ["document000_1"]} for question in asked]
    pq.write_table(pa.Table.from_pylist(asked), folder / "qa.parquet")


def write_tables(settings: Settings) -> None:
    """Write the tables of a corpus, stamped as by the assets."""
    declared = GRAPH.declared(settings.resources)
    chance, number = np.random.default_rng(0), 0
    for shard in settings.corpus.manifest.keys:
        rows = list(settings.corpus.rows(shard))
        made = [
            list(each) for each in zip(*(_rows(row, number + at, chance) for at, row in enumerate(rows)), strict=True)
        ]
        number += len(rows)
        for table, of_table in zip((TABLES.pages, TABLES.regions, TABLES.readings, TABLES.texts), made, strict=True):
            asset = declared[table.name]
            content = pa.Table.from_pylist(of_table, asset.schema)
            settings.store.write(table.name, shard, content, asset.provenance(shard).metadata(content))
        ended = [{name: text[name] for name in ("page_id", "state", "reason", "fingerprint")} for text in made[-1]]
        for table in (TABLES.text_vectors, TABLES.image_vectors):
            asset = declared[table.name]
            content = with_random_vectors(ended, asset.schema, chance)
            settings.store.write(table.name, shard, content, asset.provenance(shard).metadata(content))
        texts = settings.store.read(TABLES.texts.name, shard, ["page_id", "text", "state"])
        texts = texts.filter(pc.field("state").isin(MADE))
        settings.store.write(TOKENS, shard, _tokens(texts), made_from(texts))


def _tokens(texts: pa.Table) -> pa.Table:
    """Return the words of the texts as `retrieval_scores` stores them.

    They are nouns, so none must be analysed.
    """
    words = [re.findall("|".join(WORDS), text) for text in texts["text"].to_pylist()]
    return pa.Table.from_arrays([texts["page_id"], pa.array(words)], schema=RETRIEVAL_TOKENS)


def _rows(row: Any, number: int, chance: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Yield the row of a page in each of the four tables without vectors."""
    ends: dict[str, Any] = {"state": "ok", "reason": None, "fingerprint": fingerprint(row.page_id)}
    data = bytes(row.data or b"")
    known = {"width": WIDTH, "height": HEIGHT, "format": "PNG"}
    if _every(BROKEN, number):
        ends, known = {**ends, "state": "quarantined", "reason": "not an image"}, {}
    yield {
        "page_id": row.page_id,
        "page_idx": row.row,
        "doc_id": row.doc_id,
        "page_no": row.page_no,
        "sha256": hashlib.sha256(data).hexdigest(),
        "n_bytes": len(data),
        "source": row.source,
        **known,
        **ends,
    }
    if ends["state"] == "ok" and _every(NO_LAYOUT, number):
        ends = {**ends, "state": "failed", "reason": "no layout"}
    boxes = [] if ends["state"] != "ok" else list(_regions(chance))
    yield {"page_id": row.page_id, "regions": [box for box, _ in boxes], **ends}
    if boxes and _every(UNREAD, number):
        ends = {**ends, "state": "partial", "reason": "1 of 12 regions failed"}
    read = [
        {
            **{name: box[name] for name in ("index", "label", "bbox_2d")},
            "native_label": box["label"],
            "content": said,
            "state": "ok",
            "finish_reason": "stop",
            "attempts": 1,
        }
        for box, said in boxes
    ]
    markdown = "\n\n".join(said for _, said in boxes)
    crops = [
        {"path": f"crops/{row.page_id}_{b['index']}.jpg", "bbox": b["bbox"], "label": "image"} for b, _ in boxes[-1:]
    ]
    yield {
        "page_id": row.page_id,
        "page_idx": row.row,
        "regions": read,
        "markdown": markdown,
        "image_crops": crops,
        "crop_images": [b"" for _ in crops],
        **ends,
    }
    doubt = 0.8 if boxes and _every(DOUBTFUL, number) else 0.0
    doubts = ["12% of the characters are broken"] if doubt else []
    yield {"page_id": row.page_id, "text": markdown, "n_chars": len(markdown), "doubt": doubt, "doubts": doubts, **ends}


def _regions(chance: np.random.Generator) -> Iterator[tuple[dict[str, Any], str]]:
    for at in range(REGIONS):
        label = "table" if at == 5 else "image" if at == REGIONS - 1 else "text"
        box = (60.0, 70.0 * at, 560.0, 70.0 * at + 60)
        words = chance.choice(WORDS, 15).tolist()
        cells = "".join(
            f"<tr><td>{one}</td><td>{two}</td></tr>" for one, two in zip(words[::2], words[1::2], strict=False)
        )
        said = f"<table>{cells}</table>" if label == "table" else "" if label == "image" else " ".join(words)
        grid = [97, round(80 * at), 903, round(80 * at) + 68]
        task = "table" if label == "table" else "skip" if label == "image" else "text"
        yield {"index": at, "label": label, "task": task, "score": 0.9, "bbox": box, "bbox_2d": grid}, said


def _every(pages: int, number: int) -> bool:
    return number % pages == pages - 1


def measure(home: Path, at_once: int, out: Console) -> int:
    """Print the room's times and memory; return 1 if a limit is missed."""
    environment = {**os.environ, "KOPUB_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-c", "from kopub.cli.main import main; main()", "browse", "--port", "0", "--edit"]
    ids = random.Random(0).choices(kopub.open(home).pages.ids, k=60)
    started = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            url = server.stdout.readline().split()[0]
            out.print(f"serves after {time.perf_counter() - started:.1f} s, {_memory(server.pid)}")
            missed = asyncio.run(_asked(url, ids, at_once, server.pid, out))
        finally:
            server.terminate()
    return int(missed)


async def _asked(url: str, ids: Sequence[str], at_once: int, pid: int, out: Console) -> bool:
    """Request all that the room shows, singly and in parallel; return any missed limit."""
    kinds = {
        "home": ["/"] * 20,
        "documents": [f"/documents?part={at}" for at in range(1, 8)],
        "document": [f"/document?id=document{at:03d}" for at in range(0, 360, 24)],
        "page": [f"/page?id={page_id}" for page_id in ids],
        "page, markdown": [f"/page?id={page_id}&view=markdown" for page_id in ids],
        "page, lineage": [f"/page?id={page_id}&view=history" for page_id in ids],
        "page, in a list": [f"/page?id={page_id}&walk=doubtful" for page_id in ids],
        "doubtful": [f"/pages?kind=doubtful&part={at}" for at in range(1, 10)],
        "figures": [f"/figures?part={at}" for at in range(1, 400, 40)],
        "thumbnail": [f"/picture?id={page_id}&size=thumb" for page_id in ids],
        "full size": [f"/picture?id={page_id}&size=full" for page_id in ids],
    }
    searches = {
        "search by vectors": [f"/search?q={word}&mode=text" for word in WORDS],
        "search by words": [f"/search?q={word}&mode=bm25" for word in WORDS],
    }
    missed = False
    limits = httpx.Limits(max_connections=at_once)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        for kind, paths in kinds.items():
            missed |= await _timed(client, kind, paths, out) > LIMITS.get(kind, np.inf)
        paths = [kinds[kind][at % len(kinds[kind])] for at, kind in zip(range(at_once), cycle(kinds), strict=False)]
        started = time.perf_counter()
        answers = await asyncio.gather(*(client.get(path) for path in paths))
        wall = time.perf_counter() - started
        broken = [answer.status_code for answer in answers if answer.status_code not in (200, 404)]
        out.print(f"{at_once} at once: all answered in {wall:.1f} s, {len(broken)} with an error; {_memory(pid)}")
        missed |= bool(broken)
        # Searching loads an engine and, for words, the Korean analyser, which always takes 250 MB.
        for kind, paths in searches.items():
            await _timed(client, kind, paths, out)
            out.print(f"after it: {_memory(pid)}")
        missed |= _megabytes(pid)["own"] > LIMITS["memory"]
        missed |= await _corrected(client, ids, out) > LIMITS["correction"]
    return missed


async def _corrected(client: httpx.AsyncClient, ids: Sequence[str], out: Console) -> float:
    """Correct a region of each page; return the p95 of saving in ms."""
    took = []
    for page_id in ids:
        shown = (await client.get("/page", params={"id": page_id, "view": "edit"})).text
        if 'name="box"' not in shown:
            continue
        sent = dict(re.findall(r'<input type="hidden" name="(id|seen|form|box)" value="([^"]*)">', shown))
        sent |= {"do": "text", "text": f"{page_id} 고친 글", "author": "Kim"}
        started = time.perf_counter()
        answer = await client.post("/correct", data=sent, headers={"origin": str(client.base_url).rstrip("/")})
        took.append(1000 * (time.perf_counter() - started))
        if answer.status_code != httpx.codes.SEE_OTHER:
            answer.raise_for_status()
    return _told("a correction", took, out)


async def _timed(client: httpx.AsyncClient, kind: str, paths: Sequence[str], out: Console) -> float:
    """Return the p95 of requests for the paths, in ms. Raises `httpx.HTTPStatusError`."""
    took = []
    for path in paths:
        started = time.perf_counter()
        answer = await client.get(path)
        took.append(1000 * (time.perf_counter() - started))
        # A page made without a picture has none to return.
        if answer.status_code != httpx.codes.NOT_FOUND:
            answer.raise_for_status()
    return _told(kind, took, out)


def _told(kind: str, took: Sequence[float], out: Console) -> float:
    """Print the times of requests of a kind in ms; return the 95th percentile."""
    p50, p95 = float(np.median(took)), float(np.quantile(took, 0.95))
    out.print(f"{kind:<18} first {took[0]:5.0f} ms, p50 {p50:6.1f}, p95 {p95:6.1f}, worst {max(took):5.0f}")
    return p95


def _memory(pid: int) -> str:
    return "memory " + ", ".join(f"{name} {value:.0f} MB" for name, value in _megabytes(pid).items())


def _megabytes(pid: int) -> dict[str, float]:
    """Return the MB of a process: own, of mapped files, and at the peak.

    The system may drop mapped files.
    """
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    keys = (("own", "RssAnon"), ("mapped", "RssFile"), ("peak", "VmHWM"))
    return {name: int(lines[key].split()[0]) / 1024 for name, key in keys}


if __name__ == "__main__":
    main()
