"""A run's stages and where their time went, from observations and Dagster's record."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import dagster as dg
import numpy as np

from resources.profiling.observer import Counts, Observations, ServerHistory
from resources.profiling.timeline import (
    Span,
    Split,
    busy_share,
    first_growth,
    gaps,
    idle_between,
    longest_gap_at,
    split,
    steady_rate,
)

_SHARD = re.compile(r"(?P<asset>\w+) (?P<shard>[^\s:]+): (?P<computed>\d+) computed")
"""The line of an asset about a shard that is published."""


@dataclass
class Stage:
    """One asset of a run: its time, when each shard was published, rows it made, and metadata by shard."""

    name: str
    span: Span
    succeeded: bool = True
    shards: dict[str, float] = field(default_factory=dict)
    computed: int = 0
    metadata: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def figure(self, name: str) -> float:
        """Return the sum of a figure over the shards; 0 where none has it."""
        values = (shard.get(name) for shard in self.metadata.values())
        return sum(float(value) for value in values if isinstance(value, int | float))


def stages_of(instance: dg.DagsterInstance, run_id: str) -> list[Stage]:
    """Return the stages of a run in the order of their starts.

    One that did not end lasts until the last event.
    """
    begun: dict[str, float] = {}
    ended: dict[str, tuple[float, bool]] = {}
    shards: dict[str, dict[str, float]] = {}
    computed: dict[str, int] = {}
    metadata: dict[str, dict[str, Mapping[str, Any]]] = {}
    last = 0.0
    for entry in instance.all_logs(run_id):
        last = max(last, entry.timestamp)
        event = entry.dagster_event
        if event is None:
            found = _SHARD.match(entry.user_message)
            if found:
                shards.setdefault(found["asset"], {})[found["shard"]] = entry.timestamp
                computed[found["asset"]] = computed.get(found["asset"], 0) + int(found["computed"])
        elif event.event_type is dg.DagsterEventType.STEP_START and event.step_key:
            begun[event.step_key] = entry.timestamp
        elif event.event_type in (dg.DagsterEventType.STEP_SUCCESS, dg.DagsterEventType.STEP_FAILURE):
            assert event.step_key
            ended[event.step_key] = entry.timestamp, event.event_type is dg.DagsterEventType.STEP_SUCCESS
        elif event.event_type is dg.DagsterEventType.ASSET_MATERIALIZATION:
            made = event.step_materialization_data.materialization
            asset = made.asset_key.to_user_string()
            metadata.setdefault(asset, {})[made.partition or ""] = {
                name: value.value for name, value in made.metadata.items()
            }
    return [
        Stage(
            name=name,
            span=Span(start, ended.get(name, (last, False))[0]),
            succeeded=ended.get(name, (last, False))[1],
            shards=shards.get(name, {}),
            computed=computed.get(name, 0),
            metadata=metadata.get(name, {}),
        )
        for name, start in sorted(begun.items(), key=lambda item: item[1])
    ]


_STOLEN = 0.01
"""Share of the cores from which it is told."""


@dataclass(frozen=True)
class StageReport:
    """One stage: its wall time and what became of it.

    `rate` is rows a second over the wall time, `steady` without the first and the last answers of its server; `gaps`
    are the seconds without work on the device from one shard to the next. `cores` and `busy` are shares of all cores
    and of the cards, `stolen` of the cores too (see `Observations`); `gpu` has the figures of `Readings.figures`. What
    is not known is None.
    """

    stage: Stage
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
    """One command: from its start to its end, its stages, and what lies before, between and after them.

    `idle_between` are the seconds without work on the device from each stage that used it to the next that did.
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
        return sum((each.split for each in self.stages), Split())

    @property
    def slowed(self) -> str:
        """A sentence where others had so much of the cores that the figures are not this machine's; else empty."""
        if self.stolen < _STOLEN:
            return ""
        return f"the host of this virtual machine had other work for {self.stolen:.0%} of the cores"


def report(
    span: Span, stages: Sequence[Stage], observed: Observations, server_of: Mapping[str, str] | None = None
) -> RunReport:
    """Return the report of a command that lasted for `span`.

    `server_of` is the key of a stage's server by asset.
    """
    steps = observed.activity
    keys = server_of or {}
    reported = [_stage(stage, observed, observed.servers.get(keys.get(stage.name, ""))) for stage in stages]
    covered = _covered([stage.span for stage in stages])
    first = min((stage.span.start for stage in stages), default=span.end)
    last = max((stage.span.end for stage in stages), default=span.end)
    used = [each.stage for each in reported if each.split.working > 0]
    pairs = pairwise(used)
    return RunReport(
        span=span,
        stages=reported,
        loading=first - span.start,
        between=last - first - covered,
        ending=span.end - last,
        busy=busy_share(steps, span),
        stolen=_mean(observed.stolen, span),
        idle=gaps(steps, span),
        idle_between={(a.name, b.name): idle_between(steps, a.span, b.span) for a, b in pairs},
        device=observed.device,
    )


def _stage(stage: Stage, observed: Observations, server: ServerHistory | None) -> StageReport:
    steps, span = observed.activity, stage.span
    server = server or ServerHistory("")
    requests = _growth(server.requests, span)
    answered = [(at, count) for at, count in server.requests if span.start <= at <= span.end]
    steady = steady_rate(answered)
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
        prompt_tokens=_growth(server.prompt_tokens, span),
        generated_tokens=_growth(server.generated_tokens, span),
        cache_hits=_growth(server.cache_hits, span),
    )


def first_answer(history: ServerHistory) -> float | None:
    """When a server was first seen to have answered a request.

    Those that tell whether it is ready come before.
    """
    return first_growth(history.requests)


def _growth(counts: Counts, span: Span) -> float:
    """Return what was added within `span`; between two looks as much in every second of it.

    A server that was first looked at within `span` has started in it.
    """
    if not counts or counts[0][0] >= span.end:
        return 0.0
    moments, amounts = zip(*counts, strict=True)
    start, end = np.interp([span.start, span.end], moments, amounts)
    return float(round(end - (start if moments[0] <= span.start else 0.0)))


def _mean(counts: Counts, span: Span) -> float:
    inside = [share for at, share in counts if span.start <= at <= span.end]
    return sum(inside) / len(inside) if inside else 0.0


def _covered(spans: Sequence[Span]) -> float:
    """Return the seconds in at least one of the spans."""
    total, reached = 0.0, float("-inf")
    for span in sorted(spans, key=lambda each: each.start):
        total += max(0.0, span.end - max(span.start, reached))
        reached = max(reached, span.end)
    return total
