"""Measure a reader on a GPU, against the plain way and requests made beforehand.

    python -m benchmarks.servers.recognition --model zai-org/GLM-OCR --revision COMMIT      # starts the server
    python -m benchmarks.servers.recognition --model NAME --url http://127.0.0.1:8000       # uses one

`--engine paddleocr_vl` or `deepseek_ocr` reads with another model; the plain way is only for GLM-OCR. `--crop 800 40`
makes every region a line of that size instead of the mean one. `--line-height 28 21` adds rows for regions scaled down
to lines of as many pixels, as type of 10 points has at 200 and at 150 dpi; for that, pages must have 300 dpi, like the
samples. Random weights (`--flag=--load-format=dummy`) take as long as real ones, because answers have a fixed length.
Every crop is unique, and the server's own counters must show no cache hit. Rates are sustained ones: see
benchmarks/servers/steady.py.
"""

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.servers import plain_way
from benchmarks.servers.ready_requests import ReadyPage
from benchmarks.servers.steady import answer_times, steady_part
from benchmarks.whole_graph.grid_engines import MEAN_CROP, grid
from kopub.config.profile_files import find_profile
from kopub.layout.cpu.engine import CpuLayout
from kopub.layout.regions import Region
from kopub.pages.arrow import open_pages
from kopub.pages.page import Page
from kopub.recognition.regions import region_pixels
from kopub.recognition.vlm.client.chat_requests import PATH, prompt_name, read_answer, request_body
from kopub.recognition.vlm.client.region_images import pack_pixels
from kopub.recognition.vlm.deepseek_ocr import DeepSeekOcrRecognizer
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.recognition.vlm.paddleocr_vl import PaddleOcrVlRecognizer
from kopub.recognition.vlm.recognizer import VlmRecognizer
from kopub.texts.markdown import page_markdown
from kopub.vllm.client.client import RetryPolicy
from kopub.vllm.client.worker_pool import WorkerPool
from kopub.vllm.endpoint import Endpoint
from kopub.vllm.server import VLLMServer

ENGINES: dict[str, Callable[..., VlmRecognizer]] = {
    "glm_ocr": GlmOcrRecognizer,
    "paddleocr_vl": PaddleOcrVlRecognizer,
    "deepseek_ocr": DeepSeekOcrRecognizer,
}
PLAIN_THREADS = 256
Work = list[tuple[Page, list[Region]]]


@dataclass
class RecognitionRate:
    """The rate of answers over time, with the regions' pixels on the page.

    `hits` are the server's cache hits, `bad` the failed answers, `in_flight` the requests that the server has at once.
    """

    name: str
    in_flight: int
    answers: list[tuple[float, int]] = field(default_factory=list)
    pages: int = 0
    bad: int = 0
    cpu_seconds: float = 0.0
    hits: float = 0.0

    @property
    def steady(self) -> tuple[float, float]:
        """The regions and megapixels a second, without the first and the last answers."""
        steady = steady_part(self.answers, self.in_flight)
        seconds = steady[-1][0] - steady[0][0]
        return len(steady) / seconds, sum(pixels for _, pixels in steady) / seconds / 1e6

    def row(self) -> str:
        count = len(self.answers)
        regions, megapixels = self.steady
        return (
            f"{self.name:<44}{count:8d}{regions:11.1f}{regions * self.pages / count:9.2f}{megapixels:9.1f}"
            f"{1000 * self.cpu_seconds / count:12.1f}{self.bad:6d}{self.hits:6.0f}"
        )


HEAD = f"{'':<44}{'regions':>8}{'regions/s':>11}{'pages/s':>9}{'Mpx/s':>9}{'CPU ms each':>12}{'bad':>6}{'hits':>6}"


def area(region: Region) -> int:
    return round((region.bbox[2] - region.bbox[0]) * (region.bbox[3] - region.bbox[1]))


def samples(folder: Path) -> list[Page]:
    pages = []
    for path in sorted(folder.glob("*.arrow")):
        file = open_pages(path, "arrow")
        rows = sum(part.rows for part in file.batches())
        pages += [Page(str(row.id), bytes(row.image)) for row in file.rows(rows) if row.image is not None]
    return pages


