"""The queue through which a server is given rows before their step begins."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from queue import SimpleQueue
from typing import Any

from kopub.errors import KopubError, StoreError
from kopub.tables.asset import EngineCalls, EngineTable, RowTable
from kopub.tables.rows import Key, RowSpec

_TO_STOP = 2.0
"""Seconds that the thread has to stop at its engine's next result, before the engine is taken from it."""
_MOST_EARLY = 4_000
"""Most rows before the step: their results are only in memory, and a killed run loses them, two minutes of a card."""


class ForwardCalls(EngineCalls):
    """A call of an engine in a thread, begun before the step of its rows.

    The call reads forward: it is given the rows that the shards lack, and keeps its results in a queue. Nothing is
    locked, journalled or published by it. Once the step has begun, the same call is given the rest of the step's rows,
    and the step takes the results. So the engine is never idle between the two. A call that has read all shards before
    the step begins ends then, and leaves the engine to other steps.

    `shards` have all that the rows are made from; `add` gives those that come to have it later. `leave_engine` is
    called when the call has ended with all its results, and `take_engine` before the step asks for rows beyond them.
    """

    def __init__(
        self,
        asset: EngineTable,
        shards: Iterable[str],
        all_shards: Iterable[str],
        leave_engine: Callable[[], None],
        take_engine: Callable[[], None],
    ) -> None:
        self._asset, self._leave_engine, self._take_engine = asset, leave_engine, take_engine
        self._shards: SimpleQueue[str | None] = SimpleQueue()
        """The shards to read; None once the step has begun."""
        self._unread = set(all_shards)
        for shard in shards:
            self.add(shard)
        self._began = time.monotonic()
        self._results: SimpleQueue[tuple[Any, Mapping[str, float]] | BaseException | None] = SimpleQueue()
        self._early_keys: dict[str, Key] = {}
        """The rows that the engine was given before the step began, by id."""
        self._awaited: set[str] = set()
        """Those of them that the step has asked for."""
        self._figures: Mapping[str, float] = {}
        self._engine_figures: Mapping[str, float | str] | None = None
        """What the engine reports about an ended call."""
        self._step: Iterator[Any] | None = None
        """The inputs of the step, once it has begun."""
        self._has_begun, self._is_over = threading.Event(), False
        self._has_ended = False
        """True if the call was given all its rows before the step began."""
        self._lock = threading.Lock()
        """Held while the call ends or the step begins."""
        self._thread = threading.Thread(target=self._call, name=f"forward-{asset.name}", daemon=True)
        self._thread.start()

    def add(self, shard: str) -> None:
        """Let the call read a further shard."""
        self._shards.put(shard)

    @property
    def is_answered(self) -> bool:
        """True if the call has ended with all its results, and has left its engine."""
        return self._engine_figures is not None and not self._is_over

    def has_been_given(self, spec: RowSpec) -> bool:
        if self._is_over or spec.id not in self._early_keys:
            return False
        if self._early_keys[spec.id] != spec.key:
            raise StoreError("{name} changed while the run went on: run it again", spec.id)
        self._awaited.add(spec.id)
        return True

    def results(self, asset: EngineTable, inputs: Iterator[Any]) -> Iterable[Any]:
        if self._is_over:
            self._take_engine()
            yield from asset.results(inputs)
            return
        self.seconds_before_step = time.monotonic() - self._began
        with self._lock:
            self._step = inputs
            self._begin()
        # An ended call takes no more rows; looking for one that it was not given opens the step's shards.
        unasked = list(islice(inputs, 1)) if self._has_ended else []
        early: dict[str, tuple[Any, Mapping[str, float]]] = {}
        try:
            while (answer := self._results.get()) is not None:
                if isinstance(answer, BaseException):
                    raise answer
                row_id = getattr(answer[0], asset.id_of_result)
                early[row_id] = answer
                # The step opens shard after shard, and a result may come before the shard of its row is open.
                for ready in [row_id for row_id in early if row_id not in self._early_keys or row_id in self._awaited]:
                    result, self._figures = early.pop(ready)
                    yield result
            if unasked:
                self._engine_figures = None
                self._take_engine()
                for result in asset.results(chain(unasked, inputs)):
                    self._figures = asset.take_figures()
                    yield result
            for ready in [row_id for row_id in early if row_id in self._awaited]:
                result, self._figures = early.pop(ready)
                yield result
        finally:
            self.stop()

    def take_figures(self, asset: RowTable) -> Mapping[str, float]:
        if self._is_over and not self._figures:
            return asset.take_figures()
        figures, self._figures = self._figures, {}
        return figures

    def engine_figures(self, asset: RowTable) -> Mapping[str, float | str]:
        return asset.figures() if self._engine_figures is None else self._engine_figures

    def stop(self) -> None:
        """End the call at its next row or result, and wait a little for that."""
        self._is_over = True
        self._begin()
        self._thread.join(_TO_STOP)

    def _begin(self) -> None:
        self._has_begun.set()
        self._shards.put(None)

    def _call(self) -> None:
        try:
            for result in self._asset.results(self._inputs()):
                self._results.put((result, self._asset.take_figures()))
                if self._is_over:
                    break
            if self._has_ended:
                self._engine_figures = self._asset.figures()
        except BaseException as error:  # it is raised in the step
            self._results.put(error)
        finally:
            self._results.put(None)
        if self.is_answered:
            self._leave_engine()

    def _inputs(self) -> Iterator[Any]:
        """Yield what the shards lack, then the step's rows, unless all shards were read."""
        yield from self._read_forward()
        with self._lock:
            self._has_ended = not self._unread and not self._has_begun.is_set()
        if self._has_ended:
            return
        self._has_begun.wait()
        if self._step is not None and not self._is_over:
            yield from self._step

    def _read_forward(self) -> Iterator[Any]:
        asset = self._asset
        while self._unread and (shard := self._shards.get()) is not None:
            # What is wrong with a shard is reported by the step.
            with suppress(KopubError):
                if self._has_begun.is_set():
                    return
                specs = list(asset.rows(shard))
                stored = asset.store.find(asset.name, shard)
                is_usable = stored is not None and stored[0].schema.equals(asset.schema)
                finished = [stored[0]] if stored is not None and is_usable else []
                finished.append(asset.store.journal(asset.name, shard, asset.schema).rows())
                todo = [spec for spec in asset.unfinished(specs, *finished) if spec.predetermined is None]
                if any(spec.id in self._early_keys for spec in todo):
                    return  # the results of the two shards could not be told apart
                for spec, engine_input in zip(todo, asset.inputs(shard, todo), strict=True):
                    if self._has_begun.is_set() or len(self._early_keys) >= _MOST_EARLY:
                        return
                    self._early_keys[spec.id] = spec.key
                    yield engine_input
                self._unread.discard(shard)
