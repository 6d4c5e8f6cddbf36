"""Assets whose rows an engine makes; it may work on a shard while the last rows of the one before come in."""

import time
from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from typing import Any

from kopub_assets.materialize.asset import Finished, Run
from kopub_assets.materialize.row_table import RowTable, ShardWork, unasked
from kopub_assets.materialize.rows import Row, RowSpec
from resources.errors import KopubError, StoreError, TableBusy

_MOST_OPEN = 64
"""Shards under way at once, each with an open lock file; only shards of a few rows come near it."""
_MOST_PUBLISHING = 2
"""Complete shards that wait to be published, each with its rows in memory."""

Outcome = tuple[str, Finished | KopubError]


class EngineTable(RowTable):
    """A `RowTable` whose rows are the results of its engine."""

    @abstractmethod
    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterable[Any]:
        """What the engine needs for each row of `todo`, in their order. Raises `SourceError`, `StoreError`."""

    @abstractmethod
    def results(self, inputs: Iterator[Any]) -> Iterable[Any]:
        """The engine's result for each input, in any order. Raises `EngineError`."""

    @abstractmethod
    def row_id(self, result: Any) -> str:
        """The id of the row that a result is for."""

    @abstractmethod
    def columns(self, row: RowSpec, result: Any) -> Row:
        """The columns of a row, of the engine's result."""

    def figures(self) -> Mapping[str, float | str]:
        return self.engine.report()

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[str, Row]]:
        rows = {row.id: row for row in todo}
        for result in self.results(iter(self.inputs(shard, todo))):
            row_id = self.row_id(result)
            if row_id not in rows:
                raise unasked(row_id)
            yield row_id, self.columns(rows[row_id], result)

    def make_stale(self, run: Run) -> Generator[Outcome, None, None]:
        if self.engine.spans_shards:
            yield from ShardStream(self, run).outcomes()
        else:
            yield from super().make_stale(run)


@dataclass(eq=False)
class _Shard:
    """A shard under way, whose table is locked until `held` is closed. `asked` are the ids that the engine has."""

    name: str
    held: ExitStack
    planned: "Future[ShardWork]"
    asked: dict[str, RowSpec] = field(default_factory=dict)
    handed_out: bool = False
    failure: KopubError | None = None
    figures: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def complete(self) -> bool:
        return self.handed_out and not self.asked

    def publish(self) -> Finished:
        """Publish the table and release its lock. Raises `KopubError`."""
        with self.held:
            work = self.planned.result()
            try:
                work.fail_unanswered()
            finally:
                work.record()
            return work.publish()

    def give_up(self) -> None:
        """Keep what was made for the next run, as far as the store takes it, and release the lock."""
        with self.held, suppress(KopubError):
            self.planned.result().record()


