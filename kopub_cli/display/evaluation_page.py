"""`kopub evaluate --html`: an evaluation as one file to look at, and the pictures of pages in such files."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resources.diff.html import Picture
from resources.errors import SourceError, UndecodableImage
from resources.pages.corpus import Corpus

if TYPE_CHECKING:
    from kopub_assets.evaluations.running import Evaluated
    from resources.config.settings import Settings
    from resources.evaluation.runs.home import KnownAnswers
    from resources.evaluation.runs.page import Side

_PICTURE_BYTES = 60_000
_PICTURE_COLUMNS = ["page_id", "page_idx", "sha256", "upright"]
"""Of `raw_pages`: what finds a page's picture and sets it upright."""


def write_page(path: Path, known: "KnownAnswers", evaluated: "Sequence[Evaluated]", pages: int) -> None:
    """Write the file; the worst `pages` samples have pictures. Raises `StoreError`."""
    from resources.evaluation.runs.page import render
    from resources.evaluation.scoring import ADAPTERS
    from resources.files import replace_bytes

    benchmark = known.benchmark
    picture = _picture_of(evaluated[0].settings)
    sides = [_side(benchmark.name, each, evaluated[0]) for each in evaluated]
    page = render(benchmark, known.of, sides, ADAPTERS[benchmark.name].headline, picture, pages)
    replace_bytes(path, page.encode("utf-8", "backslashreplace"))


def _side(benchmark: str, evaluated: "Evaluated", first: "Evaluated") -> "Side":
    from resources.evaluation.metrics import ALL
    from resources.evaluation.runs.comparison import changes_between, scores_of
    from resources.evaluation.runs.measuring import readings
    from resources.evaluation.runs.page import Side

    settings = evaluated.settings
    found = dict(readings(settings.store, settings.corpus.manifest.keys))
    means = [row for row in evaluated.scores.to_pylist() if row["slice"] == ALL]
    changed = {} if evaluated is first else changes_between(first.run.table, evaluated.run.table)
    changes = {metric: change for (_, metric, part), change in changed.items() if part == ALL}
    return Side(evaluated.profile, found, scores_of(benchmark, evaluated.run.table)[1], means, changes)


def _picture_of(settings: "Settings") -> "Callable[[str], Picture | None]":
    """A sample's picture by its id; None for one that cannot be read."""
    from resources.store.corpus_tables import TABLES

    pages = {
        row["page_id"]: (shard, row)
        for shard in settings.corpus.manifest.keys
        for row in settings.store.read(TABLES.pages.name, shard, _PICTURE_COLUMNS).to_pylist()
    }

    def picture(page_id: str) -> "Picture | None":
        return picture_of(settings.corpus, *pages[page_id], _PICTURE_BYTES) if page_id in pages else None

    return picture


def picture_of(corpus: Corpus, shard: str, page: Mapping[str, Any], most: int) -> Picture | None:
    """Return the upright page of a row of `raw_pages` in at most `most` bytes.

    None where it cannot be read, or is another one now.
    """
    from resources.pages.pixels.drawing import preview

    try:
        with corpus.reader(shard) as source:
            image = source.page(page["page_id"], page["page_idx"], page["sha256"], page.get("upright")).image
    except (SourceError, UndecodableImage):
        return None
    height, width = image.shape[:2]
    return Picture(preview(image, max_bytes=most), width, height)
