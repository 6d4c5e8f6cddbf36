"""The rendering of an evaluation as one HTML file, worst samples first, gold beside reading."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kopub.diff.html import EmbeddedPicture, mark_differences, rendered
from kopub.errors import counted, visible
from kopub.evaluation.benchmark import (
    MISSING,
    OWN_PAGES,
    Answers,
    Benchmark,
    ElementList,
    FactList,
    Formula,
    LineText,
    PageText,
    Sample,
    SampleReading,
    SampleScore,
    TableHtml,
)
from kopub.evaluation.benchmarks.texts import known_text
from kopub.evaluation.characters import composed
from kopub.evaluation.metrics import METRICS, PairedChange
from kopub.evaluation.tables import CellGrid, tables_of
from kopub.search.scores import FEWEST

_TEMPLATE = Path(__file__).with_name("report.html.jinja")
_LISTED = 2000
"""Most samples that are listed."""
_CHARACTERS = 3000
"""Most characters shown of a text: a page of small print."""
_TABLES, _CELLS = 6, 600
_CELL, _NAME = 80, 60


@dataclass(frozen=True, slots=True)
class Side:
    """One profile: its name, all its readings, and their scores."""

    profile: str
    readings: Mapping[str, SampleReading]
    scores: Sequence[SampleScore]
    means: Sequence[Mapping[str, Any]]
    """Rows of the table OCR_SCORES over all samples."""
    changes: Mapping[str, PairedChange] = field(default_factory=dict[str, PairedChange])
    """The paired difference from the first side over all samples, by metric; empty for the first side."""


def render(
    benchmark: Benchmark,
    of: int,
    sides: Sequence[Side],
    headline: Sequence[str],
    picture: Callable[[str], EmbeddedPicture | None],
    most: int,
) -> str:
    """Return the page.

    The worst `most` samples have pictures and texts. All text from a benchmark or a reader is escaped. `headline` are
    the metrics that order the samples, by the worst of the sides. `picture` is called only for the worst samples, and
    may return None.
    """
    values = [values_of(side.scores) for side in sides]
    ranked = worst_first(benchmark.samples, values, headline)
    metrics = list(headline)
    by_metric: dict[str, list[Mapping[str, Any] | None]] = {}
    for at, side in enumerate(sides):
        for row in side.means:
            by_metric.setdefault(row["metric"], [None] * len(sides))[at] = row
    listed: list[dict[str, Any]] = []
    for sample in ranked[:_LISTED]:
        figures: list[list[str]] = []
        states: list[str] = []
        for side, of_side in zip(sides, values, strict=True):
            figures.append([_figure(of_side.get(sample.id, {}).get(name)) for name in metrics])
            reading = side.readings.get(sample.id)
            # A page that is ok says nothing.
            state = "missing" if reading is None or reading.state is None else str(reading.state)
            states.append("" if state == "ok" else state)
        listed.append({"id": sample.id, "values": figures, "states": states})
    worst: list[dict[str, Any]] = []
    for sample in ranked[:most]:
        compared: list[dict[str, Any]] = []
        for side, of_side in zip(sides, values, strict=True):
            texts = compare_sample(sample, side.readings.get(sample.id), of_side.get(sample.id, {}))
            compared.append({"profile": side.profile, **texts})
        slices = ", ".join(f"{name}: {value}" for name, value in sorted(sample.slices.items()))
        asked = questions_of(sample)
        worst.append(
            {"id": sample.id, "slices": slices, "picture": picture(sample.id), "asked": asked, "sides": compared}
        )
    return rendered(
        _TEMPLATE,
        benchmark=benchmark,
        own_pages=OWN_PAGES,
        of=of,
        sides=sides,
        headline=metrics,
        means=[{"metric": metric, "says": METRICS[metric].says, "rows": rows} for metric, rows in by_metric.items()],
        verdicts=[line for side in sides[1:] for line in _verdicts(sides[0].profile, side, headline)],
        listed=listed,
        worst=worst,
        samples=len(benchmark.samples),
    )


def worst_first(
    samples: Sequence[Sample], values: Sequence[Mapping[str, Mapping[str, SampleScore]]], headline: Sequence[str]
) -> list[Sample]:
    """Return the samples, ordered by the worst of the sides' headline metrics.

    `values` are the scores of each side.
    """
    farthest: dict[str, float] = {}
    for sample in samples:
        # The distance of a metric is that from its best value.
        distances = [0.0]
        for of_side in values:
            scores = of_side.get(sample.id, {})
            for name in headline:
                if name in scores and (value := scores[name].value) is not None:
                    distances.append(value if METRICS[name].lower_is_better else 1 - value)
        farthest[sample.id] = max(distances)
    return sorted(samples, key=lambda sample: (-farthest[sample.id], sample.id))


def values_of(scores: Sequence[SampleScore]) -> dict[str, dict[str, SampleScore]]:
    """Return the scores by sample and metric."""
    by_sample: dict[str, dict[str, SampleScore]] = {}
    for score in scores:
        if score.sample is not None:
            by_sample.setdefault(score.sample, {})[score.metric] = score
    return by_sample


def _verdicts(first: str, side: Side, headline: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield a sentence comparing two profiles by each headline metric, and whether to warn."""
    for metric in headline:
        if (change := side.changes.get(metric)) is None:
            continue
        gain = -change.change if METRICS[metric].lower_is_better else change.change
        is_sure = change.documents >= FEWEST and not change.low <= 0 <= change.high
        verdict = "does not differ significantly from"
        if change.worse or (is_sure and gain > 0):
            verdict = "is worse than" if change.worse else "is better than"
        figures = f"{change.change:+.4f}, 95 % interval {change.low:+.4f} to {change.high:+.4f}"
        pairs = f"paired over {counted(change.samples, 'sample')}"
        names = visible(side.profile, _NAME), visible(first, _NAME)
        yield f"{metric}: {names[0]} {verdict} {names[1]} ({figures}, {pairs})", change.worse


