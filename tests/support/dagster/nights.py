"""The ticks of the nightly sensor over a platform."""

from collections.abc import Set
from datetime import UTC, datetime, timedelta

import dagster as dg
from tests.support.harness import Platform

MIDNIGHT = datetime(2026, 11, 20, 15, tzinfo=UTC)
"""Midnight in Seoul."""


Requested = dict[str, Set[str | None]]
SCORES: Requested = {"retrieval_scores": set()}


class Nights:
    """The sensor's ticks over a platform, at hours after midnight in Seoul."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform
        self._cursor = None

    def tick(self, hours: float) -> Requested:
        """Return the requested shards by asset; the set is empty for an unpartitioned asset."""
        result = dg.evaluate_automation_conditions(
            self.platform.definitions, self.platform.instance, None, MIDNIGHT + timedelta(hours=hours), self._cursor
        )
        self._cursor = result.cursor
        return {
            found.key.path[-1]: result.get_requested_partitions(found.key) - {None}
            for found in result.results
            if not found.true_subset.is_empty
        }

    def make(self, requested: Requested) -> None:
        """Make what was requested as a backfill does: one run per set of assets."""
        shards: dict[str, list[str]] = {}
        for shard in sorted({shard for some in requested.values() for shard in some if shard}):
            assets = ",".join(asset for asset, some in requested.items() if shard in some)
            shards.setdefault(assets, []).append(shard)
        for assets, together in shards.items():
            assert self.platform.run(assets, together[0], together[-1]).success

    def aftermath(self, hours: float) -> list[Requested]:
        """Return the requests of the next ticks, each of which is made at once."""
        requested = []
        while found := self.tick(hours):
            requested.append(found)
            if found == SCORES:
                assert self.platform.run("retrieval_scores", first=None).success
            self.make(found)
            hours += 0.1
        return requested
