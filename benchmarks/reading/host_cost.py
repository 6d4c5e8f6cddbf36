"""Measure the host's CPU time to make a page's requests, against the plain way.

    python -m benchmarks.reading.host_cost [FOLDER]

FOLDER holds Arrow shards of pages (default: the samples). Measured is one thread of a pool, which reuses memory as in
a client process. The ways take turns for three rounds; the minimum of each is reported, because other work on the
machine can only add time.
"""

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")

import cv2

from benchmarks.servers import plain_way
from benchmarks.servers.recognition import samples
from kopub.folders import ROOT
from kopub.layout.cpu.engine import CpuLayout
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.regions import region_pixels
from kopub.recognition.vlm.client.chat_requests import AnswerCache, answer_room, region_key, request_body
from kopub.recognition.vlm.client.region_images import has_ink, pack_pixels, region_image

ROUNDS = 3
TimeCost = dict[str, float]
Work = list[tuple[Page, Sequence[Region]]]


def load(folder: Path, most: int) -> Work:
    """Return pages with the regions that the CPU layout finds on them."""
    pages = samples(folder)
    step = max(1, len(pages) // most)
    pages = pages[::step][:most]
    layouts = {layout.page_id: layout.regions for layout in CpuLayout(threads=1).detect(pages)}
    return [(Page(page.page_id, page.data), layouts[page.page_id]) for page in pages]


class Clock:
    """A clock of thread CPU time by stage."""

    def __init__(self) -> None:
        self.spent: TimeCost = defaultdict(float)
        self._last = time.thread_time()

    def mark(self, stage: str) -> None:
        now = time.thread_time()
        self.spent[stage] += now - self._last
        self._last = now


def ours(page: Page, regions: Sequence[Region], clock: Clock, cache: AnswerCache | None = None) -> None:
    image = Page(page.page_id, page.data).image
    clock.mark("decode")
    read = [region for region in regions if region.task in plain_way.READ]
    pixels = [(region, pack_pixels(region_pixels(image, region))) for region in read]
    pixels = [(region, crop) for region, crop in pixels if has_ink(crop)]
    clock.mark("crop")
    if cache is not None:
        cache.find(region_key(crop, "benchmark") for _, crop in pixels)
        clock.mark("look up")
    pictures = [(region, region_image(crop)) for region, crop in pixels]
    clock.mark("resize and encode")
    for region, crop in pictures:
        room, _ = answer_room(region.task, crop.tokens, 16384)
        request_body("glm-ocr", plain_way.PROMPTS[region.task], crop, room, {"temperature": 0.0})
    clock.mark("request")


def plain(page: Page, regions: Sequence[Region], clock: Clock) -> None:
    image = plain_way.decoded(bytes(page.data))
    clock.mark("decode")
    read = [region for region in regions if region.task in plain_way.READ]
    crops = [(region, plain_way.crop(image, region)) for region in read]
    clock.mark("crop")
    pictures = [(region, plain_way.jpeg(crop)) for region, crop in crops]
    clock.mark("resize and encode")
    for region, crop in pictures:
        plain_way.request("glm-ocr", region.task, crop, {"temperature": 0.0, "max_tokens": 8192})
    clock.mark("request")


def least(way: Callable[[Page, Sequence[Region], Clock], None], work: Work, best: TimeCost) -> TimeCost:
    clock = Clock()
    for page, regions in work:
        way(page, regions, clock)
    return clock.spent if not best or sum(clock.spent.values()) < sum(best.values()) else best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "samples" / "corpus")
    parser.add_argument("--pages", type=int, default=12)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    work = load(arguments.folder, arguments.pages)
    found: dict[str, TimeCost] = {"plain": {}, "ours": {}, "ours, looking up": {}}
    with TemporaryDirectory() as folder, ThreadPoolExecutor(1) as thread:
        cache = AnswerCache(Path(folder), size=1)
        ways = {"plain": plain, "ours": ours, "ours, looking up": partial(ours, cache=cache)}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                found[name] = thread.submit(least, way, work, found[name]).result()
        cache.close()
    stages = ["decode", "crop", "look up", "resize and encode", "request"]
    print(f"{len(work)} pages of {arguments.folder}, {sum(len(r) for _, r in work) / len(work):.1f} regions each")
    print(f"CPU ms a page      {''.join(f'{stage:>19}' for stage in [*stages, 'together'])}")
    for name, spent in found.items():
        times = [spent.get(stage, 0.0) for stage in stages]
        cells = "".join(f"{1000 * t / len(work):19.1f}" for t in [*times, sum(times)])
        print(f"{name:<19}{cells}")
    share = sum(found["ours"].values()) / sum(found["plain"].values())
    print(f"ours is {share:.2f} of the plain way")


if __name__ == "__main__":
    main()
