"""The one loop that plans, makes and publishes the shards of a run.

`make_shards` is the loop, and the methods of `OpenShards` are its steps, in the order in which a shard meets them.
`shard_work.py` has what each of them does to the rows of one shard.
"""

import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from typing import Any

from kopub.errors import BusyTable, KopubError, StoreError
from kopub.parallel import closed_after
from kopub.tables.asset import EngineTable, PublishedShard, RowTable, RunContext, ShardAsset, unasked
from kopub.tables.shard_work import OpenShard, PlannedShard, ShardWork, current_shards

_MOST_OPEN = 64
"""Most shards in progress at once, each with an open lock file; only shards of a few rows come near it."""
_MOST_PUBLISHING = 2
"""Most complete shards that wait to be published, each with its rows in memory."""

Outcome = tuple[str, PublishedShard | KopubError]
"""A shard and its result: the published table, or the error that prevented it."""


def make_all(asset: ShardAsset, run: RunContext) -> dict[str, PublishedShard]:
    """Make all shards and finish the run. Raises the `KopubError` of the first failure."""
    finished = {}
    with closing(make_shards(asset, run)) as outcomes:
        for shard, outcome in outcomes:
            if isinstance(outcome, KopubError):
                raise outcome
            finished[shard] = outcome
    asset.finish(run, finished)
    return finished


def make_shards(asset: ShardAsset, run: RunContext) -> Generator[Outcome, None, None]:
    """Make the shards of a run, and yield each outcome once it is known.

    An engine is asked for the results of one shard's rows. If its calls may span shards, it is given the rows of the
    next shard as soon as it has taken the last row of one, so that it never waits for an answer that is still to come.

    If the generator is closed or interrupted, complete shards are still published, and the finished rows of the others
    are journalled. An engine failure outside any shard is listed under the engine's section.
    """
    current = dict(current_shards(asset, run))
    yield from current.items()
    stale = [shard for shard in run.shards if shard not in current]
    if not isinstance(asset, RowTable):
        for name in stale:
            try:
                outcome: PublishedShard | KopubError = asset.make_shard(name, run)
            except KopubError as error:
                outcome = error
            yield name, outcome
        return
    with ThreadPoolExecutor(1, "plan-shard") as planner, ThreadPoolExecutor(1, "publish-shard") as publisher:
        shards = OpenShards(asset, run, stale, planner, publisher)
        try:
            while (first := shards.open_next(wait=True)) is not None:
                try:
                    with closed_after(shards.results(first)) as results:
                        for result in results:
                            shards.take(result)
                            yield from shards.outcomes()
                    # The engine has ended, so the rows that it has not answered will not come.
                    shards.end_all()
                except KopubError as error:
                    shards.fail_all(error)
                yield from shards.outcomes(every=not asset.spans_shards)
            yield from shards.outcomes(every=True)
        finally:
            shards.give_up()


