"""Measure how long a step waits for client processes after one of the same engine.

    python -m benchmarks.reading.next_step [--processes N] [--pages N] [--tails SECONDS ...]

One Dagster run makes the vectors of pages and then of their texts, from a server that answers each page after SECONDS
and each text immediately. The tokenizer has as many tokens and merges as Qwen3's. All results are in seconds.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path

from aiohttp import web

from tests.doubles.vector_double import Request, VectorDouble, embedder, sound
from tests.support.checkpoints.tiny_vlm import qwen_tokenizer
from tests.support.harness import Platform
from tests.support.sources.corpora import page_image

BEFORE = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts")
IMAGES, TEXTS = "corpus_image_embeddings", "corpus_text_embeddings"
_TOKENS = 151_643
"""The number of tokens of Qwen3's tokenizer."""
_RARE = [chr(code) for code in range(0x100, 0x120)]
"""A tokenizer's letters for the bytes 0 to 31, which are in no text, so that texts are split as by the tests' one."""


def save_tokenizer(path: Path) -> None:
    """Save a tokenizer as large as the model's, in a file of 11 MB."""
    whole = json.loads(qwen_tokenizer().to_str())
    vocabulary, merges = whole["model"]["vocab"], whole["model"]["merges"]
    first = 1 + max(*vocabulary.values(), *(token["id"] for token in whole["added_tokens"]))
    for number, (before, after) in enumerate(islice(_pairs(), _TOKENS - first), first):
        vocabulary[before + after] = number
        merges.append([before, after])
    path.write_text(json.dumps(whole, ensure_ascii=False, indent=2))


def _pairs() -> Iterator[tuple[str, str]]:
    for length in (1, 2, 3):
        for start in product(_RARE, repeat=length):
            yield from (("".join(start), after) for after in _RARE)


class Clocked:
    """A server that answers pages after `seconds`, and records two times.

    They are of the last answer for a page and the first request for a text.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.last_page = self.first_text = 0.0

    async def __call__(self, asked: Request) -> web.Response:
        if "input" in asked.body:
            self.first_text = self.first_text or time.time()
        else:
            await asyncio.sleep(self._seconds)
            self.last_page = time.time()
        return await sound(asked)


def measure(folder: Path, tokenizer: Path, tail: float, pages: int, processes: int) -> str:
    platform = Platform.of(folder, [[(f"p_{number}", page_image(number, (1400, 2000))) for number in range(pages)]])
    platform.make(*BEFORE)
    clocked = Clocked(tail)
    with VectorDouble(vectors=clocked) as double:
        platform.engines["embedding"] = embedder(double, tokenizer, processes=processes, in_flight=4 * pages)
        result = platform.run(f"{IMAGES},{TEXTS}")
        assert result.success
    stamps = {
        (event.step_key, event.event_type_value): record.timestamp
        for record in platform.instance.all_logs(result.run_id)
        if (event := record.dagster_event) is not None
    }
    begins, ends = stamps[TEXTS, "STEP_START"], stamps[TEXTS, "STEP_SUCCESS"]
    return f"{tail:6.1f} {begins - clocked.last_page:12.2f} {clocked.first_text - begins:12.2f} {ends - begins:12.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--pages", type=int, default=24)
    parser.add_argument("--tails", type=float, nargs="+", default=[0.1, 0.5, 2.0])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder, "tokenizer.json")
        save_tokenizer(tokenizer)
        print(f"{'tail':>6} {'to texts':>12} {'first asked':>12} {'text step':>12}")
        for number, tail in enumerate(asked.tails):
            print(measure(Path(folder, str(number)), tokenizer, tail, asked.pages, asked.processes), flush=True)


if __name__ == "__main__":
    main()
