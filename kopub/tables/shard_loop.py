"""The one loop that makes the shards of a run, or keeps their tables."""

import time
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kopub.errors import BusyTable, KopubError, StoreError
from kopub.store.table_source import FooterCache
from kopub.store.table_store import JOURNAL
from kopub.tables.asset import EngineTable, PublishedShard, RowTable, RunContext, ShardAsset, unasked
from kopub.tables.progress import watcher
from kopub.tables.provenance import StoredProvenance
from kopub.tables.rows import RowResult, RowSpec
from kopub.tables.shard_work import ShardWork

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
    """Make the shards of a run, and yield each outcome once it is known."""
    current = dict(_current(asset, run))
    yield from current.items()
    stale = replace(run, shards=tuple(shard for shard in run.shards if shard not in current))
    if isinstance(asset, RowTable):
        yield from ShardLoop(asset, stale).outcomes()
        return
    for shard in stale.shards:
        try:
            outcome: PublishedShard | KopubError = asset.make_shard(shard, run)
        except KopubError as error:
            outcome = error
        yield shard, outcome


def _current(asset: ShardAsset, run: RunContext) -> Iterator[tuple[str, PublishedShard]]:
    """Yield the shards with nothing to make, if the store is object storage.

    All footers are read once for all shards, because locking each table and reading its parents takes a dozen
    requests. On a disk that costs nothing.
    """
    if asset.store.local:
        return
    footers = FooterCache(asset.store)
    own = footers.tables(asset.name)
    shards = [shard for shard in run.shards if shard in own]
    if not shards:
        return
    parents = {parent.table.name: footers.tables(parent.table.name) for parent in asset.reads}
    begun = {name.partition("/")[0] for name in asset.store.parts(JOURNAL, asset.name).names()}
    for shard in shards:
        above = {name: tables[shard] for name, tables in parents.items() if shard in tables}
        if shard in begun or len(above) < len(parents):
            continue
        try:
            stamp = asset.provenance_of(shard, {name: StoredProvenance.of(footer) for name, footer in above.items()})
            kept = asset.keep(shard, run, stamp) if own[shard].recipe == stamp.recipe else None
        except KopubError:
            continue  # making the shard reports the error
        if kept is not None:
            watcher().planned(asset.name, shard, 0)
            yield shard, kept


@dataclass(eq=False)
class _OpenShard:
    """A shard in progress, whose table is locked until `held` is closed.

    `asked` are the rows that the engine is working on.
    """

    name: str
    held: ExitStack
    planned: "Future[ShardWork]"
    asked: dict[str, RowSpec] = field(default_factory=dict)
    inputs_exhausted: bool = False
    failure: KopubError | None = None
    figures: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def complete(self) -> bool:
        return self.inputs_exhausted and not self.asked

    def publish(self) -> PublishedShard:
        """Publish the table and release its lock. Raises `KopubError`."""
        with self.held:
            work = self.planned.result()
            try:
                work.fail_unanswered()
            finally:
                work.record()
            return work.publish()

    def give_up(self) -> None:
        """Keep the finished rows for the next run, and release the lock."""
        with self.held, suppress(KopubError):
            self.planned.result().record()


