"""GLM-OCR end to end on a GPU: the whole step, the plain way, and what the server gives to ready-made requests.

    python -m benchmarks.recognition --model zai-org/GLM-OCR --revision COMMIT      # starts the server
    python -m benchmarks.recognition --model NAME --url http://127.0.0.1:8000       # uses one

Random weights (`--flag=--load-format=dummy`) take as long as real ones: answers have a fixed length.
Every crop is unique, and the server's own counters must show no cache hit. Rates are those between
the first 15 % and the last 15 % of the answers.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import plain_way
from resources.layout.base import Region, Task
from resources.layout.cpu import CpuLayout
from resources.pages.arrow import open_pages
from resources.pages.page import Page
from resources.recognition.glm_ocr import GlmOcrRecognizer
from resources.recognition.markdown import page_markdown
from resources.recognition.prompts import PATH, PROMPTS, read_answer, request_body
from resources.recognition.vision_crops import cut, picture
from resources.vllm.client import Client, Patience
from resources.vllm.crew import Crew
from resources.vllm.server import VLLMServer

MEAN_CROP = (812, 422)
"""Width and height of the mean region of SDS KoPub, at 300 dpi."""
WARM_UP, COOL_DOWN = 0.15, 0.85
PLAIN_THREADS = 256
Work = list[tuple[Page, list[Region]]]


@dataclass
class Rate:
    """Answers over time; `pixels` are those of the regions as they lie on the page."""

    name: str
    answers: list[tuple[float, int]] = field(default_factory=list)
    pages: int = 0
    bad: int = 0
    cpu_seconds: float = 0.0
    hits: float = 0.0

    def row(self) -> str:
        self.answers.sort()
        count = len(self.answers)
        steady = self.answers[int(WARM_UP * count) : int(COOL_DOWN * count)]
        seconds = steady[-1][0] - steady[0][0]
        regions, megapixels = len(steady) / seconds, sum(pixels for _, pixels in steady) / seconds / 1e6
        pages = regions * self.pages / count if self.pages else float("nan")
        return (
            f"{self.name:<28}{count:8d}{regions:11.1f}{pages:9.2f}{megapixels:9.1f}"
            f"{1000 * self.cpu_seconds / count:12.1f}{self.bad:6d}{self.hits:6.0f}"
        )


HEAD = f"{'':<28}{'regions':>8}{'regions/s':>11}{'pages/s':>9}{'Mpx/s':>9}{'CPU ms each':>12}{'bad':>6}{'hits':>6}"


def area(region: Region) -> int:
    return round((region.bbox[2] - region.bbox[0]) * (region.bbox[3] - region.bbox[1]))


def samples(folder: Path) -> list[Page]:
    pages = []
    for path in sorted(folder.glob("*.arrow")):
        file = open_pages(path, "arrow", path.stat().st_size)
        rows = sum(part.rows for part in file.parts())
        pages += [Page(str(row.id), bytes(row.image)) for row in file.rows(rows) if row.image is not None]
    return pages


def grid(page: Page) -> list[Region]:
    """Eight regions of the mean size, at places that are no whole pixels."""
    width, height = MEAN_CROP
    boxes = [(120.4 + column * 1150, 150.3 + row * 800) for row in range(4) for column in range(2)]
    return [Region(i, "text", Task.TEXT, 0.9, (x, y, x + width, y + height)) for i, (x, y) in enumerate(boxes)]


def laid_out(pages: Sequence[Page]) -> dict[str, list[Region]]:
    """What the CPU layout finds: crops of real sizes."""
    return {layout.page_id: list(layout.regions) for layout in CpuLayout().detect(pages)}


def unique_pages(originals: Sequence[tuple[Page, list[Region]]], count: int, name: str) -> Work:
    """Copies of pages with a stamp of noise in each region, so that no crop equals another."""
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
    """Of this process and the ones it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


class ReadyMade:
    """A handler whose jobs are requests already."""

    def prepare(self, job: list[tuple[bytes, int]]) -> list[tuple[bytes, int]]:
        return job

    async def finish(self, ready: list[tuple[bytes, int]], client: Client) -> list[tuple[float, int]]:
        return await asyncio.gather(*(self._ask(client, *request, id(ready)) for request in ready))

    async def _ask(self, client: Client, body: bytes, pixels: int, flow: int) -> tuple[float, int]:
        await client.post(PATH, body, read_answer, flow, 1.0)
        return time.monotonic(), pixels

    def close(self) -> None:
        pass


def bodies(page: Page, regions: Sequence[Region], model: str, sampling: dict[str, Any]) -> list[tuple[bytes, int]]:
    image = Page(page.page_id, page.data).image
    greedy = {"temperature": 0.0, **sampling}
    return [
        (request_body(model, PROMPTS[r.task], picture(cut(image, r.bbox)), 64, greedy), area(r))
        for r in regions
        if r.task in plain_way.READ
    ]


