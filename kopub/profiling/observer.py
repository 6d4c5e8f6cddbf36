"""The observer of this machine's cards, cores and model servers during a run."""

import os
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Self

import psutil
import pyarrow as pa

from kopub.config.environment import read_environment
from kopub.config.profile_files import named_from_anywhere
from kopub.config.settings import ROOT, Settings
from kopub.engine import Engine
from kopub.errors import EngineError
from kopub.gpu import GIB, GpuCard, NoGpuFigures, Readings, Sampler, open_cards
from kopub.pages.indexing import index
from kopub.profiling.timeline import Activity, Span, activities
from kopub.vllm.endpoint import BadProbe, Endpoint, UnreachableServer, sum_by_name
from kopub.vllm.lease import RunningServer, list_servers
from kopub.vllm.supervisor.server_state import Phase

SECONDS = 0.1
"""Seconds between two readings of the kernel's sums."""
_SECONDS_OF_PROCESSES = 1.0
"""Seconds between two readings if every process has to be read."""


class CoreShares(NamedTuple):
    """Shares of all cores, 0 to 1: `busy` here, or `stolen` by the host."""

    busy: float
    stolen: float = 0.0


class Cores:
    """A meter of the cores; call `shares` every `seconds`."""

    def __init__(self) -> None:
        # Some kinds of containers (gVisor) show only zeros.
        self._sums = sum(psutil.cpu_times()) > 0
        self.seconds = SECONDS if self._sums else _SECONDS_OF_PROCESSES
        self._at, self._before = time.monotonic(), {} if self._sums else process_seconds()
        if self._sums:
            # It counts from the call before, so the first one only begins.
            psutil.cpu_times_percent()

    def shares(self) -> CoreShares:
        """Return the shares since the last call.

        If the kernel keeps no sums, the stolen share is unknown, and given as 0.
        """
        if self._sums:
            times = psutil.cpu_times_percent()
            stolen = getattr(times, "steal", 0.0)
            busy = 100 - times.idle - getattr(times, "iowait", 0.0) - stolen
            return CoreShares(max(0.0, busy) / 100, stolen / 100)
        now, seconds = time.monotonic(), process_seconds()
        spent = sum(max(0.0, total - self._before.get(pid, 0.0)) for pid, total in seconds.items())
        elapsed, self._at, self._before = now - self._at, now, seconds
        return CoreShares(min(1.0, spent / (elapsed * (os.cpu_count() or 1))) if elapsed else 0.0)


def process_seconds() -> dict[int, float]:
    """Return the CPU seconds of every visible process, by its id."""
    seconds = {}
    for process in psutil.process_iter():
        try:
            times = process.cpu_times()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        seconds[process.pid] = times.user + times.system
    return seconds


_SAMPLE_SECONDS = 0.1
_ASK_SECONDS = 0.5
"""Seconds between two polls of the servers; each reads a page of figures from every replica."""
LATE_SECONDS = 1.2
"""Seconds to wait for a server's last answers: it counts each after sending it, and is polled twice in that time."""

Counts = list[tuple[float, float]]
"""(Unix time, count so far), in chronological order."""


@dataclass
class ServerHistory:
    """The starts of one server, and the counts of its answers over time.

    A start lasts until the server was ready. `requests`, `prompt_tokens`, `generated_tokens` and `cache_hits` count
    from its start.
    """

    model: str
    starts: list[Span] = field(default_factory=list)
    requests: Counts = field(default_factory=list)
    prompt_tokens: Counts = field(default_factory=list)
    generated_tokens: Counts = field(default_factory=list)
    cache_hits: Counts = field(default_factory=list)


@dataclass
class Observations:
    """Readings of the cards, the busy share of the cores over time, and the servers.

    `stolen` is the share of the cores that the host of a virtual machine used for other work. `no_gpu` says why there
    are no readings of cards.
    """

    cards: Sequence[GpuCard] = ()
    no_gpu: str = ""
    readings: Readings = field(default_factory=Readings)
    cores: Counts = field(default_factory=list)
    stolen: Counts = field(default_factory=list)
    servers: dict[str, ServerHistory] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """The device of the activity: the GPUs if there are any, else the cores."""
        return "GPU" if self.cards else "cores"

    @property
    def activity(self) -> list[Activity]:
        """The busy share of the device over time, as the mean of all cards."""
        if not self.cards:
            return activities(self.cores)
        return activities((at, sum(card.busy for card in cards) / len(cards)) for at, cards in self.readings.taken)

    @property
    def memory(self) -> Counts:
        """The GiB in use over time, on all cards together."""
        return [(at, sum(card.memory for card in cards) / GIB) for at, cards in self.readings.taken]


def cards_of(engines: Mapping[str, Engine]) -> list[str] | None:
    """Return the cards that the engines use; None, for all cards, if they name none."""
    return sorted({card for engine in engines.values() for card in engine.cards}) or None


