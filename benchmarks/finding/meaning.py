"""Measure how well searches find what is asked in other words than those of the page.

    python -m benchmarks.finding.meaning HOME questions.jsonl

HOME is a home whose tables are made. The questions beside this file are about the samples (`samples.jsonl`) and about
57 pages of GNOME's Korean help (`gnome_help.jsonl`); none repeats the words of the page that answers it. The weights of
a fusion may be chosen on the odd ones, so the even ones are reported on their own.
"""

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import kopub
from kopub.search.options import Mode

MODES = (Mode.BM25, Mode.TEXT, Mode.MEANING, Mode.FUSION)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("questions", type=Path, nargs="+")
    options = parser.parse_args()
    questions = [json.loads(line) for path in options.questions for line in path.read_text("utf-8").splitlines()]
    groups = {"all": questions, "unseen half": questions[1::2]}
    for language in sorted({question["language"] for question in questions}):
        groups[language] = [question for question in questions if question["language"] == language]
    print(f"{'nDCG@10':10}" + "".join(f"{f'{name} ({len(of)})':>18}" for name, of in groups.items()))
    corpus = kopub.open(options.home)
    for mode in MODES:
        gains = {question["id"]: gain(corpus, question, mode) for question in questions}
        values = (mean(gains[question["id"]] for question in of) for of in groups.values())
        print(f"{mode:10}" + "".join(f"{value:18.3f}" for value in values))


def gain(corpus: kopub.Corpus, question: dict, mode: Mode) -> float:
    """Return nDCG@10 of a question that one page answers."""
    pages: Sequence[str] = [hit.page.id for hit in corpus.search(question["query"], limit=10, mode=mode.value)]
    answers = [rank for rank, page in enumerate(pages) if page in question["ground_truth"]]
    return 1 / math.log2(answers[0] + 2) if answers else 0.0


if __name__ == "__main__":
    main()
