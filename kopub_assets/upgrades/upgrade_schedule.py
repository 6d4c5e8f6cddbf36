"""Upgrades by plain runs on a schedule, for an instance whose sensors are off."""

from collections.abc import Iterator, Mapping
from itertools import groupby

import dagster as dg

from kopub_assets.partitions import shards
from kopub_assets.recipes import PARENTS
from kopub_assets.upgrades.staleness import NAME, RELEASE, SCORES, look, scores_outdated
from resources.config.settings import load_settings
from resources.config.upgrade_window import Upgrades

NIGHT = "kopub/night"
"""Tag of a run: the night that asked for it."""
FIRST, LAST = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
"""Dagster's tags for a run over a range of partitions."""

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]

Task = tuple[str, str | None]
"""Asset and shard; no shard for an asset without partitions."""


def upgrade_schedule(upgrades: Upgrades) -> dg.ScheduleDefinition:
    """Every hour of the night: a run for each row of neighbouring shards with the same assets to be made."""
    job = dg.define_asset_job("upgrade", selection="*", description="What the schedule of upgrades runs.")

    @dg.schedule(
        name=NAME,
        job=job,
        cron_schedule=f"{upgrades.start.minute} * * * *",
        execution_timezone=upgrades.timezone,
        default_status=dg.DefaultScheduleStatus.RUNNING if upgrades.enabled else dg.DefaultScheduleStatus.STOPPED,
        description=f"Makes what a new model, prompt or source makes stale again, {upgrades}.",
    )
    def model_upgrades(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest | dg.SkipReason]:
        now = context.scheduled_execution_time
        if not upgrades.is_night(now):
            yield dg.SkipReason(f"work is started {upgrades}")
            return
        requests = list(_requests(context.instance, upgrades.night_of(now)))
        yield from requests or [dg.SkipReason("nothing is stale that has not had its turn tonight")]

    return model_upgrades


def _requests(instance: dg.DagsterInstance, night: str) -> Iterator[dg.RunRequest]:
    """The scores and the release come when everything else is done: a dataset of two models is not released."""
    taken = _tasks(instance, dg.RunsFilter(tags={NIGHT: night})) | _tasks(instance, dg.RunsFilter(statuses=_UNFINISHED))
    outdated = look().outdated
    released = outdated.pop(RELEASE)
    if any(outdated.values()):
        yield from _ranges(outdated, taken, night)
    elif not scores_outdated(instance):
        yield from _ranges({RELEASE: released}, taken, night)
    elif (SCORES, None) not in taken:
        yield dg.RunRequest(asset_selection=[dg.AssetKey(SCORES)], tags={NIGHT: night})


def _tasks(instance: dg.DagsterInstance, runs: dg.RunsFilter) -> set[Task]:
    """What the runs make; one without a selection makes everything."""
    keys, everything = shards.get_partition_keys(), [dg.AssetKey(asset) for asset in (*PARENTS, SCORES)]
    found: set[Task] = set()
    for run in instance.get_runs(runs):
        first, last = run.tags.get(FIRST), run.tags.get(LAST)
        one = run.tags.get("dagster/partition")
        made = keys[keys.index(first) : keys.index(last) + 1] if first in keys and last in keys else [one]
        found |= {(asset.path[-1], shard) for asset in run.asset_selection or everything for shard in made}
    return found


def _ranges(outdated: Mapping[str, set[str]], taken: set[Task], night: str) -> Iterator[dg.RunRequest]:
    """A shard of which something is under way waits, so that no table is made from one that is being replaced."""
    most = load_settings().shards_per_run or len(shards.get_partition_keys())

    def assets(shard: str) -> tuple[str, ...]:
        wanted = tuple(asset for asset, some in outdated.items() if shard in some)
        return () if any((asset, shard) in taken for asset in wanted) else wanted

    for wanted, group in groupby(shards.get_partition_keys(), assets):
        neighbours = list(group) if wanted else []
        for start in range(0, len(neighbours), most):
            some = neighbours[start : start + most]
            yield dg.RunRequest(
                asset_selection=[dg.AssetKey(asset) for asset in wanted],
                tags={FIRST: some[0], LAST: some[-1], NIGHT: night},
            )
