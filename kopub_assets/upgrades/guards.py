"""How the benchmarks that guard the corpus stand: whether the profile as it is now was evaluated, and passed."""

from collections.abc import Sequence
from dataclasses import dataclass

from kopub_assets.evaluations.running import READING, settings_in
from kopub_assets.graph import GRAPH, Graph
from kopub_assets.upgrades.plan import AssetPlan
from kopub_assets.upgrades.stale_scan import survey
from resources.config.settings import Settings
from resources.evaluation.runs.comparison import HISTORY, guards, verdict
from resources.evaluation.runs.home import EvaluationRequest, read_gold
from resources.evaluation.runs.measuring import kind_of
from resources.store.footer_cache import FooterCache

_READING = Graph(tuple(asset for asset in GRAPH.assets if asset.table in READING))


@dataclass(frozen=True, slots=True)
class GuardStanding:
    """One benchmark: whether it must be read again, why and at what cost, and what its last scores forbid."""

    asked: EvaluationRequest
    evaluated: bool
    plans: Sequence[AssetPlan]
    closed: Sequence[str]

    @property
    def why(self) -> list[str]:
        """What is to be made again, one line each; nothing where the evaluation is that of the profile now."""
        if not self.evaluated:
            return ["this profile has not been scored on it"]
        return [f"{plan.asset}: {line}" for plan in self.plans for line in plan.why]

    @property
    def is_current(self) -> bool:
        """Whether the scores are those of the profile as it is now."""
        return self.evaluated and not any(
            keys for plan in self.plans for standing, keys in plan.shards.items() if standing != "current"
        )

    @property
    def seconds(self) -> float | None:
        """What reading it again will take at most; None where it was never read."""
        return sum(plan.seconds_at_most for plan in self.plans) if self.evaluated else None

    @property
    def pages(self) -> int:
        """Pages of it that are read again at most."""
        return max((plan.pages_at_most for plan in self.plans), default=0)


def standings_of_guards(settings: Settings) -> list[GuardStanding]:
    """Of every benchmark that the gates name. Reads no benchmark and no page. Raises `KopubError`."""
    return [_standing(settings, asked) for asked in guards(settings.gates.benchmarks, settings.gates.benchmark_samples)]


def _standing(settings: Settings, asked: EvaluationRequest) -> GuardStanding:
    if not asked.is_indexed(settings.home):
        return GuardStanding(asked, False, (), ())
    moved = settings_in(settings, asked)
    found = verdict(moved.store)
    if found is None or not _is_scored(moved):
        return GuardStanding(asked, False, (), ())
    plans = survey(moved.resources, FooterCache(moved.store), _READING).plans()
    closed = () if settings.gates.override.strip() else found.closed
    return GuardStanding(asked, True, plans, closed)


def _is_scored(moved: Settings) -> bool:
    """Whether the scores are of the tables there are, against this gold and by these scorers."""
    run, gold, keys = HISTORY.latest(moved.store), moved.corpus.gold, moved.corpus.manifest.keys
    if run is None or gold is None or run.kind != kind_of(read_gold(gold), moved.gates.cdm):
        return False
    return HISTORY.is_of_tables_now(moved.store, keys, moved.store.has)


def may_upgrade(standings: Sequence[GuardStanding]) -> bool:
    """Whether every benchmark was read by the profile as it is now, and none of them significantly worse."""
    return all(each.is_current and not each.closed for each in standings)
