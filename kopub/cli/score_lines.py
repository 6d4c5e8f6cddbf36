"""Formats scores, and scripts that are not read, as lines and JSON values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kopub.corrections.gold import has_known_answers
from kopub.errors import counted
from kopub.evaluation import reading_scores as reading
from kopub.search import metrics as finding
from kopub.search.scores import stored_scores
from kopub.states import phrase
from kopub.store.corpus_tables import OCR_SCORES, SCORES, TABLES
from kopub.texts.text_quality import unexpected_scripts

if TYPE_CHECKING:
    from kopub.config.settings import Settings
    from kopub.search.scores import ScoreChange
    from kopub.store.table_source import IsOfCorpus

_SHOWN = {"ndcg@10": "nDCG@10", "recall@1": "recall@1", "recall@5": "recall@5"}
"""Metrics of retrieval shown on a terminal, with their readable names."""


@dataclass(frozen=True, slots=True)
class _Scores:
    """A table of scores, and whether it belongs to the present rows."""

    table: pa.Table
    is_current: bool


def score_changes(
    settings: "Settings", is_of_corpus: "IsOfCorpus"
) -> "tuple[Sequence[ScoreChange], Sequence[ScoreChange]]":
    """Return the changes of the headline scores since the previous run.

    Empty if they do not belong to the present tables.
    """
    read, searched = _reading_scores(settings, is_of_corpus), _retrieval_scores(settings, is_of_corpus)
    return (
        reading.headline_changes(read.table) if read and read.is_current else [],
        finding.headline_changes(searched.table) if searched and searched.is_current else [],
    )


def retrieval_lines(settings: "Settings", is_of_corpus: "IsOfCorpus") -> tuple[Sequence[str], list[str]]:
    """Return lines on how well queries find pages, and what got worse.

    Scores of tables that belong to another corpus, or were replaced since, are not shown.
    """
    scores = _retrieval_scores(settings, is_of_corpus)
    if scores is None:
        return [], []
    if not scores.is_current:
        return ["finding  not measured on the tables as they are now: kopub run measures it"], []
    lines: list[str] = []
    for retriever, means in finding.headline(scores.table).items():
        shown = ", ".join(f"{name} {means[metric]:.3f}" for metric, name in _SHOWN.items())
        lines.append(phrase("finding  by {by}: {scores}", retriever, shown))
    return lines, finding.significant_drops(scores.table)


def reading_lines(settings: "Settings", is_of_corpus: "IsOfCorpus") -> tuple[Sequence[str], list[str]]:
    """Return lines on how well known pages are read, and what got worse."""
    scores = _reading_scores(settings, is_of_corpus)
    if scores is None:
        return [], []
    if not scores.is_current:
        return ["reading  not measured on the tables as they are now: kopub run measures it"], []
    form = "reading  {benchmark}: {metric} {value:.3f} over {samples:,} samples{lost}"
    lines: list[str] = []
    for row in reading.headline(scores.table):
        lost = phrase(", {count:,} of them not read", row["lost"]) if row["lost"] else ""
        lines.append(phrase(form, *(row[name] for name in ("benchmark", "metric", "value", "samples")), lost))
    return lines, reading.significant_drops(scores.table)


def _retrieval_scores(settings: "Settings", is_of_corpus: "IsOfCorpus") -> _Scores | None:
    if (scores := stored_scores(settings.store, SCORES)) is None:
        return None
    return _Scores(
        scores, finding.HISTORY.is_of_tables_now(settings.store, settings.corpus.manifest.keys, is_of_corpus)
    )


def _reading_scores(settings: "Settings", is_of_corpus: "IsOfCorpus") -> _Scores | None:
    if (scores := stored_scores(settings.store, OCR_SCORES)) is None:
        return None
    if not has_known_answers(settings.corpus, settings.store):
        return None
    return _Scores(scores, reading.are_of_readings_now(settings.store, settings.corpus.manifest.keys, is_of_corpus))


def retrieval_values(settings: "Settings", is_of_corpus: "IsOfCorpus") -> dict[str, Any] | None:
    """Return the means by retriever and metric, and the drops; None if unmeasured."""
    scores = _retrieval_scores(settings, is_of_corpus)
    if scores is None:
        return None
    means, drops = finding.headline(scores.table), finding.significant_drops(scores.table)
    return {"current": scores.is_current, "means": means, "drops": drops}


def reading_values(settings: "Settings", is_of_corpus: "IsOfCorpus") -> dict[str, Any] | None:
    """Return the main scores of the benchmarks, and the drops; None if unmeasured."""
    scores = _reading_scores(settings, is_of_corpus)
    if scores is None:
        return None
    columns = ("benchmark", "metric", "value", "samples", "lost")
    means = [{column: row[column] for column in columns} for row in reading.headline(scores.table)]
    return {"current": scores.is_current, "means": means, "drops": reading.significant_drops(scores.table)}


@dataclass(frozen=True, slots=True)
class ScriptNotRead:
    """A script of the corpus that the profile does not read.

    `do` says what to add.
    """

    script: str
    pages: int
    do: str

    @property
    def says(self) -> str:
        return phrase(
            "{pages} mainly in {script}, which the profile does not read", counted(self.pages, "page"), self.script
        )

    @property
    def line(self) -> str:
        return phrase("{finding}: {remedy}", self.says, self.do)


def scripts_not_read(settings: "Settings", is_of_corpus: "IsOfCorpus", on_objects: bool = False) -> list[ScriptNotRead]:
    """Return the scripts that the profile does not read, most pages first.

    On object storage each table costs two requests, so it is read there only with `on_objects`.
    """
    if not settings.store.local and not on_objects:
        return []
    name, recognition = TABLES.texts.name, settings.recognition
    scripts: list[str | None] = []
    for key in settings.corpus.manifest.keys:
        if settings.store.has(name, key) and is_of_corpus(name, key):
            table = settings.store.read(name, key, ["script"])
            # A table from an older release has no script.
            if table.num_columns:
                scripts += table["script"].to_pylist()
    counts = unexpected_scripts(scripts, recognition.expected_scripts)
    return [ScriptNotRead(script, pages, recognition.remedy(script)) for script, pages in counts.most_common()]
