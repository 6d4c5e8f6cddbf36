"""Measure DeepSeek-OCR on whole pages: the layout step, and the host's preparation.

    python -m benchmarks.servers.whole_pages --model deepseek-ai/DeepSeek-OCR --revision COMMIT --profile PROFILE.yaml

The server is the profile's `recognition.server`, or the one at `--url`; measured are pages a second. Random weights
(`--flag=--load-format=dummy`) take as long as real ones: answers have `--tokens` tokens, and are rubbish, so that
without a cap every page is also read in halves, which is a second row. Every page is unique. Rates are from the tokens
that the server made after the first 15 % and before the last 15 %, because pages that begin together end together.
"""

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from benchmarks.servers.recognition import cpu_seconds, samples, server_arguments, server_fields
from benchmarks.servers.recognition import unique_pages as stamped
from benchmarks.servers.steady import lasting_rate, looks, require_enough
from benchmarks.whole_graph.grid_engines import grid
from kopub.pages.page import Page
from kopub.recognition.deepseek_layout.detector import DeepSeekOcrLayout
from kopub.recognition.deepseek_layout.reader import LayoutJob, LayoutReader
from kopub.vllm.endpoint import Endpoint
from kopub.vllm.server import VLLMServer


def unique_pages(originals: Sequence[Page], count: int, name: str) -> list[Page]:
    """Return copies of pages, of which no two are alike."""
    return [page for page, _ in stamped([(page, grid()) for page in originals], count, name)]


def prepared(pages: Sequence[Page], detector: DeepSeekOcrLayout) -> None:
    """Measure how fast the host prepares pages without a server, one thread per core."""
    reader = LayoutReader(detector._settings())
    started = time.perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda page: reader.prepare(LayoutJob(0, page.page_id, bytes(page.data))), pages):
            pass
    seconds = time.perf_counter() - started
    print(f"{'prepared, a thread for each core':<40}{len(pages):6d}{len(pages) / seconds:9.2f}")


def read(name: str, pages: Sequence[Page], detector: DeepSeekOcrLayout, endpoint: Endpoint) -> None:
    """Measure the whole step: decode, ink, picture, answer, regions."""
    states: dict[str, int] = {}
    spent = cpu_seconds()
    with looks(endpoint, "vllm:generation_tokens_total") as looked:
        for layout in detector.detect(Page(page.page_id, page.data) for page in pages):
            states[layout.state] = states.get(layout.state, 0) + 1
    spent = cpu_seconds() - spent
    figures: dict[str, Any] = dict(detector.report())
    each = [figures.get(figure, 0.0) / len(pages) for figure in ("requests", "image_tokens", "answer_tokens")]
    rate = lasting_rate(looked) / ((looked[-1][0] - looked[0][0]) / len(pages))
    told = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
    print(
        f"{name:<40}{len(pages):6d}{rate:9.2f}{1000 * spent / len(pages):12.1f}"
        f"{each[0]:10.2f}{each[1]:14.0f}{each[2]:15.0f}  {told}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    server_arguments(parser)
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("--in-flight", type=int, default=192, help="pages for each GPU, at most a third of --count")
    parser.add_argument("--warm", type=int, default=40, help="pages read before anything is measured")
    parser.add_argument("--only", default="host,whole,halves", help="which rows to measure")
    parser.set_defaults(tokens=1500)
    arguments = parser.parse_args()
    server = VLLMServer(**server_fields(arguments))

    def detector(halves_share: float) -> DeepSeekOcrLayout:
        return DeepSeekOcrLayout(
            server=server,
            sampling={"ignore_eos": True, "max_tokens": arguments.tokens},
            in_flight=arguments.in_flight,
            processes=arguments.processes,
            halves_share=halves_share,
        )

    require_enough(arguments.count, detector(0.0).slots)
    originals, rows = samples(arguments.pages), arguments.only.split(",")
    pages = unique_pages(originals, arguments.count, "pages")
    head = f"{'':<40}{'pages':>6}{'pages/s':>9}{'CPU ms each':>12}{'requests':>10}{'image tokens':>14}"
    print(f"{head}{'answer tokens':>15}  states")
    if "host" in rows:
        prepared(pages, detector(0.0))
    with server.lease() as endpoint:
        if arguments.warm:
            list(detector(0.0).detect(unique_pages(originals, arguments.warm, "warm")))
        for row, name, share in (("whole", "one request a page", 0.0), ("halves", "and every page in halves", 1.0)):
            if row in rows:
                read(name, pages, detector(share), endpoint)


if __name__ == "__main__":
    main()
