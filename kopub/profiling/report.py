"""A run's stages and how their time was spent, in figures and as HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined

from kopub.gpu import GIB
from kopub.profiling.observer import Counts, Observations, ServerHistory
from kopub.profiling.timeline import (
    Span,
    Split,
    busy_share,
    gaps,
    idle_between,
    longest_gap_at,
    split,
    steady_rate,
)
from kopub.states import phrase


@dataclass
class RunStage:
    """One asset of a run: its time, its shards, its rows and its metadata."""

    name: str
    span: Span
    succeeded: bool = True
    shards: dict[str, float] = field(default_factory=dict)
    computed: int = 0
    metadata: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def figure(self, name: str) -> float:
        """Return the sum of a figure over the shards, or 0 if none has it."""
        values = (shard.get(name) for shard in self.metadata.values())
        return sum(float(value) for value in values if isinstance(value, int | float))


_STOLEN = 0.01
"""Least stolen share of the cores that is reported."""


@dataclass(frozen=True)
class StageReport:
    """One stage: its wall time, and how it was spent.

    `rate` is rows per second over the wall time, `steady` the same without the first and last answers of its server;
    `gaps` are the idle seconds of the device from one shard to the next. `cores` and `busy` are the busy shares of all
    cores and of the cards, `stolen` is a share of the cores too (see `Observations`); `gpu` has the figures of
    `Readings.figures`. Unknown values are None.
    """

    stage: RunStage
    split: Split
    rate: float
    steady: float | None
    gaps: Sequence[float]
    busy: float | None
    cores: float
    stolen: float
    gpu: Mapping[str, float]
    requests: float
    prompt_tokens: float
    generated_tokens: float
    cache_hits: float


@dataclass(frozen=True)
class RunReport:
    """One command from its start to its end: its stages and the time around them.

    `idle_between` are the idle seconds of the device from each stage that used it to the next that did.
    """

    span: Span
    stages: Sequence[StageReport]
    loading: float
    between: float
    ending: float
    busy: float
    stolen: float
    idle: Sequence[Span]
    idle_between: Mapping[tuple[str, str], float]
    device: str

    @property
    def split(self) -> Split:
        """The sum over the stages."""
        return sum((stage.split for stage in self.stages), Split())

    @property
    def slowed(self) -> str:
        """A warning if the host took too much of the cores, else empty."""
        if self.stolen < _STOLEN:
            return ""
        return phrase("the host of this virtual machine had other work for {share:.0%} of the cores", self.stolen)


def report(
    span: Span, stages: Sequence[RunStage], observed: Observations, server_of: Mapping[str, str] | None = None
) -> RunReport:
    """Return the report of a command that lasted for `span`.

    `server_of` maps the asset of a stage to the key of its server.
    """
    steps = observed.activity
    keys = server_of or {}
    reported = [_stage(stage, observed, observed.servers.get(keys.get(stage.name, ""))) for stage in stages]
    first = min((stage.span.start for stage in stages), default=span.end)
    last = max((stage.span.end for stage in stages), default=span.end)

    # Stages overlap, so the seconds in at least one of them are fewer than their sum.
    covered, reached = 0.0, float("-inf")
    for stage in sorted(stages, key=lambda stage: stage.span.start):
        covered += max(0.0, stage.span.end - max(stage.span.start, reached))
        reached = max(reached, stage.span.end)

    # A stage that ran entirely beside another has no idle time before it.
    chain: list[RunStage] = []
    for stage in reported:
        if stage.split.working > 0 and (not chain or stage.stage.span.end > chain[-1].span.end):
            chain.append(stage.stage)
    idle_pairs = {(a.name, b.name): idle_between(steps, a.span, b.span) for a, b in pairwise(chain)}
    return RunReport(
        span=span,
        stages=reported,
        loading=first - span.start,
        between=last - first - covered,
        ending=span.end - last,
        busy=busy_share(steps, span),
        stolen=_mean(observed.stolen, span),
        idle=gaps(steps, span),
        idle_between=idle_pairs,
        device=observed.device,
    )


def _stage(stage: RunStage, observed: Observations, server: ServerHistory | None) -> StageReport:
    steps, span = observed.activity, stage.span
    server = server or ServerHistory("")
    requests = growth(server.requests, span)
    steady = steady_rate(_within(server.requests, span))
    published = sorted(stage.shards.values())[:-1]
    return StageReport(
        stage=stage,
        split=split(steps, span),
        rate=stage.computed / span.seconds if span.seconds > 0 else 0.0,
        steady=steady * stage.computed / requests if steady and requests else None,
        gaps=[longest_gap_at(steps, at, span) for at in published],
        busy=busy_share(steps, span) if observed.cards else None,
        cores=_mean(observed.cores, span),
        stolen=_mean(observed.stolen, span),
        gpu=observed.readings.figures(span.start, span.end),
        requests=requests,
        prompt_tokens=growth(server.prompt_tokens, span),
        generated_tokens=growth(server.generated_tokens, span),
        cache_hits=growth(server.cache_hits, span),
    )


def growth(counts: Counts, span: Span) -> float:
    """Return the growth of a count within `span`, interpolated between two polls.

    A server first polled within `span` counts as started in it.
    """
    if not counts or counts[0][0] >= span.end:
        return 0.0
    moments, amounts = zip(*counts, strict=True)
    start, end = np.interp([span.start, span.end], moments, amounts)
    return float(round(end - (start if moments[0] <= span.start else 0.0)))


def _within(counts: Counts, span: Span) -> Counts:
    return [(at, value) for at, value in counts if span.start <= at <= span.end]


def _mean(counts: Counts, span: Span) -> float:
    inside = _within(counts, span)
    return sum(share for _, share in inside) / len(inside) if inside else 0.0


_TEMPLATE = Path(__file__).with_name("page.html.jinja")
_WIDTH = 1000.0
"""Units of the picture from the start of a run to its end."""
_HIGH = 60.0
"""Units of a curve's height."""
_POINTS = 800
"""Points of a curve; more would not be visible."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle in a lane: its place, width, label and tooltip."""

    x: float
    width: float
    label: str
    title: str
    kind: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture: bars, or a curve as the points of a polygon.

    Bars without width are not drawn, and `most` is the value at the top of the curve.
    """

    label: str
    bars: Sequence[Bar] = ()
    curve: str = ""
    most: str = ""


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A table of the page; its first column has names, the others have numbers."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class RunSection:
    """One run on the page: a title, sentences, lanes, time marks and tables."""

    title: str
    lines: Sequence[str]
    lanes: Sequence[Lane]
    ticks: Sequence[tuple[float, str]]
    tables: Sequence[ReportTable]


def render(title: str, sections: Sequence[RunSection]) -> str:
    """Return the page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    return template.render(title=title, sections=sections, width=_WIDTH, high=_HIGH)


