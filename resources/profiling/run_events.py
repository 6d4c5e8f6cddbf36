"""What Dagster recorded of a run: its stages, and when each shard of them was finished."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from resources.profiling.timeline import Span

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
        """The sum of a figure over the shards; 0 where none has it."""
        values = (shard.get(name) for shard in self.metadata.values())
        return sum(float(value) for value in values if isinstance(value, int | float))


def stages_of(instance: dg.DagsterInstance, run_id: str) -> list[Stage]:
    """The stages of a run in the order of their starts; one that did not end lasts until the last event."""
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
