"""Engines that are prepared, and servers that start work, ahead of their steps."""

import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import ClassVar

from kopub.config.settings import Resources
from kopub.engine import Engine
from kopub.store.table_source import FooterCache
from kopub.tables.asset import PublishedShard, RunContext, ShardAsset, StoppedAhead
from kopub.tables.checks import Problems
from kopub.tables.metadata import gpu_watch
from kopub.tables.progress import watcher
from kopub.tables.shard_loop import Outcome, make_shards
from kopub.tables.staleness import assets_to_make

_PRIORITY_TAG = "dagster/priority"
_TO_STOP = 2.0
"""Seconds that a thread has to stop at its engine's next result, before the engine is taken from it."""


@dataclass(frozen=True)
class RunSteps:
    """The steps of a run, as the process knows them that executes one."""

    run_id: str
    order: Sequence[str]
    """The assets in the order of execution."""
    waits_for: Mapping[str, Set[str]]
    """The steps before each step."""
    resources: Resources
    """The resources that this process has made."""
    shards: tuple[str, ...]
    begun_alone: Set[str]
    """The present step, and those configured in the Launchpad, which nothing may begin ahead."""


class EnginePrefetcher:
    """The preparation of later steps' engines, some of which also work ahead of their steps.

    The next engines are prepared twice: at the start of each step, so that servers and models are up in time, and when
    a step has handed out its last row, so that the next one finds its client processes running. If servers work side by
    side, the next one also starts work then, whichever step is running.
    """

    _current: "ClassVar[EnginePrefetcher | None]" = None
    """The prefetcher of this process's run; a failed run may not announce its end before the next one begins."""

    def __init__(
        self, run: str, waits_for: Mapping[str, Set[str]], names: Iterable[str], wanted: Sequence[ShardAsset]
    ) -> None:
        """Take the assets by `names`; `waits_for` maps each step to those before it.

        `wanted` are the assets with rows to make, in order of execution: if two servers do not fit side by side, the
        one asked for first is started.
        """
        self._run, self._waits_for, self._wanted = run, waits_for, wanted
        self._to_come = set(names)
        self._steps = StepsOver()
        self._ahead: dict[str, StepAhead] = {}
        self._left_out: dict[str, Set[str]] = {}
        """The shards without which the steps after each step go on."""
        self._preparing = threading.Lock()

    @classmethod
    def of(
        cls,
        steps: RunSteps,
        graph: Sequence[type[ShardAsset]],
        run_of: Callable[[ShardAsset], RunContext | None],
    ) -> "EnginePrefetcher":
        """Return this process's prefetcher for the run of `steps`.

        `graph` lists every asset after its parents. `run_of` returns the run of an asset that works ahead, or None for
        one that must not. Raises `KopubError` at once if any step cannot be made, which might otherwise take hours to
        show.
        """
        if cls._current is None or cls._current._run != steps.run_id:
            # Steps of other processes have resources that this process did not make.
            here = [
                asset
                for asset in graph
                if asset.table.name in steps.order and asset.resource_keys() <= steps.resources.keys()
            ]
            assets = {asset.table.name: asset(steps.resources) for asset in here}
            for asset in assets.values():
                asset.require_possible()
            wanted: list[str] = []
            if assets:
                footers = FooterCache(next(iter(assets.values())).store)
                wanted = assets_to_make(assets, steps.shards, footers)
            wanted.sort(key=lambda name: (-_urgency(assets[name], graph), steps.order.index(name)))
            cls._current = cls(steps.run_id, steps.waits_for, assets, [assets[name] for name in wanted])
            cls._current._begin_ahead(run_of, besides=steps.begun_alone)
        return cls._current

    @contextmanager
    def during(self, asset: ShardAsset) -> Iterator[None]:
        """Prepare the step of `asset` and the steps after it.

        Engines that no later step needs are released at the end. If the step fails as a whole, the steps that wait for
        it are dropped; an interrupt drops all.
        """
        self._make_room(asset)
        self.prepare(asset)
        needed = _engines_of([asset, *self._coming])
        self._to_come.discard(asset.name)
        try:
            yield
        except Exception:
            if asset.name not in self._left_out:
                self._drop(self._after(asset.name))
            raise
        except BaseException:
            self._drop({*self._to_come, asset.name})
            raise
        finally:
            self._steps.end(asset.name)
            still_needed = _engines_of(self._coming)
            for engine in needed:
                if not any(engine is other for other in still_needed):
                    engine.release()
            for each in self._ahead.values():
                each.join()
            if not self._to_come and EnginePrefetcher._current is self:
                EnginePrefetcher._current = None

    def problems(self, asset: ShardAsset) -> Problems | None:
        """Return the problems of the shards made ahead of the step of `asset`."""
        return self._ahead[asset.name].run.problems if asset.name in self._ahead else None

    def has_rows_to_make(self, asset: ShardAsset) -> bool:
        """Return whether the engine of `asset` had rows to make when the run began."""
        return any(asset.name == wanted.name for wanted in self._wanted)

    def leave_out(self, asset: ShardAsset, shards: Set[str]) -> None:
        """Note that the steps after that of `asset` go on without some shards."""
        self._left_out[asset.name] = shards

    def left_out(self, asset: ShardAsset) -> set[str]:
        """Return the shards that failed in a step before that of `asset`."""
        return set().union(*(self._left_out.get(step, ()) for step in self._waits_for[asset.name]))

    def outcomes(self, asset: ShardAsset, run: RunContext) -> Generator[Outcome, None, None]:
        """Make the shards of `asset`, or take those made ahead; yield each outcome once known."""
        left_out = self.left_out(asset)
        left = dict.fromkeys(shard for shard in run.shards if shard not in left_out)
        if asset.name in self._ahead:
            with closing(self._ahead[asset.name].outcomes(run)) as made_ahead:
                for shard, outcome in made_ahead:
                    left.pop(shard, None)
                    if shard not in left_out:
                        yield shard, outcome
            if not left:
                return
        yield from watched_shards(asset, replace(run, shards=tuple(left)))

    def hand_over(self, asset: ShardAsset) -> None:
        """Let the next steps begin, once the engine of `asset` has its last row."""
        self.prepare(using=asset)
        self._steps.drain(asset.name)

    def prepare(self, now: ShardAsset | None = None, using: ShardAsset | None = None) -> None:
        """Prepare the engines of coming steps, those of `now` first.

        An engine that several steps share is prepared for the first of them. Servers come first, because importing a
        model here may take seconds. An engine at work is left alone, unless it belongs to `using`, which has given it
        its last row.
        """

        def turn(asset: ShardAsset) -> tuple[bool, bool]:
            return not _needs_server(asset), now is None or asset.name != now.name

        with self._preparing:
            at_work = _engines_of([each.asset for each in self._ahead.values() if each.is_at_work])
            own = () if using is None else using.engines
            prepared = [engine for engine in at_work if not any(engine is each for each in own)]
            for asset in sorted(self._coming, key=turn):
                if not any(engine is other for engine in asset.engines for other in prepared):
                    asset.prepare()
                    prepared += asset.engines

    def _begin_ahead(self, run_of: Callable[[ShardAsset], RunContext | None], besides: Set[str]) -> None:
        """Start a thread for each asset that needs a server, except those in `besides`.

        `besides` are the first step and the assets configured in the Launchpad, whose configuration only their own step
        knows. Nothing is started unless all servers of the run work side by side: one that needs the card to itself
        keeps it until its step ends.
        """
        served = [asset for asset in self._wanted if _needs_server(asset)]
        if not all(engine.serves_beside_others for engine in _engines_of(served) if engine.needs_server):
            return
        for asset in served:
            if asset.name not in besides and (given := run_of(asset)) is not None:
                given = replace(given, inputs_exhausted=partial(self.hand_over, asset))
                self._ahead[asset.name] = StepAhead(
                    asset,
                    given,
                    self._steps,
                    *self._steps_before(asset),
                    self._preparing,
                    partial(self.left_out, asset),
                )

    def _steps_before(self, asset: ShardAsset) -> tuple[set[str], set[str]]:
        """Return the steps that must be over before `asset`, and those that must drain."""
        before = self._wanted[: self._wanted.index(asset)]
        over = {other.name for other in before if _share_engine(asset, other)}
        return over | self._waits_for[asset.name], {other.name for other in before if _needs_server(other)}

    def _make_room(self, asset: ShardAsset) -> None:
        """Stop assets that work ahead with an engine of `asset`; their steps finish."""
        for other in self._ahead.values():
            if other.asset.name != asset.name and other.is_at_work and _share_engine(asset, other.asset):
                other.stop()
                other.join()

    def _drop(self, names: Set[str]) -> None:
        """Drop steps that will not run, and stop the work begun ahead for them."""
        self._to_come -= names
        dropped = [self._ahead[name] for name in names if name in self._ahead]
        for each in dropped:
            each.stop()
        for each in dropped:
            each.join()

    @property
    def _coming(self) -> list[ShardAsset]:
        return [asset for asset in self._wanted if asset.name in self._to_come]

    def _after(self, name: str) -> set[str]:
        """Return the steps that wait for `name`, directly or not."""
        direct = {step for step, before in self._waits_for.items() if name in before}
        return direct.union(*map(self._after, direct))


