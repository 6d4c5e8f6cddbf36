"""Measure Qwen3-VL-Reranker on a GPU: pairs a second, and seconds a question.

    python -m benchmarks.servers.reranking --model Qwen/Qwen3-VL-Reranker-2B --revision COMMIT --profile h200_search

Pairs a second depend on what the model sees of a page; a question is about 50 pages. Random weights
(`--flag=--load-format=dummy`) take as long as real ones. Each pair is unique, and the server's own counters must show
no cache hit. The questions are asked one by one, each about its own pages, by client processes that are running, as in
the reading room from the third question on.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any, get_args

from benchmarks.servers.embedding import STAMPED, page_texts
from benchmarks.servers.recognition import changed_fields, cpu_seconds, hits, samples, unique_pages
from kopub.config.profile_files import find_profile
from kopub.reranking.base import Seen
from kopub.reranking.pairs import Pair
from kopub.reranking.qwen3_vl import Qwen3VLReranker
from kopub.vllm.server import VLLMServer

_NUMBERS = count()
_BOOT_SECONDS = 8.0
"""Seconds in which client processes start and import PyTorch."""
_QUESTION = "{}. 2023년 하반기 지역별 예산 집행률이 가장 높은 기관은 어디인가?"


def unique_pairs(sees: Seen, pictures: Sequence[bytes], texts: Sequence[str]) -> Iterator[Pair]:
    """Yield a pair for each picture, with a text that no other pair has."""
    for at, picture in enumerate(pictures):
        number = next(_NUMBERS)
        yield Pair(
            f"{number}",
            _QUESTION.format(number),
            "" if sees == "image" else f"{number} {texts[at % len(texts)]}",
            None if sees == "text" else picture,
        )


def score_all(reranker: Qwen3VLReranker, pairs: Sequence[Pair]) -> float:
    """Return the seconds that scoring takes. Raises `RuntimeError` for a pair without a score."""
    began = time.monotonic()
    for made in reranker.score(pairs):
        if made.score is None:
            raise RuntimeError(f"pair {made.id}: {made.reason}")
    return time.monotonic() - began


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--revision", help="commit of a Hub repository")
    parser.add_argument("--profile", default="h200_search", help="whose reranking section is measured")
    parser.add_argument("--flag", action="append", default=[], help="further argument of the server, as --flag=--x")
    parser.add_argument("--server", action="append", default=[], help="field of VLLMServer, as max_num_seqs=64")
    parser.add_argument("--pages", type=Path, default=Path("samples/corpus"), help="folder of Arrow shards")
    parser.add_argument("--count", type=int, default=600, help="pairs of each kind")
    parser.add_argument("--questions", type=int, default=5, help="questions of each kind, over 50 pages each")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    section: dict[str, Any] = dict(find_profile(arguments.profile).sections["reranking"])
    for name in ("engine", "model"):
        section.pop(name, None)
    server = {
        **section.pop("server"),
        "model": arguments.model,
        "revision": arguments.revision,
        **changed_fields(arguments.server),
    }
    server["extra_flags"] = [*server.get("extra_flags", []), *arguments.flag]
    reranker = Qwen3VLReranker(**section, server=VLLMServer(**server))
    originals = [(page, [STAMPED]) for page in samples(arguments.pages)]
    texts = page_texts(arguments.pages)
    asked = reranker.depth * arguments.questions
    pictures = [bytes(page.data) for page, _ in unique_pages(originals, arguments.count + asked, "pages")]
    began = time.monotonic()
    with reranker.server.lease() as endpoint:
        print(f"the server is ready after {time.monotonic() - began:.0f} s")
        print(f"{'sees':<8}{'pairs':>7}{'pairs/s':>9}{'CPU ms':>8}{'hits':>6}{'s a question':>14}")
        for sees in get_args(Seen):
            engine = reranker.model_copy(update={"sees": sees})
            score_all(engine, list(unique_pairs(sees, pictures[:48], texts)))
            before, spent = hits(endpoint), cpu_seconds()
            pairs = list(unique_pairs(sees, pictures[: arguments.count], texts))
            took = score_all(engine, pairs)
            each, found = 1000 * (cpu_seconds() - spent) / len(pairs), hits(endpoint) - before
            rest = iter(pictures[arguments.count :])
            waits = []
            for _ in range(arguments.questions):
                engine.boot()
                time.sleep(_BOOT_SECONDS)
                waits.append(score_all(engine, list(unique_pairs(sees, list(islice(rest, engine.depth)), texts))))
            print(
                f"{sees:<8}{len(pairs):>7}{len(pairs) / took:>9.1f}{each:>8.1f}{found:>6.0f}"
                f"{median(waits):>8.2f} ({min(waits):.2f} to {max(waits):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