class ShardLoop:
    """The loop that makes the shards of a run.

    An engine call makes one shard or, if it may span shards, many. It is then given the rows of one shard after
    another, so that the engine never waits for the last row of a shard. One thread plans the next shard and another
    publishes complete ones; everything else runs in the thread that takes the outcomes. If calls do not span shards,
    each shard is published before the next is planned.

    The time between two results is charged to the shard of the later result. So the shards' times add up to the total
    time, and no GPU second counts twice.
    """

    def __init__(self, asset: RowTable, run: RunContext) -> None:
        self._asset, self._run = asset, run
        self._spans_shards = asset.spans_shards
        self._waiting = deque(run.shards)
        self._ahead: _OpenShard | None = None
        self._open: dict[str, _OpenShard] = {}
        self._publishing: deque[tuple[_OpenShard, Future[PublishedShard]]] = deque()
        self._known: deque[Outcome] = deque()
        self._charged = time.monotonic()
        self._planner = ThreadPoolExecutor(1, "plan-shard")
        self._publisher = ThreadPoolExecutor(1, "publish-shard")

    def outcomes(self) -> Generator[Outcome, None, None]:
        """Yield the outcome of each shard as soon as it is known.

        If the generator is closed or interrupted, complete shards are still published, and the rows finished so far of
        the others are journalled. An engine failure outside any shard is listed under the engine's section.
        """
        with self._publisher, self._planner:
            try:
                while (first := self._next(wait=True)) is not None:
                    yield from self._call(first)
                    yield from self._outcomes(every=not self._spans_shards)
                yield from self._outcomes(every=True)
            finally:
                for shard in (*self._open.values(), *([self._ahead] if self._ahead else [])):
                    shard.give_up()

    def _next(self, wait: bool) -> _OpenShard | None:
        """Open the next shard with rows to make, and end those without on the way.

        Returns None if there is none or, without `wait`, if none can join the same engine call.
        """
        while self._waiting and len(self._open) < _MOST_OPEN:
            shard = self._ahead = self._ahead or self._plan(wait)
            if shard is None:
                return None
            if (error := shard.planned.exception()) is not None:
                if not isinstance(error, KopubError):
                    raise error
                self._begin(shard)
                self._fail(shard, error)
                continue
            work = shard.planned.result()
            if any(not work.ids.isdisjoint(other.planned.result().ids) for other in self._open.values()):
                return None  # the results of the two could not be told apart
            self._begin(shard)
            try:
                work.take_predetermined()
            except StoreError as error:
                self._fail(shard, error)
                continue
            if work.todo:
                return shard
            self._end(shard)
            self._settle()
        return None

    def _plan(self, wait: bool) -> _OpenShard | None:
        """Lock the next shard and plan its rows.

        None if no shard is left or another run holds it.
        """
        if not self._waiting:
            return None
        name, held = self._waiting[0], ExitStack()
        try:
            held.enter_context(self._asset.store.exclusive(self._asset.name, name, wait))
        except BusyTable:
            return None
        except StoreError as error:
            failed: Future[ShardWork] = Future()
            failed.set_exception(error)
            return _OpenShard(name, held, failed)
        if wait:
            self._charged = time.monotonic()
        return _OpenShard(name, held, self._planner.submit(ShardWork, self._asset, name, self._run))

    def _begin(self, shard: _OpenShard) -> None:
        self._waiting.popleft()
        self._open[shard.name] = shard
        self._ahead = self._plan(wait=False) if self._spans_shards else None

    def _call(self, first: _OpenShard) -> Iterator[Outcome]:
        """Make the rows of one call, beginning with those of `first`."""
        try:
            with closing(self._results(first)) as results:
                for result in results:
                    self._take(result)
                    yield from self._outcomes()
            for shard in list(self._open.values()):
                self._end(shard)  # the engine has ended, so its other rows will not come
        except KopubError as error:
            open_ones = list(self._open.values())
            for shard in open_ones:
                self._fail(shard, error)
            if not open_ones:
                self._known.append((self._asset.engine_section or self._asset.name, error))

    def _results(self, first: _OpenShard) -> Generator[RowResult, None, None]:
        """Yield the rows of `first`, and of the later shards that the call spans."""
        if self._spans_shards and isinstance(self._asset, EngineTable):
            with closing(_closable(self._asset.results(self._inputs(self._asset, first)))) as results:
                for result in results:
                    row_id = self._asset.row_id(result)
                    yield self._asset.row(self._asking(row_id).asked[row_id], result)
        else:
            todo = first.planned.result().todo
            first.asked = {spec.id: spec for spec in todo}
            yield from self._asset.make(first.name, todo)

    def _inputs(self, asset: EngineTable, first: _OpenShard) -> Iterator[Any]:
        """Yield the engine's inputs shard after shard, as the engine takes them."""
        shard: _OpenShard | None = first
        while shard is not None:
            try:
                todo = shard.planned.result().todo
                for spec, given in zip(todo, asset.inputs(shard.name, todo), strict=True):
                    if shard.failure is not None:
                        break
                    shard.asked[spec.id] = spec
                    yield given
            except KopubError as error:
                shard.failure = shard.failure or error
            shard.inputs_exhausted = True
            if shard.complete:
                self._end(shard)
            shard = self._next(wait=False)
        if not self._waiting:
            self._run.inputs_exhausted()

    def _asking(self, row_id: str) -> _OpenShard:
        """Return the shard that waits for a row. Raises `EngineError` if none does."""
        shard = next((shard for shard in self._open.values() if row_id in shard.asked), None)
        if shard is None:
            raise unasked(row_id)
        return shard

    def _take(self, result: RowResult) -> None:
        shard = self._asking(result.id)
        work = shard.planned.result()
        del shard.asked[result.id]
        self._charge(work)
        figures = self._asset.take_figures()
        for name, value in figures.items():
            shard.figures[name] += value
        try:
            work.take(result, figures)
        except StoreError as error:
            if not self._spans_shards:
                raise
            shard.failure = shard.failure or error
        if shard.complete:
            self._end(shard)
        for other in self._open.values():
            try:
                other.planned.result().keep_up()
            except StoreError as error:
                other.failure = other.failure or error
        self._run.require_going_on()

    def _end(self, shard: _OpenShard) -> None:
        """Publish an open shard, or fail it; none of its results are still to come."""
        if shard.failure is not None:
            return self._fail(shard, shard.failure)
        work = shard.planned.result()
        self._charge(work)
        if work.todo:
            work.figures.update({**self._asset.figures(), **shard.figures})
        del self._open[shard.name]
        self._publishing.append((shard, self._publisher.submit(shard.publish)))
        return None

    def _fail(self, shard: _OpenShard, error: KopubError) -> None:
        del self._open[shard.name]
        shard.give_up()
        self._known.append((shard.name, shard.failure or error))

    def _outcomes(self, every: bool = False) -> Iterator[Outcome]:
        """Yield the outcomes known so far; with `every`, wait until all shards are published."""
        self._settle(every)
        while self._known:
            yield self._known.popleft()

    def _settle(self, every: bool = False) -> None:
        """Collect the outcomes of published shards, and wait while too many are unpublished."""
        while self._publishing:
            shard, future = self._publishing[0]
            if not (every or future.done() or len(self._publishing) > _MOST_PUBLISHING):
                break
            wait([future])
            self._publishing.popleft()
            try:
                self._known.append((shard.name, future.result()))
                if summary := shard.planned.result().summary:
                    self._run.log(summary)
            except KopubError as error:
                self._known.append((shard.name, error))

    def _charge(self, work: ShardWork) -> None:
        now = time.monotonic()
        work.seconds += now - self._charged
        self._charged = now


def _closable(results: Iterable[Any]) -> Generator[Any, None, None]:
    """Yield from `results`, as a generator that can be closed."""
    yield from results
