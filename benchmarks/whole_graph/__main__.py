"""Measure the whole graph as users run it, each stage against its own rate alone.

    python -m benchmarks.whole_graph --profile h200 --pages 2200 --out OUT
    python -m benchmarks.whole_graph --profile cpu --pages 12 --cases warm,own --out OUT

Makes a corpus of unique pages, runs `dagster asset materialize` on it with the servers of the profile, and watches the
cards, the cores and the servers meanwhile. After each case it prints a table, which also accounts for the rest of the
time, and writes whole_graph.html (with a timeline) and whole_graph.json into OUT. The cases, in the given order:

    cold      the servers are stopped before; a quarter of the pages. Kernel caches are the machine's: a first start on
              a fresh machine finds none, the next one finds those of the first.
    warm      the servers are running
    shards8   warm, the same pages in eight shards
    two_runs  cold; page vectors and OCR in two simultaneous runs, after layout
    side_by_side  warm; page vectors in a run of their own beside everything else that follows from layout
    layout    only raw pages and layout
    reading   raw pages, layout and OCR, as others count; reading+layout.dpi=150 with smaller pages (random weights)
    ocr       warm; only OCR, on an existing layout
    two_gpus  like ocr, with the servers of OCR on two cards and twice as many replicas, clients and requests
    own       each stage of the other cases by itself, on running servers: see benchmarks/whole_graph/stage_rates.py.
              A machine that others use, too, is not equally fast at all times, so the mean of several counts
              (`own,layout,own`).

`ocr+recognition.line_height=24` is the case `ocr` with a changed key of the profile; cases with other servers start
those with a few pages first. Random weights (`--random-weights recognition=FOLDER embedding=FOLDER`, folders with
configuration and tokenizer) take as long as real ones. Their layout is a grid of eight regions of 812x422, their
answers have 64 tokens on average, and a page's text consists of words from the samples, about 1,500 tokens: see
benchmarks/whole_graph/grid_engines.py. Without random weights, the profile's own engines read the pages.

Activity is the busy share of the cards by NVML, read ten times a second, or of the cores on a machine without a card.
Core milliseconds a page are those of all processes of the machine, by kind: see benchmarks/whole_graph/host.py.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean
from typing import Any

from rich.console import Console

from benchmarks.whole_graph.cases import ALONE, CASES, Case, case_of
from benchmarks.whole_graph.grid_engines import DPI
from benchmarks.whole_graph.host import HostAccount, by_stage
from benchmarks.whole_graph.setup import (
    OWN_PAGES,
    Home,
    dump,
    layout_weights,
    make_home,
    parsed_value,
    write_plugin,
    written_profile,
)
from benchmarks.whole_graph.tables import Measured, comparisons, console_tables, figures, html_section
from kopub.cli.profile_display import stages_of
from kopub.config.settings import Settings
from kopub.errors import EngineError
from kopub.folders import ROOT
from kopub.profiling.observer import Observer, cards_of
from kopub.profiling.report import render, report
from kopub.profiling.timeline import Span
from kopub.tables.graph import GRAPH
from kopub.vllm.lease import list_servers, stop_server
from kopub.vllm.supervisor.server_state import Phase

WARM_UP_PAGES = 48
_GRACE = 20.0
"""Seconds for a stopped command to end."""


@dataclass
class Benchmark:
    """The benchmark on this machine: its arguments, and the measurements so far."""

    arguments: argparse.Namespace
    cases: Sequence[Case]
    out: Path
    work: Path
    began: float = field(default_factory=time.monotonic)
    console: Console = field(default_factory=lambda: Console(width=190, highlight=False))
    measured: list[Measured] = field(default_factory=list)
    own: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """The pages a second of each stage by itself, once per measurement."""

    @property
    def by_itself(self) -> dict[str, float]:
        return {name: mean(rates) for name, rates in self.own.items()}

    @property
    def seconds_left(self) -> float:
        return self.arguments.limit_seconds - (time.monotonic() - self.began)

    @cached_property
    def environment(self) -> dict[str, str]:
        """Return the commands' environment: this checkout first in the path, and random weights."""
        plugin = write_plugin(self.work / "plugin")
        path = [str(ROOT), str(plugin), *filter(None, [os.environ.get("PYTHONPATH")])]
        kept = {name: text for name, text in os.environ.items() if not name.startswith("KOPUB_")}
        # It has its own servers, so that it stops nobody else's, and they end with it.
        return {**kept, "PYTHONPATH": os.pathsep.join(path), "KOPUB_RUNTIME": str(self.work / "runtime")}

    @cached_property
    def random(self) -> dict[str, str]:
        """The folders of random weights by section of the profile."""
        given = dict(pair.split("=", 1) for pair in self.arguments.random_weights or ())
        if given and "layout" not in given:
            given["layout"] = str(layout_weights(self.work / "layout_weights", self.environment))
        return given

    def home(self, name: str, case: Case, pages: int, shards: int) -> Home:
        changes = {**dict(parsed_value(text) for text in self.arguments.set), **case.changes}
        profile = written_profile(self.work / "profiles" / f"{name}.yaml", self.arguments.profile, self.random, changes)
        dpi = changes.get("layout.dpi", DPI)
        return make_home(self.work / name, profile, self.arguments.source, pages, shards, dpi, self.environment)

    def run(self, number: int, case: Case) -> None:
        """Measure one case, with a message."""
        label = f"{number:02d}_{case.name.replace('/', '_')}"
        if case.base == "own":
            self.run_own(label, case)
            return
        started = time.monotonic()
        pages = max(case.shards, round(self.arguments.pages * case.share))
        home = self.home(label, case, pages, case.shards)
        settings = home.settings()
        if case.cold:
            stop_servers()
        elif not {key for name, key in server_keys(settings).items() if name in case.stages} <= ready_servers():
            self.warm_up(label, case)
        if case.before:
            self.materialize(home, [case.before], "before")
        self.console.print(f"{case.name}: {pages} pages made ready in {time.monotonic() - started:.0f} s")
        measured = self.observe(case, home, settings, pages)
        self.measured.append(measured)
        self.show(measured)

    def observe(self, case: Case, home: Home, settings: Settings, pages: int) -> Measured:
        with Observer(cards_of(settings.engines)) as observer, HostAccount() as host:
            time.sleep(0.5)
            began = time.time()
            codes = self.materialize(home, case.selections, "run")
            ended = time.time()
        span = Span(began, ended)
        stages = stages_in(home, case)
        return Measured(
            case=case,
            pages=pages,
            run=report(span, stages, observer.observed, server_keys(settings)),
            observed=observer.observed,
            host=by_stage(host.samples, [(stage.name, stage.span) for stage in stages], ended),
            servers=server_keys(settings),
            failures=[f"a command ended with status {code}" for code in codes if code],
        )

    def materialize(self, home: Home, selections: Sequence[str], name: str) -> list[int]:
        """Run a command for each selection, all at once, and return their statuses."""
        keys = f"{home.keys[0]}...{home.keys[-1]}"
        running = []
        for number, chosen in enumerate(selections):
            command = [sys.executable, "-m", "dagster", "asset", "materialize", "--select", chosen]
            log = (home.folder / f"{name}_{number}.log").open("wb")
            running.append(
                subprocess.Popen(
                    [*command, "--partition-range", keys, "-m", "definitions"],
                    cwd=ROOT,
                    env=dict(home.environment),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        statuses = [self.wait(process) for process in running]
        for number, status in enumerate(statuses):
            if status:
                log = (home.folder / f"{name}_{number}.log").read_text("utf-8", errors="replace")
                self.console.print("\n".join(log.splitlines()[-15:]), markup=False)
        return statuses

    def wait(self, process: "subprocess.Popen[bytes]") -> int:
        """Wait until a command ends, or stop it when the time is up."""
        try:
            return process.wait(max(1.0, self.seconds_left))
        except subprocess.TimeoutExpired:
            self.console.print("the time is up: the command is stopped, and what it did so far is shown")
        os.killpg(process.pid, signal.SIGINT)
        try:
            return process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return process.wait()

    def warm_up(self, label: str, case: Case) -> None:
        """Start the servers of a case with a few pages of their own."""
        stop_servers()
        home = self.home(f"{label}_warm_up", case, WARM_UP_PAGES if self.random else 2, 1)
        self.materialize(home, [",".join(filter(None, [case.before, *case.selections]))], "run")

    def run_own(self, label: str, case: Case) -> None:
        home = self.home(label, case, 1, 1)
        out = self.work / f"{label}.json"
        pages = min(self.arguments.own_pages, self.arguments.pages)
        only = {name for case in self.cases for name in case.stages} & ALONE or ALONE
        command = [sys.executable, "-m", "benchmarks.whole_graph.stage_rates", str(out), "--pages", str(pages)]
        process = subprocess.Popen(
            [*command, "--only", ",".join(sorted(only)), "--source", str(self.arguments.source)],
            cwd=ROOT,
            env=dict(home.environment),
            start_new_session=True,
        )
        self.wait(process)
        if out.exists():
            for name, rate in json.loads(out.read_text("utf-8")).items():
                self.own[name].append(rate)
        for measured in self.measured:
            self.show(measured)

    def show(self, measured: Measured) -> None:
        """Print the results of a case, and write all results so far."""
        console_tables(measured, self.by_itself, self.console)
        sections = [html_section(each, self.by_itself) for each in self.measured]
        (self.out / "whole_graph.html").write_text(render("The whole graph", sections), "utf-8")
        dump(self.out / "whole_graph.json", {"own": self.own, "cases": [figures(each) for each in self.measured]})

    def finish(self) -> None:
        for line in comparisons(self.measured):
            self.console.print(line)
        if self.arguments.keep_servers:
            return
        stop_servers()


def stages_in(home: Home, case: Case) -> list[Any]:
    """Return the stages of the measured runs of a home, by start time."""
    import dagster as dg

    with dg.DagsterInstance.from_config(str(home.dagster)) as instance:
        stages = [stage for run in instance.get_runs() for stage in stages_of(instance, run.run_id)]
    return sorted((stage for stage in stages if stage.name in case.stages), key=lambda stage: stage.span.start)


def server_keys(settings: Settings) -> dict[str, str]:
    """Return the key of the server of each asset that has one."""
    keys = {}
    for name, asset in GRAPH.by_name.items():
        engine = settings.resources.get(asset.engine_section or "")
        if (server := getattr(engine, "server", None)) is not None and server.mode == "managed":
            keys[name] = server.key
    return keys


def ready_servers() -> set[str]:
    return {server.key for server in list_servers() if server.state.phase is Phase.READY}


def stop_servers() -> None:
    """Stop the servers of this benchmark."""
    for server in list_servers():
        try:
            stop_server(server, force=True)
        except EngineError as error:
            print(f"{server.specification.model}: {error}", flush=True)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="h200", help="a name in profiles/, or a YAML file")
    parser.add_argument("--pages", type=int, default=2200, help="of a warm case; a cold one takes a quarter")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--cases", default="cold,warm,own", help=f"of {', '.join(CASES)}, in this order")
    parser.add_argument("--random-weights", nargs="*", metavar="SECTION=FOLDER", help="folders without weights")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="of the profile; KEY+=[...] adds"
    )
    parser.add_argument("--source", type=Path, default=ROOT / "samples" / "corpus", help="pages that are copied")
    parser.add_argument("--own-pages", type=int, default=OWN_PAGES, help="for what each stage does by itself")
    parser.add_argument("--limit-seconds", type=float, default=86_400, help="then what was measured so far is shown")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="folder of homes and servers (default: work in OUT)")
    parser.add_argument("--keep-servers", action="store_true", help="leave them up for the next command")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    arguments.source = arguments.source.absolute()
    cases = [case_of(name, arguments.shards) for name in arguments.cases.split(",")]
    out = arguments.out.absolute()
    work = (arguments.work or out / "work").absolute()
    for folder in (out, work):
        folder.mkdir(parents=True, exist_ok=True)
    (work / "runtime").mkdir(mode=0o700, exist_ok=True)
    benchmark = Benchmark(arguments, cases, out, work)
    # This process reads profiles and queries servers in the same way as the commands.
    sys.path[:0] = [str(work / "plugin")]
    os.environ["KOPUB_RUNTIME"] = benchmark.environment["KOPUB_RUNTIME"]
    try:
        for number, case in enumerate(cases, start=1):
            if benchmark.seconds_left < 5:
                benchmark.console.print(f"{case.name} is left out: the time is up")
                continue
            benchmark.run(number, case)
    finally:
        benchmark.finish()


if __name__ == "__main__":
    main()