def priority(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> dict[str, str]:
    """Return the tag by which Dagster chooses among ready steps; `graph` lists parents first."""
    return {_PRIORITY_TAG: str(_urgency(asset, graph))}


def _urgency(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> int:
    """Return a priority, higher without a server, then by how many assets wait."""
    waiting = {type(asset)}
    for other in graph:
        if waiting.intersection(other.parents):
            waiting.add(other)
    return len(waiting) if _needs_server(asset) else len(waiting) + len(graph)


def _engines_of(assets: Iterable[ShardAsset]) -> list[Engine]:
    """Return the engines of the assets, each once."""
    return list({id(engine): engine for asset in assets for engine in asset.engines}.values())


def _needs_server(asset: ShardAsset) -> bool:
    return any(engine.needs_server for engine in asset.engines)


def _share_engine(one: ShardAsset, other: ShardAsset) -> bool:
    return any(engine is another for engine in one.engines for another in other.engines)


def watched_shards(asset: ShardAsset, run: RunContext) -> Generator[Outcome, None, None]:
    """Make the shards of a run, and measure the use of their GPUs."""
    watcher().began(asset.name)
    with gpu_watch(asset.engines, run.warn) as gpu, closing(make_shards(asset, replace(run, gpu=gpu))) as outcomes:
        for shard, outcome in outcomes:
            if isinstance(outcome, PublishedShard):
                watcher().published(asset.name, shard)
            yield shard, outcome


class StepsOver:
    """The steps that are over, and those whose engines have been given their last rows."""

    def __init__(self) -> None:
        self._over: set[str] = set()
        self._draining: set[str] = set()
        self._changed = threading.Condition()

    def drain(self, asset: str) -> None:
        """Note that the engine of an asset has been given its last row."""
        with self._changed:
            self._draining.add(asset)
            self._changed.notify_all()

    def end(self, asset: str) -> None:
        """Note that the tables of an asset are made."""
        with self._changed:
            self._over.add(asset)
            self._changed.notify_all()

    def wait_for(self, over: Collection[str], draining: Collection[str], unless: Callable[[], bool]) -> None:
        """Wait until some assets are `over` and others at least `draining`, or `unless` holds."""

        def have_come() -> bool:
            return self._over.issuperset(over) and (self._over | self._draining).issuperset(draining)

        with self._changed:
            self._changed.wait_for(lambda: unless() or have_come())

    def wake(self) -> None:
        """Make every waiting thread check its condition again."""
        with self._changed:
            self._changed.notify_all()


class StepAhead:
    """A thread that makes the shards of an asset, perhaps ahead of its step.

    It begins once the tables that the asset reads are made, and the steps before it have given their servers the last
    rows. Its outcomes, log lines and errors are passed on to the step.
    """

    def __init__(
        self,
        asset: ShardAsset,
        run: RunContext,
        steps: StepsOver,
        over: Collection[str],
        draining: Collection[str],
        preparing: threading.Lock,
        left_out: Callable[[], Set[str]],
    ) -> None:
        """Start the thread, which waits for the steps `over` and `draining`.

        It takes up its engine under the lock `preparing`, while no engine is being prepared. It makes no shard of
        `left_out`, asked once the steps before are over.
        """
        self.asset, self._steps, self._over, self._draining = asset, steps, over, draining
        self._preparing, self._left_out = preparing, left_out
        self._told: SimpleQueue[Outcome | Callable[[RunContext], None] | BaseException | None] = SimpleQueue()
        self.run = replace(
            run,
            log=lambda line: self._told.put(lambda step: step.log(line)),
            warn=lambda line: self._told.put(lambda step: step.warn(line)),
            require_going_on=self._require_going_on,
        )
        self._began, self._has_turn, self._stopped = 0.0, False, False
        self._thread = threading.Thread(target=self._make, name=f"ahead-{asset.name}", daemon=True)
        self._thread.start()

    @property
    def is_at_work(self) -> bool:
        return self._began > 0 and self._thread.is_alive()

    def outcomes(self, run: RunContext) -> Generator[Outcome, None, None]:
        """Yield the outcomes of the shards, and log to `run`, the run of the step."""
        # The thread must not wait any longer: a step that it waits for may have been left out.
        self._has_turn = True
        self._steps.wake()
        head_start = time.monotonic() - self._began if self._began else 0.0
        if head_start:
            run.log(f"{self.asset.name}: begun {head_start:.1f} s before its step")
        try:
            while (told := self._told.get()) is not None:
                match told:
                    case BaseException():
                        raise told
                    case (_, PublishedShard(metadata=metadata)) if head_start and metadata["computed"]:
                        metadata["seconds_before_step"] = head_start
                        yield told
                    case tuple():
                        yield told
                    case _:
                        told(run)
        finally:
            self.stop()
            self.join()

    def stop(self) -> None:
        """Make the thread stop at the next result; finished rows are kept."""
        self._stopped = True
        self._steps.wake()

    def join(self) -> None:
        """Wait a little for the thread to end, if it was told to stop."""
        if self._stopped:
            self._thread.join(_TO_STOP)

    def _require_going_on(self) -> None:
        if self._stopped:
            raise StoppedAhead

    def _make(self) -> None:
        try:
            self._steps.wait_for(self._over, self._draining, lambda: self._has_turn or self._stopped)
            with self._preparing:
                self._require_going_on()
                self._began = time.monotonic()
            left_out = self._left_out()
            run = replace(self.run, shards=tuple(shard for shard in self.run.shards if shard not in left_out))
            with closing(watched_shards(self.asset, run)) as outcomes:
                for outcome in outcomes:
                    self._told.put(outcome)
            self._steps.end(self.asset.name)
        except StoppedAhead:
            pass
        except BaseException as error:  # it is raised in the step
            self._told.put(error)
        finally:
            self._told.put(None)
