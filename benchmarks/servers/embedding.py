"""Measure Qwen3-VL-Embedding on a GPU, against the plain way and requests made beforehand.

    python -m benchmarks.servers.embedding --model Qwen/Qwen3-VL-Embedding-2B --revision COMMIT --profile PROFILE.yaml

Pages and texts are embedded end to end. Random weights (`--flag=--load-format=dummy`) take as long as real ones. Every
page and every text is unique, and the server's own counters must show no cache hit. Rates are sustained ones: see
benchmarks/servers/steady.py.
"""

import argparse
import base64
import io
import json
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.servers.ready_requests import ReadyVector
from benchmarks.servers.recognition import cpu_seconds, hits, samples, server_fields, unique_pages
from benchmarks.servers.steady import steady_part
from kopub.embedding.base import Embedding
from kopub.embedding.qwen3_vl import Qwen3VLEmbedder
from kopub.embedding.qwen3_vl_handlers import PATH, image_request, text_request
from kopub.embedding.qwen3_vl_inputs import PATCH, Chunker, page_image
from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.states import State
from kopub.vllm.client.client import RetryPolicy
from kopub.vllm.client.worker_pool import WorkerPool
from kopub.vllm.endpoint import Endpoint
from kopub.vllm.server import VLLMServer

PLAIN_BATCH = 32
PLAIN_PIXELS = 1_843_200
STAMPED = Region(0, "text", Task.TEXT, 1.0, (100.0, 100.0, 200.0, 200.0))
"""The region where noise makes a page unique."""
WAITS = 0.95
"""Share of the server's rate for requests made beforehand above which the client is not the limit."""


@dataclass
class EmbeddingRate:
    """The rate of answers over time, each with its floating-point operations.

    `bad` counts answers without a vector; `in_flight` are the requests that the server has at once; `seconds` is the
    whole time, if the beginning and end are not slower.
    """

    name: str
    in_flight: int = 0
    answers: list[tuple[float, float]] = field(default_factory=list)
    bad: int = 0
    cpu_seconds: float = 0.0
    hits: float = 0.0
    seconds: float = 0.0

    @property
    def steady(self) -> tuple[float, float]:
        """The answers and TFLOP a second, without the first and the last answers."""
        if self.seconds:
            return len(self.answers) / self.seconds, sum(count for _, count in self.answers) / self.seconds / 1e12
        steady = steady_part(self.answers, self.in_flight)
        seconds = steady[-1][0] - steady[0][0]
        return len(steady) / seconds, sum(operations for _, operations in steady) / seconds / 1e12

    def row(self, peak: float) -> str:
        each, tflops = self.steady
        cost = 1000 * self.cpu_seconds / len(self.answers)
        share = 100 * tflops / peak
        return (
            f"{self.name:<34}{len(self.answers):7d}{each:9.1f}{tflops:9.0f}{share:8.0f}%{cost:10.1f}"
            f"{self.bad:5d}{self.hits:6.0f}"
        )


HEAD = f"{'':<34}{'count':>7}{'each/s':>9}{'TFLOP/s':>9}{'of card':>9}{'CPU ms':>10}{'bad':>5}{'hits':>6}"


def operations(image_tokens: int, tokens: int) -> float:
    """Return the operations of one vector of the 2B model; a multiply-add is two.

    There are 24 vision blocks of widths 1024 and 4096 over four patches a token, four mergers, and 28 text blocks of
    1,409 million parameters with attention of width 2048.
    """
    patches = 4 * image_tokens
    vision = 604e6 * patches + 24 * 4 * 1024 * patches**2 + 201e6 * image_tokens
    return vision + 2 * 1409e6 * tokens + 28 * 2 * 2048 * tokens**2


def ceiling(name: str, jobs: Sequence[tuple[bytes, float]], embedder: Qwen3VLEmbedder) -> EmbeddingRate:
    """Measure only the server, with requests made beforehand."""
    rate = EmbeddingRate(name, embedder.slots)
    lost = (0.0, 0.0)
    pool = WorkerPool(
        embedder.server,
        ReadyVector,
        lambda job, reason: lost,
        embedder.in_flight,
        RetryPolicy(),
        embedder.processes,
    )
    rate.answers += pool.run(jobs)
    return rate