def pages_by_grid(arguments: argparse.Namespace) -> list[tuple[Page, list[Region]]]:
    """Return the selected pages, each with a grid of regions of the selected size."""
    return [(page, grid(tuple(arguments.crop))) for page in samples(arguments.pages)]


def laid_out(pages: Sequence[Page]) -> dict[str, list[Region]]:
    """Return the regions of the CPU layout by page, for crops of realistic sizes."""
    return {layout.page_id: list(layout.regions) for layout in CpuLayout().detect(pages)}


def unique_pages(originals: Sequence[tuple[Page, list[Region]]], count: int, name: str) -> Work:
    """Return copies of pages with noise in each region, so that crops are unique."""
    import cv2

    def stamped(number: int) -> tuple[Page, list[Region]]:
        original, regions = originals[number % len(originals)]
        rng = np.random.default_rng([number, *name.encode()])
        image = cv2.cvtColor(original.image, cv2.COLOR_RGB2BGR)
        for region in regions:
            x, y = int(region.bbox[0]) + 2, int(region.bbox[1]) + 2
            image[y : y + 8, x : x + 8] = rng.integers(0, 256, (8, 8, 1), np.uint8)
        encoded = cv2.imencode(".png", image, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1]
        return Page(f"{name}_{number}", encoded.tobytes()), regions

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(stamped, range(count)))


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of the processes it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def bodies(
    page: Page, regions: Sequence[Region], recognizer: VlmRecognizer, sampling: dict[str, Any]
) -> list[tuple[bytes, int]]:
    image = Page(page.page_id, page.data).image
    model, make, prompts = recognizer.server.checkpoint, recognizer.image_maker(), recognizer.prompts
    options = {"temperature": 0.0, **recognizer.default_sampling, **sampling}

    def body(region: Region) -> bytes:
        prompt = prompts[prompt_name(region.label, region.task, prompts)]
        return request_body(model, prompt, make(pack_pixels(region_pixels(image, region))), 64, options)

    return [(body(region), area(region)) for region in regions if region.task in plain_way.READ]


Jobs = list[list[tuple[bytes, int]]]


def ready_made(work: Work, recognizer: VlmRecognizer, sampling: dict[str, Any]) -> Jobs:
    """Return the requests of each page, with the pixels of each region.

    Even a large region has only one request.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda item: bodies(item[0], item[1], recognizer, sampling), work))


def ceiling(jobs: Jobs, server: VLLMServer, in_flight: int, processes: int) -> RecognitionRate:
    """Measure only the server, with requests made beforehand."""
    rate = RecognitionRate("requests made beforehand", in_flight, pages=len(jobs))
    pool = WorkerPool(server, ReadyPage, lambda job, reason: [], in_flight, RetryPolicy(), processes)
    for answers in pool.run(jobs):
        rate.answers += answers
    return rate


def ours(work: Work, recognizer: VlmRecognizer, endpoint: Endpoint, name: str) -> RecognitionRate:
    """Measure the whole step: decode, crop, encode, read, markdown."""
    rate = RecognitionRate(name, recognizer.slots, pages=len(work))
    areas = {page.page_id: {region.index: area(region) for region in regions} for page, regions in work}
    pixels: list[int] = []
    with answer_times(endpoint) as times:
        for reading in recognizer.read((Page(page.page_id, page.data), regions) for page, regions in work):
            page_markdown(reading.regions, reading.crops)
            read = [text for text in reading.regions if text.finish_reason != "skipped"]
            pixels += [areas[reading.page_id][text.index] for text in read]
            rate.bad += sum(text.finish_reason == "error" for text in read)
    # A region that is read in parts, or more than once, has several answers.
    moments = np.interp(np.linspace(0, len(times) - 1, len(pixels)), range(len(times)), times)
    rate.answers = list(zip(moments.tolist(), pixels, strict=True))
    return rate


def plain(work: Work, endpoint: Endpoint, server: VLLMServer, sampling: dict[str, Any]) -> RecognitionRate:
    """Measure the plain way, in one process.

    One thread decodes pages and builds requests one by one, and 256 others send them.
    """
    import requests
    from requests.adapters import HTTPAdapter

    # A single thread builds the requests, so the server only has a few at once.
    rate = RecognitionRate("the plain way", 0, pages=len(work))
    session = requests.Session()
    session.mount("http://", HTTPAdapter(pool_maxsize=PLAIN_THREADS))
    session.headers.update({"Content-Type": "application/json", "Authorization": f"Bearer {endpoint.api_key}"})
    url = endpoint.urls[0]

    def send(body: bytes, pixels: int) -> None:
        response = session.post(url + PATH, data=body, timeout=600)
        rate.bad += response.status_code != 200
        read_answer(response.json())
        rate.answers.append((time.monotonic(), pixels))

    options: dict[str, object] = {"temperature": 0.0, "max_tokens": 64, **sampling}
    with ThreadPoolExecutor(PLAIN_THREADS) as pool:
        for page, regions in work:
            image = plain_way.decoded(bytes(page.data))
            for region in regions:
                if region.task in plain_way.READ:
                    encoded = plain_way.jpeg(plain_way.crop(image, region))
                    pool.submit(send, plain_way.request(server.checkpoint, region.task, encoded, options), area(region))
    return rate


def hits(endpoint: Endpoint) -> float:
    """Return the server's cache hits so far."""
    found = endpoint.samples()
    return found["vllm:prefix_cache_hits_total"] + found["vllm:mm_cache_hits_total"]


