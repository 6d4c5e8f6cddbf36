"""Measure the pages a second of each stage alone, with a warm server, as JSON.

    KOPUB_PROFILE=... python -m benchmarks.whole_graph.stage_rates --pages N OUT.json

For a stage with its model on a server, it is the server's rate for requests made beforehand. For every other stage, it
is the rate of the engine alone, without Dagster and the store. The first and the last part of the work are left out.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.servers.embedding import ceiling as embedding_ceiling
from benchmarks.servers.embedding import operations
from benchmarks.servers.recognition import ceiling as recognition_ceiling
from benchmarks.servers.recognition import ready_made
from benchmarks.whole_graph.cases import ALONE
from benchmarks.whole_graph.grid_engines import CHARACTERS, grid, made_up_text
from benchmarks.whole_graph.setup import OWN_PAGES, unique_pages
from kopub.config.settings import ROOT, Settings, load_settings
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.profiling.timeline import steady_rate


def alone(made: Iterable[Any]) -> float:
    """Return an engine's results a second, without the first and the last."""
    counts = [(time.monotonic(), 0.0)]
    counts += [(time.monotonic(), float(count)) for count, _ in enumerate(made, start=1)]
    return steady_rate(counts) or len(counts) / max(1e-9, time.monotonic() - counts[0][0])


def layout_rate(settings: Settings, pages: Sequence[Page]) -> tuple[float, dict[str, Sequence[Region]]]:
    """Return the pages a second once the model runs, and the regions of the pages."""
    first = max(1, getattr(settings.layout, "batch_size", 1))
    list(settings.layout.detect(pages[:first]))
    found: dict[str, Sequence[Region]] = {}
    stamps = []
    for layout in settings.layout.detect(Page(page.page_id, page.data) for page in pages):
        found[layout.page_id] = layout.regions
        stamps.append(time.monotonic())
    # Pages come in batches, so the time is from the end of the first batch to the end of the last.
    begin = min(first, len(stamps)) - 1
    seconds = stamps[-1] - stamps[begin]
    return ((len(stamps) - 1 - begin) / seconds if seconds else 0.0), found


def recognition_rate(settings: Settings, pages: Sequence[Page], regions: dict[str, Sequence[Region]]) -> float:
    engine: Any = settings.recognition
    work = [(page, list(regions[page.page_id])) for page in pages]
    if hasattr(engine, "server"):
        # This is the limit of an answer if its length is not fixed.
        sampling = {"max_tokens": 4096, **engine.sampling}
        jobs = ready_made(work, engine, sampling)
        rate = recognition_ceiling(jobs, engine.server, engine.slots, engine.processes)
        return rate.steady[0] * len(jobs) / max(1, sum(map(len, jobs)))
    return alone(engine.read((Page(page.page_id, page.data), each) for page, each in work))


def image_vector_rate(settings: Settings, pages: Sequence[Page]) -> float:
    engine: Any = settings.embedding
    if not hasattr(engine, "server"):
        return alone(engine.embed_images(Page(page.page_id, page.data) for page in pages))
    from concurrent.futures import ThreadPoolExecutor

    from kopub.embedding.qwen3_vl_handlers import image_request
    from kopub.embedding.qwen3_vl_inputs import PATCH, page_image

    most = engine.max_pixels // PATCH**2
    with ThreadPoolExecutor() as pool:
        images = list(pool.map(lambda page: page_image(bytes(page.data), most), pages))
    jobs = [
        (image_request(engine.server.checkpoint, engine.instruction, each), operations(each.tokens, each.tokens))
        for each in images
    ]
    return embedding_ceiling("page vectors", jobs, _with_requests(engine)).steady[0]


def text_vector_rate(settings: Settings, texts: Sequence[str]) -> float:
    engine: Any = settings.embedding
    named = [(str(number), text) for number, text in enumerate(texts)]
    if not hasattr(engine, "server"):
        return alone(engine.embed_texts(named))
    from kopub.embedding.qwen3_vl_handlers import text_request
    from kopub.embedding.qwen3_vl_inputs import Chunker

    chunker = Chunker(engine.tokenizer_file(), engine.instruction, engine.max_tokens)
    prompts = [ids for _, text in named for ids in chunker.prompts(text)]
    jobs = [(text_request(engine.server.checkpoint, ids), operations(0, len(ids))) for ids in prompts]
    return embedding_ceiling("texts", jobs, _with_requests(engine)).steady[0] * len(texts) / len(jobs)


def _with_requests(engine: Any) -> Any:
    """Return an engine with an explicit number of requests in flight.

    Profiles may leave the number to the engine.
    """
    return engine.model_copy(update={"in_flight": engine.slots})


def page_of_text(seed: str, characters: int) -> str:
    """Return a page's text as in `parsed_texts`, with `characters` characters a region."""
    return "\n\n".join(made_up_text(f"{seed} {region.index}", characters) for region in grid())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--pages", type=int, default=OWN_PAGES)
    parser.add_argument("--source", type=Path, default=ROOT / "samples" / "corpus")
    parser.add_argument("--only", default=",".join(sorted(ALONE)))
    arguments = parser.parse_args()
    settings = load_settings()
    rates: dict[str, float] = {}
    pages = list(unique_pages(arguments.source, "own", arguments.pages))
    regions: dict[str, Sequence[Region]] = {page.page_id: grid() for page in pages}

    def measure(asset: str, rate: Callable[[], float]) -> None:
        if asset in arguments.only.split(","):
            started = time.monotonic()
            rates[asset] = rate()
            print(f"{asset}: {rates[asset]:.2f} pages/s by itself ({time.monotonic() - started:.0f} s)", flush=True)
            # The file is written after each stage, so that results are kept if time runs out.
            arguments.out.write_text(json.dumps(rates), "utf-8")

    def layout() -> float:
        rate, found = layout_rate(settings, pages)
        regions.update(found)
        return rate

    measure("layout_regions", layout)
    measure("ocr_results", lambda: recognition_rate(settings, pages, regions))
    measure("corpus_image_embeddings", lambda: image_vector_rate(settings, pages))
    characters = getattr(settings.recognition, "characters", CHARACTERS)
    texts = [page_of_text(f"own {number}", characters) for number in range(2 * arguments.pages)]
    measure("corpus_text_embeddings", lambda: text_vector_rate(settings, texts))


if __name__ == "__main__":
    main()
