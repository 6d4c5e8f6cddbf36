"""How far an evaluation has come, while it reads."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from kopub_assets.running.progress import Watcher, watched_by
from kopub_cli.display.console import say
from resources.config.settings import Settings
from resources.states import State


class _Bars(Watcher):
    """A bar for each table: the rows that are computed of those that have to be."""

    def __init__(self, bars: Progress, profile: str) -> None:
        self._bars = bars
        self._profile = profile
        self._tasks: dict[str, TaskID] = {}
        self._rows: dict[str, int] = {}

    def began(self, asset: str) -> None:
        self._tasks[asset] = self._bars.add_task(f"{self._profile} {asset}", total=None)

    def planned(self, asset: str, shard: str, rows: int) -> None:
        self._rows[asset] = self._rows.get(asset, 0) + rows
        self._bars.update(self._tasks[asset], total=self._rows[asset])

    def computed(self, asset: str, shard: str, state: State = State.OK) -> None:
        self._bars.advance(self._tasks[asset])

    def warned(self, asset: str, message: str) -> None:
        say(self._bars.console, f"{asset}: {message}", "yellow")

    def ended(self, asset: str) -> None:
        rows = self._rows.get(asset, 0)
        self._bars.update(self._tasks[asset], total=rows, completed=rows)


@contextmanager
def reading(settings: Settings, out: Console) -> Iterator[None]:
    """Show which table is being made and how many of its rows are finished, until the work within is done."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True) as bars, watched_by(_Bars(bars, settings.profile_name)):
        yield