def ours(name: str, made: Iterable[Embedding], count: Callable[[str], float], in_flight: int) -> EmbeddingRate:
    """Measure the whole step, from bytes or text to vectors."""
    rate = EmbeddingRate(name, in_flight)
    for each in made:
        rate.answers.append((time.monotonic(), count(each.id)))
        if each.state is not State.OK:
            rate.bad += 1
            if rate.bad == 1:
                print(f"{name}: {each.id} is {each.state}: {each.reason}")
    return rate


def plain(name: str, batches: Iterable[list[tuple[bytes, float]]], endpoint: Endpoint) -> EmbeddingRate:
    """Measure a client that makes a batch, sends it, and waits before the next."""
    import requests

    rate = EmbeddingRate(name)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {endpoint.api_key}"}

    def send(request: tuple[bytes, float]) -> None:
        body, count = request
        response = requests.post(endpoint.urls[0] + PATH, data=body, headers=headers, timeout=600)
        response.raise_for_status()
        vectors = [item["embedding"] for item in response.json()["data"]]
        rate.answers += [(time.monotonic(), count / len(vectors))] * len(vectors)

    started = time.monotonic()
    with ThreadPoolExecutor(PLAIN_BATCH) as pool:
        for batch in batches:
            list(pool.map(send, batch))
    rate.seconds = time.monotonic() - started
    return rate