def section(
    title: str, run: RunReport, observed: Observations, tables: Sequence[ReportTable], lines: Sequence[str] = ()
) -> RunSection:
    """Return the picture of a run: its stages, shards, servers, cards and cores."""
    span = run.span
    lanes: list[Lane] = []
    for reported in run.stages:
        # A bar for each shard, and one for the time after the last.
        stage, bars, begin = reported.stage.span, [], reported.stage.span.start
        for shard, end in sorted(reported.stage.shards.items(), key=lambda item: item[1]):
            bars.append(_bar(Span(begin, end), span, shard, f"{shard}: {end - begin:.1f} s", "stage"))
            begin = end
        bars.append(_bar(Span(begin, stage.end), span, "", f"{stage.seconds:.1f} s in all", "after"))
        lanes.append(Lane(reported.stage.name, bars))

    for history in observed.servers.values():
        bars = []
        for start in history.starts:
            bars.append(_bar(start, span, "starting", f"ready after {start.seconds:.0f} s", "start"))
        polls = _within(history.requests, span)
        if polls:
            bars.append(_bar(Span(polls[0][0], polls[-1][0]), span, "ready", history.model, "ready"))
        lanes.append(Lane(f"server of {Path(history.model).name}", bars))
        rates: list[tuple[float, float]] = []
        answers = False
        for (began, before), (at, after) in pairwise(polls):
            if at > began:
                rates.append((at, max(0.0, after - before) / (at - began)))
                answers = answers or after > before
        if answers:
            lanes.append(_curve("its answers a second", rates, span, unit="/s"))

    for number, card in enumerate(observed.cards):
        busy = [(at, cards[number].busy) for at, cards in observed.readings.taken]
        lanes.append(_curve(f"GPU {card.name} busy", busy, span, 1.0, "100 %"))
    if observed.cards:
        total = sum(card.memory for card in observed.cards) / GIB
        lanes.append(_curve("GPU memory", observed.memory, span, total, f"{total:.0f} GiB"))
    lanes.append(_curve("cores busy", observed.cores, span, 1.0, "100 %"))
    return RunSection(title, lines, lanes, ticks(span), tables)


def ticks(span: Span) -> list[tuple[float, str]]:
    """Return the places of time marks, and their labels in seconds from the start."""
    step = next((step for step in (0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600) if span.seconds / step <= 14), 3600.0)
    return [(_WIDTH * n * step / (span.seconds or 1.0), f"{n * step:g} s") for n in range(int(span.seconds / step) + 1)]


def _bar(span: Span, whole: Span, label: str, title: str, kind: str) -> Bar:
    start, end = max(span.start, whole.start), min(span.end, whole.end)
    scale = _WIDTH / (whole.seconds or 1.0)
    width = max(0.0, end - start) * scale
    # A letter is about seven units wide, and a label must fit its bar.
    return Bar((start - whole.start) * scale, width, label if width > 7 * len(label) else "", title, kind)


def _curve(label: str, counts: Counts, span: Span, most: float | None = None, top: str = "", unit: str = "") -> Lane:
    """Return a lane with the area under a curve of (time, value)."""
    inside = _within(counts, span)
    if not inside:
        return Lane(label)
    most = most or max(value for _, value in inside) or 1.0
    size = max(1, len(inside) // _POINTS)
    points: list[tuple[float, float]] = []
    for first in range(0, len(inside), size):
        moments, values = zip(*inside[first : first + size], strict=True)
        moment, value = sum(moments) / len(moments), sum(values) / len(values)
        points.append((_WIDTH * (moment - span.start) / (span.seconds or 1.0), _HIGH * (1 - min(1.0, value / most))))
    # The area is closed along the bottom.
    points = [(points[0][0], _HIGH), *points, (points[-1][0], _HIGH)]
    return Lane(label, curve=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), most=top or f"{most:.0f}{unit}")
