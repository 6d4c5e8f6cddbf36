"""How well the pages with known answers were read, the worst first."""

from collections.abc import Mapping
from typing import Any

from kopub_web.answers import Scored, other_evaluations
from kopub_web.asked import Asked, Shown
from kopub_web.elements.cards import page_card
from kopub_web.room import Room
from resources.evaluation.benchmark import Score
from resources.evaluation.metrics import METRICS

_WORST = 24


def evaluation(room: Room, asked: Asked) -> Shown:
    return Shown(
        "evaluation.html.jinja",
        {
            "room": "evaluation",
            "title": asked.t("room.evaluation"),
            "others": other_evaluations(room.settings.home),
            "benchmarks": [_benchmark(room, each, asked) for each in room.now.scored if each.values],
        },
    )


def _benchmark(room: Room, benchmark: Scored, asked: Asked) -> dict[str, Any]:
    corpus = room.now.corpus
    there = [sample.id for sample in benchmark.samples if sample.id in corpus.pages and sample.id in benchmark.values]
    return {
        "name": benchmark.name,
        "means": [_mean(row, asked) for row in benchmark.means if row["value"] is not None],
        "worst": [
            page_card(corpus.page(page_id), asked, why=_figures(benchmark, page_id, asked), view="answer")
            for page_id in there[:_WORST]
        ],
    }


def _mean(row: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    interval = "" if row["low"] is None else f"{row['low']:.3f} – {row['high']:.3f}"
    return {
        "metric": row["metric"],
        "better": row["better"],
        "says": asked.t.sentence(METRICS[row["metric"]].says) if row["metric"] in METRICS else ("", asked.t.language),
        "value": f"{row['value']:.3f}",
        "interval": interval,
        "samples": row["samples"],
        "lost": row["lost"],
    }


def _figures(benchmark: Scored, page_id: str, asked: Asked) -> str:
    scores = benchmark.values[page_id]
    shown = [scores[name] for name in benchmark.headline if name in scores] or list(scores.values())
    return ", ".join(f"{score.metric} {_value(score, asked)}" for score in shown)


def _value(score: Score, asked: Asked) -> str:
    return asked.t("evaluation.skipped") if score.value is None else f"{score.value:.3f}"