def plain_page(page: Page, model: str, instruction: str) -> bytes:
    """Return the request of a page made the plain way: Pillow, Lanczos, JPEG."""
    from PIL import Image

    image = Image.open(io.BytesIO(page.data)).convert("RGB")
    scale = (PLAIN_PIXELS / (image.width * image.height)) ** 0.5
    if scale < 1:
        image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.LANCZOS)
    sink = io.BytesIO()
    image.save(sink, "JPEG", quality=95)
    url = "data:image/jpeg;base64," + base64.b64encode(sink.getvalue()).decode()
    content = [{"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "system", "content": instruction}, {"role": "user", "content": content}]
    return json.dumps({"model": model, "messages": messages, "add_generation_prompt": True}).encode()


def batched(items: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (items[start : start + PLAIN_BATCH] for start in range(0, len(items), PLAIN_BATCH))


def page_texts(folder: Path) -> list[str]:
    """Return the text of every page of a corpus with text."""
    tables = [pa.ipc.open_stream(path).read_all() for path in sorted(folder.glob("*.arrow"))]
    return [text for table in tables for text in table["text"].to_pylist() if text and text.strip()]


def measured(make: Callable[[], EmbeddingRate], endpoint: Endpoint, peak: float) -> EmbeddingRate:
    """Return the rate with its CPU seconds and cache hits, and print it."""
    before, spent = hits(endpoint), cpu_seconds()
    rate = make()
    rate.cpu_seconds, rate.hits = cpu_seconds() - spent, hits(endpoint) - before
    print(rate.row(peak), flush=True)
    return rate


def preparing(pages: Sequence[Page], most: int) -> float:
    """Return the pages a second that all cores prepare when nothing else runs."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        started = time.monotonic()
        list(pool.map(lambda page: page_image(bytes(page.data), most), pages))
        return len(pages) / (time.monotonic() - started)


def verdict(what: str, ready: EmbeddingRate, whole: EmbeddingRate, plainly: EmbeddingRate | None) -> None:
    share = whole.steady[0] / ready.steady[0]
    stage = "the server" if share >= WAITS else "the client: the server waits for it"
    times = f", {whole.steady[0] / plainly.steady[0]:.1f} times the plain way" if plainly else ""
    print(f"{what}: {share:.2f} of requests made beforehand{times}; limited by {stage}", flush=True)


def measure_pages(arguments: argparse.Namespace, embedder: Qwen3VLEmbedder, endpoint: Endpoint) -> None:
    most = embedder.max_pixels // PATCH**2
    originals = [(page, [STAMPED]) for page in samples(arguments.pages)]
    pages = [page for page, _ in unique_pages(originals, arguments.count, "pages")]
    frame = Chunker(embedder.tokenizer_file(), embedder.instruction, embedder.max_tokens)
    print(f"pages made ready by all cores alone: {preparing(pages[:128], most):.1f}/s")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sent = list(pool.map(lambda page: page_image(bytes(page.data), most), pages))
    counts = {
        page.page_id: operations(each.tokens, each.tokens + frame.tokens_around_image())
        for page, each in zip(pages, sent, strict=True)
    }
    jobs = [
        (image_request(endpoint.model, embedder.instruction, each), counts[page.page_id])
        for page, each in zip(pages, sent, strict=True)
    ]
    ready = measured(partial(ceiling, "pages, requests made beforehand", jobs, embedder), endpoint, arguments.peak)
    again = (Page(page.page_id, page.data) for page in pages)
    whole = measured(
        lambda: ours("pages, the whole step", embedder.embed_images(again), counts.__getitem__, embedder.slots),
        endpoint,
        arguments.peak,
    )
    print({name: round(value, 1) if isinstance(value, float) else value for name, value in embedder.report().items()})
    batches = (
        [(plain_page(page, endpoint.model, embedder.instruction), counts[page.page_id]) for page in batch]
        for batch in batched(pages[: arguments.plain])
    )
    plainly = measured(lambda: plain("pages, the plain way", batches, endpoint), endpoint, arguments.peak)
    verdict("pages", ready, whole, plainly)


def measure_texts(arguments: argparse.Namespace, embedder: Qwen3VLEmbedder, endpoint: Endpoint) -> None:
    originals = page_texts(arguments.pages)
    texts = {f"t{n}": f"{n} {originals[n % len(originals)]}" for n in range(2 * arguments.count)}
    chunker = Chunker(embedder.tokenizer_file(), embedder.instruction, embedder.max_tokens)
    prompts = {name: chunker.prompts(text) for name, text in texts.items()}
    counts = {name: sum(operations(0, len(ids)) for ids in parts) for name, parts in prompts.items()}
    lengths = sorted(len(ids) for parts in prompts.values() for ids in parts)
    print(f"texts of {lengths[0]} to {lengths[-1]} tokens, {sum(lengths) / len(lengths):.0f} on average")
    jobs = [(text_request(endpoint.model, ids), operations(0, len(ids))) for parts in prompts.values() for ids in parts]
    ready = measured(partial(ceiling, "texts, requests made beforehand", jobs, embedder), endpoint, arguments.peak)
    whole = measured(
        lambda: ours("texts, the whole step", embedder.embed_texts(texts.items()), counts.__getitem__, embedder.slots),
        endpoint,
        arguments.peak,
    )
    some = list(texts.items())[: 4 * arguments.plain]
    batches = (
        [
            (
                json.dumps({"model": endpoint.model, "input": [text for _, text in batch]}).encode(),
                sum(counts[name] for name, _ in batch),
            )
        ]
        for batch in batched(some)
    )
    plainly = measured(lambda: plain("texts, the plain way", batches, endpoint), endpoint, arguments.peak)
    verdict("texts", ready, whole, plainly)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--revision", help="commit of a Hub repository")
    parser.add_argument("--profile", type=Path, help="YAML whose embedding.server section the server is made of")
    parser.add_argument("--flag", action="append", default=[], help="further argument of the server, as --flag=--x")
    parser.add_argument("--server", action="append", default=[], help="field of VLLMServer, as max_num_seqs=64")
    parser.add_argument("--command", default="vllm serve")
    parser.add_argument("--pages", type=Path, default=Path("samples/corpus"), help="folder of Arrow shards")
    parser.add_argument("--count", type=int, default=400, help="unique pages; of texts, twice as many")
    parser.add_argument("--plain", type=int, default=64, help="pages for the plain way; of texts, four times as many")
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--in-flight", type=int, default=192)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--peak", type=float, default=790.0, help="TFLOP/s of a large bf16 matrix product on the card")
    parser.add_argument("--only", default="pages,texts", help="what to measure")
    arguments = parser.parse_args()
    fields = {"runner": "pooling", "max_image_tokens": 1800, **server_fields(arguments, "embedding")}
    server = VLLMServer(**fields)
    embedder = Qwen3VLEmbedder(
        server=server,
        width=arguments.width,
        dim=arguments.width,
        in_flight=arguments.in_flight,
        processes=arguments.processes,
    )
    rows = arguments.only.split(",")
    started = time.monotonic()
    with server.lease() as endpoint:
        print(f"the server is ready after {time.monotonic() - started:.0f} s")
        list(embedder.model_copy(update={"processes": 1}).embed_images(samples(arguments.pages)[:8]))
        print(HEAD)
        if "pages" in rows:
            measure_pages(arguments, embedder, endpoint)
        if "texts" in rows:
            measure_texts(arguments, embedder, endpoint)


if __name__ == "__main__":
    main()
