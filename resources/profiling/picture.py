"""A run as one HTML file with its timeline, without script or network."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from resources.gpu.sampler import GIB
from resources.profiling.observer import Counts, Observations
from resources.profiling.report import RunReport
from resources.profiling.timeline import Span

_TEMPLATE = Path(__file__).with_name("page.html.jinja")
_WIDTH = 1000.0
"""Units of the picture from the start of a run to its end."""
_HIGH = 60.0
"""Units of a curve's height."""
_POINTS = 800
"""Points of a curve: more are not seen."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of a lane: where it begins, how wide it is, what it is called, and more for a pointer."""

    x: float
    width: float
    label: str
    title: str
    kind: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture: bars, or a curve as points of a polygon.

    `most` is the value at its top.
    """

    label: str
    bars: Sequence[Bar] = ()
    curve: str = ""
    most: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the page: cells as text, the first column a name, the others numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """One run of the page: a title, sentences, its lanes with marks of time, its tables."""

    title: str
    lines: Sequence[str]
    lanes: Sequence[Lane]
    ticks: Sequence[tuple[float, str]]
    tables: Sequence[Table]


def render(title: str, sections: Sequence[Section]) -> str:
    """Return the page."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(title=title, sections=sections, width=_WIDTH, high=_HIGH)


def section(
    title: str, run: RunReport, observed: Observations, tables: Sequence[Table], lines: Sequence[str] = ()
) -> Section:
    """Return the picture of a run: its stages, shards, servers, cards and cores."""
    return Section(title, lines, list(_lanes(run, observed)), ticks(run.span), tables)


def ticks(span: Span) -> list[tuple[float, str]]:
    """Places and labels of marks of time, in seconds from the start."""
    step = next((step for step in (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600) if span.seconds / step <= 14), 3600.0)
    return [(_WIDTH * n * step / span.seconds, f"{n * step:g} s") for n in range(int(span.seconds / step) + 1)]


def _lanes(run: RunReport, observed: Observations) -> list[Lane]:
    span = run.span
    lanes = [Lane(each.stage.name, _stage_bars(each.stage.span, each.stage.shards, span)) for each in run.stages]
    for history in observed.servers.values():
        starts = [
            _bar(start, span, "starting", f"ready after {start.seconds:.0f} s", "start") for start in history.starts
        ]
        seen = [at for at, _ in history.requests if span.start <= at <= span.end]
        ready = [_bar(Span(seen[0], seen[-1]), span, "ready", history.model, "ready")] if seen else []
        lanes.append(Lane(f"server of {Path(history.model).name}", [bar for bar in (*starts, *ready) if bar.width > 0]))
        rate = _rates(history.requests, span)
        if rate:
            lanes.append(_curve("its answers a second", rate, span, unit="/s"))
    for number, card in enumerate(observed.cards):
        lanes.append(_curve(f"GPU {card.name} busy", observed.of_card(number), span, 1.0, "100 %"))
    if observed.cards:
        total = sum(card.memory for card in observed.cards) / GIB
        lanes.append(_curve("GPU memory", observed.memory, span, total, f"{total:.0f} GiB"))
    lanes.append(_curve("cores busy", observed.cores, span, 1.0, "100 %"))
    return lanes


def _stage_bars(span: Span, shards: dict[str, float], whole: Span) -> list[Bar]:
    """Return one bar for each shard, and one for what comes after the last."""
    bars, begin = [], span.start
    for shard, end in sorted(shards.items(), key=lambda item: item[1]):
        bars.append(_bar(Span(begin, end), whole, shard, f"{shard}: {end - begin:.1f} s", "stage"))
        begin = end
    bars.append(_bar(Span(begin, span.end), whole, "", f"{span.seconds:.1f} s in all", "after"))
    return [bar for bar in bars if bar.width > 0]


def _bar(span: Span, whole: Span, label: str, title: str, kind: str) -> Bar:
    start, end = max(span.start, whole.start), min(span.end, whole.end)
    scale = _WIDTH / whole.seconds
    width = max(0.0, end - start) * scale
    # A letter takes about seven units.
    return Bar((start - whole.start) * scale, width, label if width > 7 * len(label) else "", title, kind)


def _curve(label: str, counts: Counts, span: Span, most: float | None = None, top: str = "", unit: str = "") -> Lane:
    """Return an area under the curve of (time, value)."""
    inside = [(at, value) for at, value in counts if span.start <= at <= span.end]
    if not inside:
        return Lane(label)
    most = most or max(value for _, value in inside) or 1.0
    size = max(1, len(inside) // _POINTS)
    groups = [inside[at : at + size] for at in range(0, len(inside), size)]
    means = [(sum(at for at, _ in g) / len(g), sum(value for _, value in g) / len(g)) for g in groups]
    xs = [(_WIDTH * (at - span.start) / span.seconds, _HIGH * (1 - min(1.0, value / most))) for at, value in means]
    points = [(xs[0][0], _HIGH), *xs, (xs[-1][0], _HIGH)]
    return Lane(label, curve=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), most=top or f"{most:.0f}{unit}")


def _rates(counts: Counts, span: Span) -> Counts:
    """Answers a second between each count and the next, nothing where there was none."""
    inside = [(at, count) for at, count in counts if span.start <= at <= span.end]
    rates = [
        (at, max(0.0, after - before) / (at - began)) for (began, before), (at, after) in pairwise(inside) if at > began
    ]
    return rates if any(rate for _, rate in rates) else []