def measured(make: Callable[[], RecognitionRate], endpoint: Endpoint, name: str = "") -> RecognitionRate:
    """Return the rate with its CPU seconds and cache hits, and print it."""
    before, spent = hits(endpoint), cpu_seconds()
    rate = make()
    rate.cpu_seconds, rate.hits = cpu_seconds() - spent, hits(endpoint) - before
    rate.name = name or rate.name
    print(rate.row(), flush=True)
    return rate


def compared(rates: Sequence[tuple[RecognitionRate, RecognitionRate]]) -> str:
    """Return the comparison of the whole step with requests made beforehand, over rounds."""
    ready, whole = (np.array([pair[side].steady[0] for pair in rates]) for side in (0, 1))
    shares = whole / ready
    return (
        f"the whole step is {shares.mean():.3f} of requests made beforehand "
        f"(by round: {', '.join(f'{share:.3f}' for share in shares)}); "
        f"regions/s {ready.mean():.1f} +- {ready.std(ddof=1) if len(ready) > 1 else 0:.1f} beforehand, "
        f"{whole.mean():.1f} +- {whole.std(ddof=1) if len(whole) > 1 else 0:.1f} in the step"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    server_arguments(parser)
    parser.add_argument("--url", help="a running server; otherwise one is started")
    parser.add_argument("--rounds", type=int, default=1, help="how often the first two rows take turns")
    parser.add_argument("--in-flight", type=int, default=768)
    parser.add_argument("--only", default="ceiling,ours,plain,layout", help="which rows to measure")
    parser.add_argument(
        "--line-height",
        type=int,
        nargs="*",
        default=[],
        help="the whole step at these too: 28 21",
    )
    parser.add_argument("--trace", action="store_true", help="have the server profile itself for a second")
    return parser.parse_args()


def server_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that every benchmark of a server takes."""
    parser.add_argument("--model", required=True)
    parser.add_argument("--revision", default="unpinned")
    parser.add_argument("--profile", type=Path, help="YAML whose recognition.server section the server is made of")
    parser.add_argument("--flag", action="append", default=[], help="further argument of the server, as --flag=--x")
    parser.add_argument("--server", action="append", default=[], help="field of VLLMServer, as max_num_seqs=512")
    parser.add_argument("--command", default="vllm serve")
    parser.add_argument("--engine", choices=sorted(ENGINES), default="glm_ocr")
    parser.add_argument("--crop", type=int, nargs=2, default=MEAN_CROP, help="width and height of the regions")
    parser.add_argument("--pages", type=Path, default=Path("samples/corpus"))
    parser.add_argument("--count", type=int, default=600, help="unique pages for each measurement")
    parser.add_argument("--tokens", type=int, default=64, help="length of every answer")
    parser.add_argument("--processes", type=int, default=4)


def server_fields(arguments: argparse.Namespace, section: str = "recognition") -> dict[str, Any]:
    """Return the server's fields by profile section and arguments.

    `--url` names a running server.
    """
    path = arguments.profile
    fields = find_profile(str(path)).sections[section]["server"] if path else {}
    running = {"mode": "external", "urls": [arguments.url], "version": ""} if getattr(arguments, "url", None) else {}
    return {
        **fields,
        "model": arguments.model,
        "revision": arguments.revision,
        "command": arguments.command.split(),
        "extra_flags": [*fields.get("extra_flags", []), *arguments.flag],
        **running,
        **changed_fields(arguments.server),
    }


def changed_fields(pairs: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a server given as NAME=VALUE, with values in YAML."""
    return {name: yaml.safe_load(value) for name, _, value in (pair.partition("=") for pair in pairs)}


def recognizer_of(
    engine: str, server: VLLMServer, tokens: int, in_flight: int, processes: int, line_height: int | None = None
) -> VlmRecognizer:
    """Return a recognizer that accepts all answers, which have `tokens` tokens."""
    return ENGINES[engine](
        server=server,
        sampling={"ignore_eos": True, "max_tokens": tokens},
        tries=1,
        in_flight=in_flight,
        processes=processes,
        line_height=line_height,
    )


def main() -> None:
    arguments = parsed()
    server = VLLMServer(**server_fields(arguments))
    reader = partial(
        recognizer_of, arguments.engine, server, arguments.tokens, arguments.in_flight, arguments.processes
    )
    recognizer = reader()
    by_grid = pages_by_grid(arguments)
    rows = [row for row in arguments.only.split(",") if row != "plain" or arguments.engine == "glm_ocr"]
    with server.lease() as endpoint:
        ours(unique_pages(by_grid, 40, "warm"), recognizer, endpoint, "warm-up")
        work = unique_pages(by_grid, arguments.count, "pages")
        print(HEAD)
        by_turns(work, rows, arguments.rounds, recognizer, endpoint)
        ways = [("", recognizer)]
        for pixels in arguments.line_height:
            ways.append((f", lines of {pixels} px", reader(pixels)))
        for name, way in ways[1:]:
            measured(partial(ours, work, way, endpoint, f"the whole step{name}"), endpoint)
        if "layout" in rows:
            regions = laid_out([Page(page.page_id, page.data) for page, _ in by_grid])
            real = unique_pages([(page, regions[page.page_id]) for page, _ in by_grid], arguments.count, "layout")
            for name, way in ways:
                measured(partial(ours, real, way, endpoint, f"regions of real sizes{name}"), endpoint)
        if arguments.trace:
            with ProcessPoolExecutor(1) as pool:
                trace = pool.submit(profile, endpoint.urls[0], endpoint.api_key)
                ours(work, recognizer, endpoint, "profiled")
                trace.result()


def by_turns(work: Work, rows: Sequence[str], rounds: int, recognizer: VlmRecognizer, endpoint: Endpoint) -> None:
    """Measure requests made beforehand and the whole step alternately, then the plain way."""
    server, sampling = recognizer.server, recognizer.sampling
    jobs = ready_made(work, recognizer, sampling) if "ceiling" in rows else []
    ready = partial(ceiling, jobs, server, recognizer.in_flight, recognizer.processes)
    pairs: list[tuple[RecognitionRate, RecognitionRate]] = []
    for _ in range(rounds):
        pair = [measured(ready, endpoint)] if "ceiling" in rows else []
        pair += (
            [measured(lambda: ours(work, recognizer, endpoint, "the whole step"), endpoint)] if "ours" in rows else []
        )
        if len(pair) == 2:
            pairs.append((pair[0], pair[1]))
    if pairs:
        print(compared(pairs), flush=True)
    if "plain" in rows:
        measured(lambda: plain(work[: max(1, len(work) // 6)], endpoint, server, sampling), endpoint)


def profile(url: str, key: str) -> None:
    """Run the server's own profiler for a second, once the server is busy."""
    import requests

    headers = {"Authorization": f"Bearer {key}"}
    time.sleep(5.0)
    requests.post(f"{url}/start_profile", headers=headers, timeout=60).raise_for_status()
    time.sleep(1.0)
    requests.post(f"{url}/stop_profile", headers=headers, timeout=300).raise_for_status()


if __name__ == "__main__":
    main()
