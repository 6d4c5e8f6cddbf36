"""The home page: the size of the corpus, sample questions, and pages to look at."""

from typing import Any

from kopub.errors import KopubError
from kopub.states import State
from kopub.web.answers import explained, legend, other_evaluations
from kopub.web.elements import ListCard, counted_lists, document_cards, page_card
from kopub.web.requests import ViewRequest, ViewResponse
from kopub.web.room import CALLS, READING, Room

_QUESTIONS, _DOCUMENTS = 6, 12


def home(room: Room, request: ViewRequest) -> ViewResponse:
    now, t = room.now, request.t
    corpus = now.corpus
    scores: list[dict[str, Any]] = []
    metrics: list[str] = []
    is_evaluated = False
    for score in now.scores:
        metrics.append(score.metric)
        is_evaluated = is_evaluated or score.kind == READING
        scores.append(
            {
                "name": t(f"home.{score.kind}", benchmark=score.of, retriever=score.of, metric=score.metric),
                "value": score.value,
                "samples": score.samples,
            }
        )
    # These came with the corpus, and are taken from the first shards that have any.
    manifest = room.settings.corpus.manifest
    questions: list[str] = []
    try:
        for shard in manifest.keys if manifest.queries else ():
            questions += [query.query for query in room.settings.corpus.queries(shard)]
            if len(questions) >= _QUESTIONS:
                break
    except KopubError:
        # A changed file of questions should not prevent the page from being shown; a run reports it.
        questions = []
    notes = [t.sentence(note)[0] for note in corpus.notes]
    return ViewResponse(
        "home.html.jinja",
        {
            "corpus_name": room.name,
            "notes": notes if len(corpus.pages) else [t("home.nothing"), *notes],
            "documents_count": len(corpus.documents),
            "pages_count": len(corpus.pages),
            "lists": counted_lists(now, CALLS),
            "questions": list(dict.fromkeys(questions))[:_QUESTIONS],
            "scores": scores,
            "legend": legend(metrics, t),
            "evaluated": is_evaluated,
            "versions": len(now.replaced),
            "documents": document_cards(corpus.documents[:_DOCUMENTS], request),
            "tables": now.tables,
            "states": [state.value for state in State],
            "shards_count": len(manifest.keys),
        },
    )


_WORST = 24


def evaluation(room: Room, request: ViewRequest) -> ViewResponse:
    corpus = room.now.corpus
    benchmarks: list[dict[str, Any]] = []
    for benchmark in room.now.scored:
        if not benchmark.values:
            continue
        means: list[dict[str, Any]] = []
        for row in benchmark.means:
            if row["value"] is None:
                continue
            means.append(
                {
                    "metric": row["metric"],
                    "better": row["better"],
                    "says": explained(row["metric"], request.t),
                    "value": f"{row['value']:.3f}",
                    "interval": "" if row["low"] is None else f"{row['low']:.3f} – {row['high']:.3f}",
                    "samples": row["samples"],
                    "lost": row["lost"],
                }
            )
        worst: list[ListCard] = []
        for sample in benchmark.samples:
            if sample.id not in corpus.pages or sample.id not in benchmark.values:
                continue
            scores = benchmark.values[sample.id]
            figures: list[str] = []
            for score in [scores[name] for name in benchmark.headline if name in scores] or scores.values():
                value = request.t("evaluation.skipped") if score.value is None else f"{score.value:.3f}"
                figures.append(f"{score.metric} {value}")
            worst.append(page_card(corpus.page(sample.id), request, why=", ".join(figures), view="answer"))
            if len(worst) == _WORST:
                break
        benchmarks.append({"name": benchmark.name, "means": means, "worst": worst})
    return ViewResponse(
        "evaluation.html.jinja",
        {
            "room": "evaluation",
            "title": request.t("room.evaluation"),
            "others": other_evaluations(room.settings.home),
            "benchmarks": benchmarks,
        },
    )
