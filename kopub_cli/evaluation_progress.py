"""How far an evaluation has come, while it reads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from resources.store.shard_store import JOURNAL

if TYPE_CHECKING:
    from resources.config.settings import Settings

_SECONDS = 0.5


@contextmanager
def reading(settings: "Settings", out: Console) -> Iterator[None]:
    """Show which table is being made and how many of its rows are finished, until the work within is done.

    It looks into the store: the run itself knows nothing of a terminal.
    """
    from kopub_assets.evaluations.running import READING

    root, pages = Path(settings.store.url), settings.corpus.manifest.rows
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = threading.Event()

    def watch(bar: Progress) -> None:
        task = bar.add_task(settings.profile_name, total=pages)
        while not done.wait(_SECONDS):
            for table in reversed(READING):
                finished = _finished(root, table.name)
                if finished or table is READING[0]:
                    bar.update(task, description=f"{settings.profile_name} {table.name}", completed=finished)
                    break

    with Progress(*columns, console=out, transient=True) as bar:
        watcher = threading.Thread(target=watch, args=(bar,), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _finished(root: Path, asset: str) -> int:
    """Rows of the tables that are published, and of those that are under way."""
    return sum(map(_rows, [*(root / asset).glob("*.parquet"), *(root / JOURNAL / asset).rglob("*.parquet")]))


def _rows(path: Path) -> int:
    try:
        return pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowException):
        return 0  # replaced or cleared in this moment