class Observer:
    """A context manager whose threads fill `Observations` while it is entered.

    `names` are the cards in the form of CUDA_VISIBLE_DEVICES; the default is all cards of the machine.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.observed = Observations()
        try:
            self.observed.cards = open_cards(names)
        except NoGpuFigures as reason:
            self.observed.no_gpu = str(reason)
        self._sampler = Sampler(self.observed.cards, _SAMPLE_SECONDS)
        self.observed.readings = self._sampler.readings
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._watch_cores, self._ask)]
        self._unfinished: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._sampler.__enter__()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            time.sleep(LATE_SECONDS)
        self._ended.set()
        for thread in self._threads:
            thread.join()
        self._sampler.__exit__()
        self.observed.no_gpu = self.observed.no_gpu or self._sampler.problem

    def now(self) -> float:
        """Read the cards, and return the Unix time.

        Calls at the beginning and the end of a short period ensure that both have a reading.
        """
        return self._sampler.take()

    def _watch_cores(self) -> None:
        cores = Cores()
        while not self._ended.wait(cores.seconds):
            now, shares = time.time(), cores.shares()
            self.observed.cores.append((now, shares.busy))
            self.observed.stolen.append((now, shares.stolen))

    def _ask(self) -> None:
        while True:
            try:
                for server in list_servers():
                    self._look_at(server)
            except (EngineError, OSError):
                pass  # a server's state is just being written, or there is no folder of servers: poll again
            if self._ended.wait(_ASK_SECONDS):
                return

    def _look_at(self, server: RunningServer) -> None:
        state = server.state
        history = self.observed.servers.setdefault(server.key, ServerHistory(server.specification.model))
        if state.phase is Phase.STARTING:
            self._unfinished.setdefault(server.key, state.since)
        if state.phase is not Phase.READY:
            return
        if (begun := self._unfinished.pop(server.key, None)) is not None:
            history.starts.append(Span(begun, max(state.since, begun)))
        endpoint = Endpoint(
            state.urls, state.api_key, server.specification.model, server.specification.runner, images=False
        )
        before = time.time()
        try:
            sums = sum_by_name(endpoint.samples())
        except (UnreachableServer, BadProbe, TimeoutError):
            return
        now = (before + time.time()) / 2  # a busy server takes seconds to answer
        history.requests.append((now, sums["vllm:request_success_total"]))
        history.prompt_tokens.append((now, sums["vllm:prompt_tokens_total"]))
        history.generated_tokens.append((now, sums["vllm:generation_tokens_total"]))
        hits = sums["vllm:prefix_cache_hits_total"] + sums["vllm:mm_cache_hits_total"]
        history.cache_hits.append((now, hits))


_SHARDS = 2
"""Shards of a sample home: two, so that the time from one shard to the next is seen."""
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_SCHEMA = pa.schema([("id", pa.string()), ("image", _IMAGE), ("license", pa.string())])


@dataclass(frozen=True)
class SampleHome:
    """A home with some pages of a corpus: its folders, shards, number of pages, environment."""

    folder: Path
    dagster: Path
    shards: tuple[str, ...]
    pages: int
    environment: Mapping[str, str]


def make_sample_home(folder: Path, settings: Settings, pages: int, environ: Mapping[str, str]) -> SampleHome:
    """Create `folder` afresh with up to `pages` pages from evenly spaced shards.

    Tables, release and model answers are kept in the folder, whatever the profile and `environ` say. Raises
    `SourceError`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    source, dagster = folder / "source", folder / "dagster"
    source.mkdir(parents=True)
    dagster.mkdir()
    (dagster / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", "utf-8")
    keys = settings.corpus.manifest.keys
    shards = min(_SHARDS, len(keys), pages)
    for number in range(shards):
        count = pages * (number + 1) // shards - pages * number // shards
        key = keys[number * len(keys) // shards]
        file = source / f"pages-{number:02d}.arrow"
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, _SCHEMA) as writer:
            for row in settings.corpus.rows(key):
                # Pages whose bytes cannot be read do not count.
                if row.data is None or row.problem is not None:
                    continue
                image = {"bytes": bytes(row.data), "path": None}
                values = {"id": row.page_id, "image": image, "license": row.license}
                writer.write_table(pa.Table.from_pylist([values], _SCHEMA))
                count -= 1
                if not count:
                    break
    manifest = index(str(source), folder)
    own = {
        "KOPUB_HOME": str(folder),
        "KOPUB_PROFILE": named_from_anywhere(read_environment(environ).profile),
        "DAGSTER_HOME": str(dagster),
        "KOPUB_CORPUS__URL": "",
        "KOPUB_STORE__URL": str(folder / "store"),
        "KOPUB_RELEASE__FOLDER": str(folder / "release"),
        "KOPUB_SHARDS_PER_RUN": "null",
    }
    for section in ("layout", "recognition", "embedding"):
        # An answer kept from another run would take no time here.
        if hasattr(getattr(settings, section), "reuse_folder"):
            own[f"KOPUB_{section.upper()}__REUSE_FOLDER"] = str(folder / "reuse" / section)
    # The names of `own` are in capitals, and those of `environ` may be written otherwise.
    inherited = {name: value for name, value in environ.items() if name.upper() not in own}
    return SampleHome(folder, dagster, tuple(manifest.keys), manifest.rows, {**inherited, **own})


def own_environment() -> dict[str, str]:
    """Return this process's environment, with the project first on the import path of children."""
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