def _figure(score: SampleScore | None) -> str:
    return "" if score is None else "skipped" if score.value is None else f"{score.value:.3f}"


def compare_sample(sample: Sample, reading: SampleReading | None, scores: Mapping[str, SampleScore]) -> dict[str, Any]:
    """Return a sample as values for a template: gold beside reading, differences marked."""
    gold = _gold_text(sample)
    reading = reading or MISSING
    text = composed(reading.text or reading.markdown)
    texts = ([], []) if gold is None else mark_differences(gold, text, _CHARACTERS)
    if gold is not None and not any(other for part in texts for _, other in part):
        texts = ([(visible(gold, _CHARACTERS), False)], [(visible(text, _CHARACTERS), False)])
    return {
        "lost": reading.lost,
        "reason": reading.why_lost if reading.lost else "",
        "figures": [(name, _figure(score)) for name, score in scores.items()],
        "notes": [visible(note, 300) for score in scores.values() for note in score.notes][:_LISTED],
        "texts": texts,
        "read": visible(text, _CHARACTERS) if gold is None else "",
        "tables": _tables(sample, reading),
    }


def _gold_text(sample: Sample) -> str | None:
    """Return the gold as text to compare, or None for a table, questions or facts."""
    match sample.gold:
        case PageText() as gold:
            return composed(known_text(gold))
        case LineText(text):
            return composed(text)
        case Formula(latex):
            return latex
        case TableHtml():
            return None
        case ElementList(elements):
            texts: list[str] = []
            ordered = [element for element in elements if not element.ignored and element.order is not None]
            for element in sorted(ordered, key=lambda element: element.order or 0):
                tables = tables_of(element.html, pipes=False)
                rows: list[str] = []
                for table in tables:
                    rows += map("\t".join, _grid(table))
                texts.append(element.text or element.latex or "\n".join(rows))
            return "\n\n".join(texts)
        case _:
            return None


def questions_of(sample: Sample) -> list[str]:
    """Return the questions or facts of a sample, one line each, if it has any."""
    match sample.gold:
        case Answers(questions):
            return [visible(f"{q.question} = {' | '.join(q.answers)}", 300) for q in questions]
        case FactList(facts):
            lines: list[str] = []
            for fact in facts:
                fields = ", ".join(f"{name} {value}" for name, value in fact.fields.items())
                lines.append(visible(f"{fact.id} {fact.type}: {fields}", 300))
            return lines
        case _:
            return []


def _tables(sample: Sample, reading: SampleReading) -> list[dict[str, Any]]:
    """Return the tables of the gold beside those that were read, with differing cells marked."""
    match sample.gold:
        case TableHtml(html):
            gold = [html]
        case ElementList(elements):
            gold = [element.html for element in elements if element.html and not element.ignored]
        case _:
            return []
    wanted: list[CellGrid] = []
    for html in gold:
        wanted += tables_of(html, pipes=False)[:1]
    read = tables_of(reading.markdown, pipes=False)
    pairs = []
    for at in range(min(_TABLES, max(len(wanted), len(read)))):
        sides = [_grid(tables[at]) if at < len(tables) else [] for tables in (wanted, read)]
        pairs.append({"gold": _against(sides[0], sides[1]), "read": _against(sides[1], sides[0])})
    return pairs


def _grid(table: CellGrid) -> list[list[str]]:
    """Return the texts by row and column, with spanning cells at their upper left corner."""
    rows = max((row for row, _ in table.texts), default=-1) + 1
    columns = max((column for _, column in table.texts), default=-1) + 1
    if rows * columns > _CELLS:
        rows = max(1, _CELLS // max(1, columns))
    return [[table.texts.get((row, column), "") for column in range(columns)] for row in range(rows)]


def _against(grid: list[list[str]], other: list[list[str]]) -> list[list[tuple[str, bool]]]:
    rows: list[list[tuple[str, bool]]] = []
    for row, texts in enumerate(grid):
        cells: list[tuple[str, bool]] = []
        for column, text in enumerate(texts):
            opposite = other[row][column] if row < len(other) and column < len(other[row]) else None
            differs = opposite is None or "".join(opposite.split()) != "".join(text.split())
            cells.append((visible(text, _CELL), differs))
        rows.append(cells)
    return rows