class OpenShards:
    """The shards of a run, from the first that waits to the last published.

    One thread plans the next shard and another publishes complete ones; everything else runs in the thread that takes
    the outcomes, except that an engine asked early is given its rows in another. If calls do not span shards, each
    shard is published before the next is planned.

    The time between two results is charged to the shard of the later result. So the shards' times add up to the total
    time, and no GPU second counts twice.
    """

    def __init__(
        self,
        asset: RowTable,
        run: RunContext,
        shards: list[str],
        planner: ThreadPoolExecutor,
        publisher: ThreadPoolExecutor,
    ) -> None:
        self._asset, self._run, self._planner, self._publisher = asset, run, planner, publisher
        self._waiting = deque(shards)
        self._next: PlannedShard | None = None
        """The next shard, planned while the engine works on those before it."""
        self._open: dict[str, OpenShard] = {}
        self._publishing: deque[tuple[OpenShard, Future[PublishedShard]]] = deque()
        self._outcomes: deque[Outcome] = deque()
        self._charged = time.monotonic()
        self._lock = threading.RLock()
        """Held where a shard is opened, ended or changed; an engine that was asked early takes rows in its thread."""

    def open_next(self, wait: bool) -> OpenShard | None:
        """Open the next shard with rows to make, and end those without on the way.

        Returns None if there is none or, without `wait`, if none can join the same engine call.
        """
        while self._waiting and len(self._open) < _MOST_OPEN:
            planned = self._next = self._next or self._plan(wait)
            if planned is None:
                return None
            error = planned.plan.exception()
            if error is not None:
                if not isinstance(error, KopubError):
                    raise error
                planned.give_up()
                self._outcomes.append((planned.name, error))
                self._plan_following()
                continue
            work = planned.plan.result()
            if any(not work.ids.isdisjoint(other.work.ids) for other in self._open.values()):
                return None  # the results of the two could not be told apart
            shard = self._open[planned.name] = OpenShard(planned.name, planned.lock, planned.plan, work)
            self._plan_following()
            try:
                work.take_predetermined()
            except StoreError as failure:
                self._fail(shard, failure)
                continue
            if work.todo:
                return shard
            self._end(shard)
            self._collect()
        return None

    def _plan(self, wait: bool) -> PlannedShard | None:
        """Lock the next shard and plan its rows; None if none is left or free."""
        if not self._waiting:
            return None
        name, lock = self._waiting[0], ExitStack()
        try:
            lock.enter_context(self._asset.store.exclusive(self._asset.name, name, wait))
        except BusyTable:
            return None
        except StoreError as error:
            failed: Future[ShardWork] = Future()
            failed.set_exception(error)
            return PlannedShard(name, lock, failed)
        if wait:
            self._charged = time.monotonic()
        return PlannedShard(name, lock, self._planner.submit(ShardWork, self._asset, name, self._run))

    def _plan_following(self) -> None:
        self._waiting.popleft()
        self._next = self._plan(wait=False) if self._asset.spans_shards else None

    def results(self, first: OpenShard) -> Iterable[Any]:
        """Return the results of `first`, and of the later shards that the call spans."""
        if isinstance(self._asset, EngineTable):
            return self._run.calls.results(self._asset, self._inputs(self._asset, first))
        first.asked = {spec.id: spec for spec in first.work.todo}
        return self._asset.make(first.name, first.work.todo)

    def _inputs(self, asset: EngineTable, first: OpenShard) -> Iterator[Any]:
        """Yield the engine's inputs shard after shard, as the engine takes them."""
        shard: OpenShard | None = first
        while shard is not None:
            try:
                for spec, engine_input in zip(shard.work.todo, asset.inputs(shard.name, shard.work.todo), strict=True):
                    if shard.failure is not None:
                        break
                    shard.asked[spec.id] = spec
                    if not self._run.calls.has_been_given(spec):
                        yield engine_input
            except KopubError as error:
                shard.failure = shard.failure or error
            if not asset.spans_shards:
                return  # the shard ends with the call, after which the engine has its figures
            with self._lock:
                shard.inputs_exhausted = True
                if shard.complete:
                    self._end(shard)
                shard = self.open_next(wait=False)
        if not self._waiting:
            self._run.inputs_exhausted()

    def take(self, result: Any) -> None:
        """Keep the row of a result; the last ends its shard. Raises `KopubError`."""
        with self._lock:
            row_id = getattr(result, self._asset.id_of_result if isinstance(self._asset, EngineTable) else "id")
            shard = next((shard for shard in self._open.values() if row_id in shard.asked), None)
            if shard is None:
                raise unasked(row_id)
            row = self._asset.row(shard.asked[row_id], result) if isinstance(self._asset, EngineTable) else result
            del shard.asked[row_id]
            self._charge(shard)
            figures = self._run.calls.take_figures(self._asset)
            for name, value in figures.items():
                shard.figures[name] += value
            try:
                shard.work.take(row, figures)
            except StoreError as error:
                if not self._asset.spans_shards:
                    raise
                shard.failure = shard.failure or error
            if shard.complete:
                self._end(shard)
            for other in self._open.values():
                try:
                    other.work.keep_up()
                except StoreError as error:
                    other.failure = other.failure or error

    def _charge(self, shard: OpenShard) -> None:
        now = time.monotonic()
        shard.work.seconds += now - self._charged
        self._charged = now

    def end_all(self) -> None:
        for shard in list(self._open.values()):
            self._end(shard)

    def _end(self, shard: OpenShard) -> None:
        """Publish an open shard, or fail it; none of its results are still to come."""
        if shard.failure is not None:
            self._fail(shard, shard.failure)
            return
        self._charge(shard)
        if shard.work.todo:
            shard.work.figures.update({**self._run.calls.engine_figures(self._asset), **shard.figures})
        del self._open[shard.name]
        self._publishing.append((shard, self._publisher.submit(shard.publish)))

    def fail_all(self, error: KopubError) -> None:
        """Fail the open shards, or the engine's section if it had no shard."""
        if not self._open:
            self._outcomes.append((self._asset.engine_section or self._asset.name, error))
        for shard in list(self._open.values()):
            self._fail(shard, error)

    def _fail(self, shard: OpenShard, error: KopubError) -> None:
        del self._open[shard.name]
        shard.give_up()
        self._outcomes.append((shard.name, shard.failure or error))

    def outcomes(self, every: bool = False) -> Iterator[Outcome]:
        """Yield the outcomes known so far; with `every`, wait until all shards are published."""
        with self._lock:
            self._collect(every)
        while self._outcomes:
            yield self._outcomes.popleft()

    def _collect(self, every: bool = False) -> None:
        """Collect the outcomes of published shards, and wait while too many are unpublished."""
        while self._publishing:
            shard, publishing = self._publishing[0]
            if not (every or publishing.done() or len(self._publishing) > _MOST_PUBLISHING):
                break
            wait([publishing])
            self._publishing.popleft()
            try:
                self._outcomes.append((shard.name, publishing.result()))
                if shard.work.summary:
                    self._run.log(shard.work.summary)
            except KopubError as error:
                self._outcomes.append((shard.name, error))

    def give_up(self) -> None:
        """Keep the finished rows of the shards that are still open, and release their locks."""
        with self._lock:
            for shard in (*self._open.values(), *([self._next] if self._next else [])):
                shard.give_up()