class ShardStream:
    """Makes the shards of a run in as few calls of the engine as can be: a call is given one shard after the other.

    What there is to do for the next shard, and the publishing of a complete one, are the work of two threads; all
    else is done in the thread that takes the outcomes. So the engine never waits for the last row of a shard.

    The time between two results is on the account of the shard that the later one is of: what the shards took adds
    up to the time of all, and no second of a GPU counts twice.
    """

    def __init__(self, asset: EngineTable, run: Run) -> None:
        self._asset, self._run = asset, run
        self._waiting = deque(run.shards)
        self._ahead: _Shard | None = None
        self._open: dict[str, _Shard] = {}
        self._publishing: deque[tuple[_Shard, Future[Finished]]] = deque()
        self._known: deque[Outcome] = deque()
        self._charged = time.monotonic()
        self._planner = ThreadPoolExecutor(1, "plan-shard")
        self._publisher = ThreadPoolExecutor(1, "publish-shard")

    def outcomes(self) -> Generator[Outcome, None, None]:
        """What became of each shard, as soon as it is known.

        When it is closed or interrupted, complete shards are still published, and the journals of the others hold
        what they have. A failure of the engine that is of no shard goes by the engine's name.
        """
        with self._publisher, self._planner:
            try:
                while (first := self._next(wait=True)) is not None:
                    yield from self._call(first)
                yield from self._outcomes(every=True)
            finally:
                for shard in (*self._open.values(), *([self._ahead] if self._ahead else [])):
                    shard.give_up()

    def _call(self, first: _Shard) -> Iterator[Outcome]:
        """One call of the engine."""
        try:
            with closing(_closable(self._asset.results(self._inputs(first)))) as results:
                for result in results:
                    self._take(result)
                    yield from self._outcomes()
            for shard in list(self._open.values()):
                self._end(shard)  # its other rows will not come
        except KopubError as error:
            open_ones = list(self._open.values())
            for shard in open_ones:
                self._fail(shard, error)
            if not open_ones:
                self._known.append((self._asset.engine_section or self._asset.name, error))

    def _inputs(self, first: _Shard) -> Iterator[Any]:
        """What the engine needs for one shard after the other, taken as it has room for it."""
        shard: _Shard | None = first
        while shard is not None:
            try:
                todo = shard.planned.result().todo
                for row, given in zip(todo, self._asset.inputs(shard.name, todo), strict=True):
                    if shard.failure is not None:
                        break
                    shard.asked[row.id] = row
                    yield given
            except KopubError as error:
                shard.failure = shard.failure or error
            shard.handed_out = True
            if shard.complete:
                self._end(shard)
            shard = self._next(wait=False)
        if not self._waiting:
            self._run.handed_out()

    def _take(self, result: Any) -> None:
        row_id = self._asset.row_id(result)
        shard = next((shard for shard in self._open.values() if row_id in shard.asked), None)
        if shard is None:
            raise unasked(row_id)
        work, row = shard.planned.result(), shard.asked.pop(row_id)
        self._charge(work)
        figures = self._asset.engine.take_figures()
        for name, value in figures.items():
            shard.figures[name] += value
        try:
            work.take(row_id, self._asset.columns(row, result), figures)
        except StoreError as error:
            shard.failure = shard.failure or error
        if shard.complete:
            self._end(shard)
        for other in self._open.values():
            try:
                other.planned.result().keep_up()
            except StoreError as error:
                other.failure = other.failure or error

    def _next(self, wait: bool) -> _Shard | None:
        """The next shard with rows for the engine, opened; those without end on the way.

        None when there is none, and, without `wait`, when none can follow in the same call of the engine.
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
                work.settle()
            except StoreError as error:
                self._fail(shard, error)
                continue
            if work.todo:
                return shard
            self._end(shard)
        return None

    def _begin(self, shard: _Shard) -> None:
        self._waiting.popleft()
        self._open[shard.name] = shard
        self._ahead = self._plan(wait=False)

    def _plan(self, wait: bool) -> _Shard | None:
        """Lock the next shard and find out what there is to do; None when there is none, or another run has it."""
        if not self._waiting:
            return None
        name, held = self._waiting[0], ExitStack()
        try:
            held.enter_context(self._asset.store.exclusive(self._asset.name, name, wait))
        except TableBusy:
            return None
        except StoreError as error:
            failed: Future[ShardWork] = Future()
            failed.set_exception(error)
            return _Shard(name, held, failed)
        if wait:
            self._charged = time.monotonic()
        return _Shard(name, held, self._planner.submit(ShardWork, self._asset, name, self._run))

    def _end(self, shard: _Shard) -> None:
        """Publish an open shard, or fail it; no more results of it will come."""
        if shard.failure is not None:
            return self._fail(shard, shard.failure)
        work = shard.planned.result()
        self._charge(work)
        if work.todo:
            work.figures.update({**self._asset.engine.report(), **shard.figures})
        del self._open[shard.name]
        self._publishing.append((shard, self._publisher.submit(shard.publish)))
        return None

    def _fail(self, shard: _Shard, error: KopubError) -> None:
        del self._open[shard.name]
        shard.give_up()
        self._known.append((shard.name, shard.failure or error))

    def _outcomes(self, every: bool = False) -> Iterator[Outcome]:
        """What is known by now; with `every`, once all is published."""
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
        while self._known:
            yield self._known.popleft()

    def _charge(self, work: ShardWork) -> None:
        now = time.monotonic()
        work.seconds += now - self._charged
        self._charged = now


def _closable(results: Iterable[Any]) -> Generator[Any, None, None]:
    """`results`, which are closed when this is."""
    yield from results
