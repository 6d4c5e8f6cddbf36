"""What `kopub run` shows while assets are made: a live table at a terminal, a line now and then elsewhere."""

import threading
import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kopub_assets.running.forecast import Forecast, Stage
from kopub_assets.running.progress import Watcher
from kopub_cli.display.console import duration, say
from resources.printable import visible
from resources.states import LOST, State

_LINE_SECONDS = 15.0
"""Between two lines where nobody sees a live table."""
_BAR = 20
_REFRESH = 4.0
"""Frames a second: a table of a dozen lines costs a millisecond."""


class RunDisplay(Watcher):
    """Follows a run by its forecast. A context manager; `clock` gives monotonic seconds."""

    def __init__(self, forecast: Forecast, out: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._forecast, self._out, self._clock = forecast, out, clock
        self._lock = threading.Lock()
        self._said = clock()
        self._is_over = False
        self.closed: tuple[str, ...] = ()
        """The gates that the corpus does not pass, as far as the run judged it."""
        self._live = (
            Live(get_renderable=self._shown, console=out, refresh_per_second=_REFRESH) if out.is_terminal else None
        )

    def __enter__(self) -> "RunDisplay":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            # A table of nothing would stay.
            self._live.transient = not self.made_anything
            self._is_over = True
            self._live.stop()

    def began(self, asset: str) -> None:
        with self._lock:
            self._stage(asset).begin(self._clock())

    def planned(self, asset: str, shard: str, rows: int) -> None:
        with self._lock:
            stage = self._stage(asset)
            stage.planned[shard] = rows

    def computed(self, asset: str, shard: str, state: State = State.OK) -> None:
        with self._lock:
            self._stage(asset).count(shard, self._clock(), state)
        self._say_now_and_then(asset)

    def published(self, asset: str, shard: str) -> None:
        with self._lock:
            stage = self._stage(asset)
            stage.planned.setdefault(shard, 0)
            stage.published.add(shard)

    def judged(self, closed: Sequence[str]) -> None:
        self.closed = tuple(closed)

    @property
    def made_anything(self) -> bool:
        """Whether a row was computed, or anything was measured."""
        return any(stage.done for stage in self._forecast.stages.values())

    def warned(self, asset: str, message: str) -> None:
        say(self._out, f"{asset}: {visible(message)}", "yellow")

    def ended(self, asset: str) -> None:
        with self._lock:
            stage = self._stage(asset)
            stage.ended = self._clock()
        if self._live is None and stage.done:
            took = duration(stage.elapsed(stage.ended))
            self._say(f"{asset}: {self._counts(stage)} in {took}", "red" if stage.lost else "")

    def _stage(self, asset: str) -> Stage:
        return self._forecast.stages[asset]

    def _say_now_and_then(self, asset: str) -> None:
        now = self._clock()
        if self._live is None and now - self._said >= _LINE_SECONDS:
            self._said = now
            with self._lock:
                stage = self._stage(asset)
                left = duration(self._forecast.remaining(now))
            if stage.shards:
                says = f"{asset}: {self._counts(stage)}{_rate(stage, now)}; about {left} to go"
                self._say(says, "red" if stage.lost else "")

    def _say(self, line: str, style: str = "") -> None:
        say(self._out, line, style)

    def _counts(self, stage: Stage) -> str:
        if not stage.shards:
            return "measured"
        lost = "".join(f", {stage.ends[state]:,} {state}" for state in LOST if stage.ends[state])
        return f"{stage.done - stage.lost:,} of {stage.rows:,} rows made{lost}"

    def _shown(self) -> Group:
        now = self._clock()
        with self._lock:
            table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
            table.add_column("asset", no_wrap=True)
            for column in ("shards", "rows", "lost", "rows/s", "time"):
                table.add_column(column, justify="right", no_wrap=True)
            table.add_column("")
            for stage in self._forecast.stages.values():
                if stage.rows or not stage.shards:
                    table.add_row(*self._row(stage, now))
            share, left = self._forecast.share(now), self._forecast.remaining(now)
        if self._is_over and not round(left):
            return Group(table)
        return Group(table, Text(f"{share:.0%}, about {duration(left)} to go"))

    def _row(self, stage: Stage, now: float) -> tuple[str | Text | ProgressBar, ...]:
        shards = f"{len(stage.published)}/{stage.shards}" if stage.shards else ""
        rows = f"{stage.done - stage.lost:,}/{stage.rows:,}" if stage.shards else ""
        if stage.began is None:
            return stage.asset, shards, rows, "", "", "", ""
        rate = stage.rate(now) if stage.shards else None
        return (
            stage.asset,
            shards,
            rows,
            Text(f"{stage.lost:,}", "bold red") if stage.lost else "",
            "" if rate is None else f"{rate:,.1f}",
            duration(stage.elapsed(now)),
            "done" if stage.ended is not None else _bar(stage),
        )


def _bar(stage: Stage) -> ProgressBar:
    return ProgressBar(total=max(stage.rows, 1), completed=stage.done, width=_BAR)


def _rate(stage: Stage, now: float) -> str:
    rate = stage.rate(now)
    return "" if rate is None else f", {rate:,.1f} rows/s"