def ceiling(work: Work, server: VLLMServer, sampling: dict[str, Any], in_flight: int, processes: int) -> Rate:
    """What the server gives to requests that were made beforehand."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = list(pool.map(lambda item: bodies(item[0], item[1], server.model, sampling), work))
    rate = Rate("requests made beforehand", pages=len(work))
    crew = Crew(server, ReadyMade, lambda job, reason: [], in_flight, Patience(), processes)
    for answers in crew.run(jobs):
        rate.answers += answers
    return rate


def ours(work: Work, recognizer: GlmOcrRecognizer, name: str) -> Rate:
    """The whole step: decode, crop, encode, read, markdown."""
    rate = Rate(name, pages=len(work))
    areas = {page.page_id: {region.index: area(region) for region in regions} for page, regions in work}
    for reading in recognizer.read((Page(page.page_id, page.data), regions) for page, regions in work):
        page_markdown(reading.regions, reading.crops)
        now = time.monotonic()
        read = [text for text in reading.regions if text.finish_reason != "skipped"]
        rate.answers += [(now, areas[reading.page_id][text.index]) for text in read]
        rate.bad += sum(text.finish_reason == "error" for text in read)
    return rate


def plain(work: Work, url: str, key: str, server: VLLMServer, sampling: dict[str, Any]) -> Rate:
    """One process: pages decoded and requests built one after the other by one thread, 256 others send them."""
    import requests
    from requests.adapters import HTTPAdapter

    rate = Rate("the plain way", pages=len(work))
    session = requests.Session()
    session.mount("http://", HTTPAdapter(pool_maxsize=PLAIN_THREADS))
    session.headers.update({"Content-Type": "application/json", "Authorization": f"Bearer {key}"})

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
                    pool.submit(send, plain_way.request(server.model, region.task, encoded, options), area(region))
    return rate


def measured(make: Callable[[], Rate], hits: Callable[[], float]) -> Rate:
    before, spent = hits(), cpu_seconds()
    rate = make()
    rate.cpu_seconds, rate.hits = cpu_seconds() - spent, hits() - before
    print(rate.row(), flush=True)
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--revision", default="unpinned")
    parser.add_argument("--url", help="a running server; otherwise one is started")
    parser.add_argument("--flag", action="append", default=[], help="further argument of the server, as --flag=--x")
    parser.add_argument("--server", action="append", default=[], help="field of VLLMServer, as max_num_seqs=512")
    parser.add_argument("--command", default="vllm serve")
    parser.add_argument("--pages", type=Path, default=Path("samples/corpus"))
    parser.add_argument("--count", type=int, default=300, help="unique pages for each measurement")
    parser.add_argument("--tokens", type=int, default=64, help="length of every answer")
    parser.add_argument("--in-flight", type=int, default=384)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--only", default="ceiling,ours,plain,layout", help="which rows to measure")
    parser.add_argument("--profile", action="store_true", help="have the server profile itself for two seconds")
    arguments = parser.parse_args()
    fields: dict[str, Any] = {
        "model": arguments.model,
        "revision": arguments.revision,
        "command": arguments.command.split(),
        "extra_flags": arguments.flag,
        **({"mode": "external", "urls": [arguments.url]} if arguments.url else {}),
        **{name: int(value) for name, _, value in (pair.partition("=") for pair in arguments.server)},
    }
    server = VLLMServer(**fields)
    sampling = {"ignore_eos": True, "max_tokens": arguments.tokens}
    recognizer = GlmOcrRecognizer(
        server=server,
        sampling=sampling,
        tries=1,
        in_flight=arguments.in_flight,
        processes=arguments.processes,
    )
    rows = arguments.only.split(",")
    originals = samples(arguments.pages)
    by_grid = [(page, grid(page)) for page in originals]
    with server.lease() as endpoint:
        url, key = endpoint.urls[0], endpoint.api_key

        def hits() -> float:
            found = endpoint.samples()
            return found["vllm:prefix_cache_hits_total"] + found["vllm:mm_cache_hits_total"]

        ours(unique_pages(by_grid, 40, "warm"), recognizer, "warm-up")
        print(HEAD)
        if "ceiling" in rows:
            work = unique_pages(by_grid, arguments.count, "ceiling")
            make = partial(ceiling, work, server, sampling, arguments.in_flight, arguments.processes)
            measured(make, hits)
        if "ours" in rows:
            work = unique_pages(by_grid, arguments.count, "ours")
            measured(lambda: ours(work, recognizer, "ours"), hits)
        if "plain" in rows:
            work = unique_pages(by_grid, max(1, arguments.count // 4), "plain")
            measured(lambda: plain(work, url, key, server, sampling), hits)
        if "layout" in rows:
            regions = laid_out([Page(page.page_id, page.data) for page in originals])
            work = unique_pages([(page, regions[page.page_id]) for page in originals], arguments.count, "layout")
            measured(lambda: ours(work, recognizer, "ours, regions of real sizes"), hits)
        if arguments.profile:
            work = unique_pages(by_grid, 60, "profile")
            with ProcessPoolExecutor(1) as pool:
                trace = pool.submit(profile, url, key)
                ours(work, recognizer, "profiled")
                trace.result()


def profile(url: str, key: str) -> None:
    """Two seconds of the server's own profiler, once it is busy."""
    import requests

    headers = {"Authorization": f"Bearer {key}"}
    time.sleep(2.0)
    requests.post(f"{url}/start_profile", headers=headers, timeout=60).raise_for_status()
    time.sleep(2.0)
    requests.post(f"{url}/stop_profile", headers=headers, timeout=300).raise_for_status()


if __name__ == "__main__":
    main()
