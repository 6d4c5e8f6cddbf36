"""Make the known answers of the samples: `python -m tools.samples_gold [--check]`.

It makes `samples/gold.parquet`, which the platform reads, from the texts and facts in `samples/gold/`.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from kopub.evaluation.benchmark import Benchmark, Fact, FactList, PageText, Sample
from kopub.evaluation.benchmarks.facts import KOREAN, parse
from kopub.evaluation.benchmarks.texts import TEXTS
from kopub.evaluation.home import KnownAnswers, write_gold
from kopub.folders import SAMPLES
from kopub.pages.manifest import GOLD

FOLDER = SAMPLES / "gold"
_SOURCE = "samples/README.md"
_LICENCE = "those of the pages"


def answers() -> list[KnownAnswers]:
    """Return the texts of the pages and the facts about them, as two benchmarks."""
    texts = [_sample(path.stem, PageText(path.read_text("utf-8"))) for path in sorted(FOLDER.glob("*.txt"))]
    facts: dict[str, list[Fact]] = {}
    for line in (FOLDER / "facts.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        page_id = f"{record['pdf'].removesuffix('.pdf')}_{record['page']}"
        facts.setdefault(page_id, []).append(parse(record, "facts"))
    known = [_sample(page_id, FactList(tuple(of_page))) for page_id, of_page in sorted(facts.items())]
    benchmarks = [
        Benchmark(TEXTS.name, "samples", _LICENCE, _SOURCE, texts),
        Benchmark(KOREAN.name, "samples", "Apache-2.0", _SOURCE, known),
    ]
    return [KnownAnswers(benchmark, len(benchmark.samples)) for benchmark in benchmarks]


def is_current() -> bool:
    """Return whether the file agrees with the texts and facts."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / GOLD
        write_gold(made, answers())
        return made.read_bytes() == (SAMPLES / GOLD).read_bytes()


def _sample(page_id: str, gold: PageText | FactList) -> Sample:
    return Sample(page_id, page_id.rpartition("_")[0], None, {}, gold)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="say whether it is current, and write nothing")
    if not parser.parse_args().check:
        write_gold(SAMPLES / GOLD, answers())
        return 0
    if not is_current():
        print(f"samples/{GOLD} is not what samples/gold/ says: run python -m tools.samples_gold")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
