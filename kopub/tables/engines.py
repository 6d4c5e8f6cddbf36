"""The engines of a run: prepared in time, asked ahead of their steps, released."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from kopub.engine import Engine
from kopub.errors import ClosedGate
from kopub.store import run_records
from kopub.tables.asset import EngineCalls, EngineTable, RunContext, ShardAsset
from kopub.tables.forward import ForwardCalls
from kopub.tables.plan import Survey


class RunEngines:
    """The engines of a run, from its first step to its last.

    The engines with rows to make are prepared twice: at the start of each step, so that servers and models are up in
    time, and when a step has handed out its last row, so that the next one finds its client processes running. If
    servers work side by side, the next one is also given rows then, and its step takes the results. So is a server
    whose tables have a shard while no other server works, as those of page vectors while pages are examined: that
    takes the cores and leaves the card idle.
    """

    def __init__(
        self,
        assets: Mapping[str, ShardAsset],
        shards: Sequence[str],
        look: Callable[[], Survey],
        graph: Sequence[type[ShardAsset]],
    ) -> None:
        """Take the `assets` of a run over `shards`; `look` says what is stale then.

        `graph` lists every asset after its parents.
        """
        self._assets, self._shards, self._look, self._graph = assets, shards, look, graph
        self._wanted: dict[str, ShardAsset] = {}
        """The assets with rows to make, by name, in the order in which their engines are asked for."""
        self._has_begun = False
        self._to_come = set(assets)
        self._over: set[str] = set()
        self._drained: set[str] = set()
        """The assets whose engines have been given their last rows."""
        self._left_out: dict[str, Set[str]] = {}
        """The shards without which the steps after each step go on."""
        self._published: dict[str, set[str]] = defaultdict(set)
        """The shards that each step has published so far."""
        self._forward: dict[str, ForwardCalls] = {}
        self._lock = threading.RLock()
        """Held while servers are asked: a step publishes in one thread and gives its engine rows in another."""
        self._at_work: ShardAsset | None = None
        """The asset whose step is running; its engine takes no other rows meanwhile."""

    def begin(self) -> None:
        """Find out which engines have rows to make, if this is the first step.

        Raises `KopubError` if any step could only fail, which might otherwise take hours to show.
        """
        if self._has_begun:
            return
        for asset in self._assets.values():
            asset.require_possible()
        if any(asset.engines for asset in self._assets.values()):
            names = self._look().with_rows_to_make(list(self._assets), self._shards)
            # If two servers do not fit side by side, the one asked for first is started.
            names.sort(key=lambda name: -urgency(self._assets[name], self._graph))
            self._wanted = {name: self._assets[name] for name in names}
        # Not before: every step of a run that cannot end well is refused, whichever comes first.
        self._has_begun = True

    def has_rows_to_make(self, asset: ShardAsset) -> bool:
        """Return whether the engine of `asset` had rows to make when the run began."""
        return asset.name in self._wanted

    @contextmanager
    def during(self, asset: ShardAsset) -> Iterator[None]:
        """Prepare the step of `asset` and the steps after it.

        Engines that no later step needs are released at the end. If the step fails as a whole, the steps that wait for
        it are dropped; an interrupt drops all.
        """
        with self._lock:
            if asset.name not in self._answered:
                self._take_engine(asset)
            self._prepare(first=asset)
        engines = _engines_of([asset, *self._coming])
        self._to_come.discard(asset.name)
        self._at_work = asset
        try:
            yield
        except Exception:
            if asset.name not in self._left_out:
                waiting = {asset.name}
                # Each asset is listed after its parents, so that this finds all that wait, directly or not.
                for other in self._assets.values():
                    if waiting.intersection(other.tables_read):
                        waiting.add(other.name)
                self._drop(waiting - {asset.name})
            raise
        except BaseException:
            self._drop({*self._to_come})
            raise
        finally:
            if asset.name in self._forward:
                self._forward.pop(asset.name).stop()
            self._over.add(asset.name)
            self._at_work = None
            still_needed = _engines_of(self._coming)
            for key, engine in engines.items():
                if key not in still_needed:
                    engine.release()
            self._ask_next()

    def _take_engine(self, asset: ShardAsset) -> None:
        """Stop the other calls of the engine of `asset`.

        In any order of the steps, no two of them ask one engine at once.
        """
        with self._lock:
            for name in self._forward.keys() - {asset.name} - self._answered:
                if _share_engine(asset, self._assets[name]):
                    self._forward.pop(name).stop()

    def end(self) -> None:
        """Stop what was begun for steps that did not come, and release their engines."""
        engines = _engines_of(self._coming)
        self._drop(set(self._to_come))
        for engine in engines.values():
            engine.release()

    def leave_out(self, asset: ShardAsset, shards: Set[str]) -> None:
        """Note that the steps after that of `asset` go on without some shards."""
        self._left_out[asset.name] = shards

    def published(self, asset: ShardAsset, shard: str) -> None:
        """Note a published shard of `asset`, whose rows servers may be given."""
        with self._lock:
            self._published[asset.name].add(shard)
            for name, forward in self._forward.items():
                other = self._assets[name]
                if asset.name in other.tables_read and shard in self._ready_shards(other):
                    forward.add(shard)
            self._ask_next()

    def left_out(self, asset: ShardAsset) -> set[str]:
        """Return the shards that failed in a step before that of `asset`."""
        return {shard for name in asset.tables_read for shard in self._left_out.get(name, ())}

    def run_of(self, asset: ShardAsset, run: RunContext) -> RunContext:
        """Return the run of `asset` with its calls, without the shards that failed before."""
        left_out = self.left_out(asset)
        return replace(
            run,
            shards=tuple(shard for shard in run.shards if shard not in left_out),
            calls=self._forward.get(asset.name, EngineCalls()),
            inputs_exhausted=partial(self._hand_over, asset),
        )

    def _hand_over(self, asset: ShardAsset) -> None:
        """Let the next steps begin, once the engine of `asset` has its last row."""
        with self._lock:
            self._drained.add(asset.name)
            self._prepare(using=asset)
            self._ask_next()

    def _prepare(self, first: ShardAsset | None = None, using: ShardAsset | None = None) -> None:
        """Prepare the engines of coming steps, those of `first` before the others.

        An engine that several steps share is prepared for the first of them. Servers come first, because importing a
        model here may take seconds. An engine that is asked ahead of its step is left alone, unless it belongs to
        `using`, which has given it its last row, or to a step whose rows it has answered.
        """
        answered = self._answered
        at_work = self._forward.keys() - answered - ({using.name} if using else set())
        prepared = set(_engines_of(self._assets[name] for name in at_work))
        coming = [asset for asset in self._coming if asset.name not in answered]
        for asset in sorted(coming, key=lambda asset: (not needs_server(asset), asset is not first)):
            engines = _engines_of([asset])
            if prepared.isdisjoint(engines):
                asset.prepare()
                prepared.update(engines)

    def _ask_next(self) -> None:
        """Give rows to the next server whose step has not begun, if their tables exist.

        Nothing is asked unless all servers of the run work side by side: one that needs the card to itself keeps it
        until its step ends. A step that waits for scores is not asked ahead of them.
        """
        served = [asset for asset in self._wanted.values() if needs_server(asset)]
        if not all(engine.serves_beside_others for engine in _engines_of(served).values() if engine.needs_server):
            return
        with self._lock:
            answered = self._answered
            # A step whose rows were answered before it leaves its engine to others.
            at_work = None if self._at_work is None or self._at_work.name in answered else self._at_work
            for at, asset in enumerate(served):
                if asset.name not in self._to_come or asset.name in self._forward:
                    continue
                if at_work is not None and _share_engine(asset, at_work):
                    return
                before: set[str] = set()
                sharing: set[str] = set()
                for other in served[:at]:
                    before.add(other.name)
                    if _share_engine(asset, other):
                        sharing.add(other.name)
                is_next = before <= self._over | self._drained | answered
                if not (isinstance(asset, EngineTable) and asset.spans_shards and not asset.after):
                    continue
                parents = self._assets.keys() & set(asset.tables_read)
                no_server_works = self._forward.keys() <= answered and (at_work is None or not needs_server(at_work))
                if not (sharing <= self._over | answered and ((is_next and parents <= self._over) or no_server_works)):
                    continue
                shards = self._ready_shards(asset)
                # An engine that failed its self-test is not asked: its step would refuse it.
                result = run_records.find(asset.corpus.folder, asset.engine.recipe())
                if shards and (result is None or result.passed):
                    take_engine = partial(self._take_engine, asset)
                    self._forward[asset.name] = ForwardCalls(asset, shards, self._shards, self._ask_next, take_engine)
                    return

    def _ready_shards(self, asset: ShardAsset) -> list[str]:
        """Return the shards of which every table that `asset` reads is finished."""
        ready = set(self._shards) - self.left_out(asset)
        # A table of another run, or of a step that is over, has all the shards that it will have.
        for name in self._assets.keys() & set(asset.tables_read) - self._over:
            ready &= self._published[name]
        return [shard for shard in self._shards if shard in ready]

    def _drop(self, names: Set[str]) -> None:
        """Drop steps that will not run, and stop what was begun for them."""
        self._to_come -= names
        for name in names & self._forward.keys():
            self._forward.pop(name).stop()

    @property
    def _answered(self) -> set[str]:
        """The assets whose rows their engine has answered before their step ends."""
        with self._lock:
            return {name for name, forward in self._forward.items() if forward.is_answered}

    @property
    def _coming(self) -> list[ShardAsset]:
        return [asset for name, asset in self._wanted.items() if name in self._to_come]


def require_tested(asset: ShardAsset, run: RunContext) -> None:
    """Raise `ClosedGate` if the engine failed its last self-test.

    Only a test of the engine's present recipe counts, and an override with a reason opens the gate. An untested engine
    may run; before a GPU engine makes its first table, the log says how to test it.
    """
    if asset.engine is None:
        return
    result = run_records.find(asset.corpus.folder, asset.engine.recipe())
    gates = asset.resources["gates"]
    if result is None:
        can_be = asset.engine_section in run_records.TESTED
        if can_be and asset.gpus and not asset.store.published(asset.name):
            run.log(
                f"{asset.name}: its engine was never tested on this machine: `kopub doctor` tests it on the samples"
            )
        return
    if result.passed:
        return
    reason = gates.self_test_override.strip()
    if not reason:
        form = (
            "the {section} engine {engine} {reason}; fix it and run `kopub doctor` again, or give "
            "gates.self_test_override a reason to run it anyway"
        )
        raise ClosedGate(form, result.section, result.engine, str(result))
    run.warn(f"{asset.name}: its self-test {result}; it runs anyway, because: {reason}")


def urgency(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> int:
    """Return a priority among ready steps: those without a server, then those awaited most.

    What reads no table comes last of its equals, so that the few questions keep no server from the pages.
    """
    waiting = {type(asset)}
    for other in graph:
        if waiting.intersection(other.parents):
            waiting.add(other)
    first = 0 if needs_server(asset) else len(graph)
    return 2 * (first + len(waiting)) + bool(asset.reads)


def needs_server(asset: ShardAsset) -> bool:
    return any(engine.needs_server for engine in asset.engines)


def _engines_of(assets: Iterable[ShardAsset]) -> dict[int, Engine]:
    """Return the engines of the assets, each once, by its identity."""
    return {id(engine): engine for asset in assets for engine in asset.engines}


def _share_engine(one: ShardAsset, other: ShardAsset) -> bool:
    return not _engines_of([one]).keys().isdisjoint(_engines_of([other]))
