"""The benchmarks that guard the corpus: read by the profile as it is now, before an upgrade reads the corpus."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import dagster as dg

from kopub_assets.evaluations.running import Build, Evaluated, evaluate, prepared, settings_in
from kopub_assets.materialize.dagster_assets import GROUP, OWNERS
from kopub_assets.materialize.score_tables import NO_DROP, drop_check, shown
from kopub_assets.running.command_line import canceled_when_stopped
from kopub_assets.running.progress import NOBODY, watched_by, watcher
from resources.config.settings import Settings
from resources.errors import KopubError
from resources.evaluation.runs.comparison import HISTORY, guards, headline, significant_drops
from resources.store.corpus_tables import BENCHMARKS


def benchmark_scores(settings: Settings, build: Build) -> dg.AssetsDefinition:
    """The asset of a platform whose gates name benchmarks; `build` makes the assets that read them."""

    @dg.asset(
        name=BENCHMARKS,
        description=inspect.getdoc(_evaluated),
        backfill_policy=dg.BackfillPolicy.single_run(),
        group_name=GROUP,
        owners=OWNERS,
        check_specs=[
            dg.AssetCheckSpec(
                NO_DROP, asset=BENCHMARKS, description="No benchmark is read significantly worse than before."
            )
        ],
    )
    def materialize(context: dg.AssetExecutionContext):
        try:
            watcher().began(BENCHMARKS)
            with canceled_when_stopped(context):
                evaluated = _evaluated(settings, build, context.log.info)
        except KopubError as error:
            raise dg.Failure(str(error), allow_retries=False) from None
        watcher().ended(BENCHMARKS)
        yield from _told(evaluated, context.log.info)

    return materialize


def _evaluated(settings: Settings, build: Build, log: Callable[[str], None]) -> dict[str, Evaluated]:
    """The benchmarks of `gates.benchmarks`, read by this profile and scored, each in a home of its own.

    An upgrade at night is made after it, and not when a headline metric dropped significantly and by more than its
    margin, unless `gates.override` gives the reason: then later runs are compared with this one.
    """
    found = {}
    for asked in guards(settings.gates.benchmarks, settings.gates.benchmark_samples):
        prepared(asked, settings.home)
        moved = settings_in(settings, asked)
        before = HISTORY.latest(moved.store)
        with watched_by(NOBODY):
            evaluated = found[asked.benchmark] = evaluate(moved, build)
        if before is None or before.inputs != evaluated.run.inputs:
            watcher().computed(BENCHMARKS, asked.benchmark)
        log(f"{asked.benchmark} of {asked.folder}: {found[asked.benchmark].compared}")
    return found


def _told(evaluated: dict[str, Evaluated], log: Callable[[str], None]) -> Iterator[dg.MaterializeResult[Any]]:
    drops = [line for each in evaluated.values() for line in significant_drops(each.scores)]
    compared = "; ".join(f"{benchmark}: {each.compared}" for benchmark, each in evaluated.items())
    for line in drops:
        log(line)
    columns = ("benchmark", "metric", "slice", "samples", "lost", "value_of_read", "skipped_reason")
    yield dg.MaterializeResult(
        metadata={
            **{
                f"{benchmark}_{row['metric']}": row["value"]
                for benchmark, each in evaluated.items()
                for row in headline(each.scores)
            },
            **{f"{benchmark}_scores": shown(each.scores, columns) for benchmark, each in evaluated.items()},
            "compared": compared,
        },
        check_results=[drop_check("; ".join(drops) or compared, passed=not drops)],
    )
