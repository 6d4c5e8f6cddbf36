"""The figures of the pages of a shard with what is known of them: for whoever shows or filters pages."""

from dataclasses import dataclass

from resources.figures.figure import SMALLEST, Box, page_figures
from resources.states import State
from resources.store.corpus_tables import FIGURE_NOTES, TABLES
from resources.store.table_store import TableStore

_COLUMNS = ["page_id", "regions", "image_crops"]


@dataclass(frozen=True, slots=True)
class KnownFigure:
    """A figure of a page: `caption` is printed, all fields after it are what a model made up, None without a note.

    `index` is that of its region, `box` (x1, y1, x2, y2) on a grid of 0 to 1000 over the page.
    """

    index: int
    label: str
    box: Box
    caption: str
    kind: str | None = None
    description: str | None = None
    keywords: tuple[str, ...] = ()
    data_html: str | None = None
    smiles: str | None = None


def figures_of_shard(store: TableStore, shard: str, smallest: float = SMALLEST) -> dict[str, tuple[KnownFigure, ...]]:
    """The figures of each page that has one, in reading order; with their notes where those were made.

    Read from `ocr_results` alone where a profile makes neither vectors nor notes of figures. Raises `StoreError`
    where there are no readings yet.
    """
    notes = {}
    if store.has(FIGURE_NOTES.name, shard):
        rows = store.read(FIGURE_NOTES.name, shard, ["page_id", "notes"]).to_pylist()
        notes = {(row["page_id"], note["index"]): note for row in rows for note in row["notes"] or ()}
    found = {}
    for row in store.read(TABLES.readings.name, shard, _COLUMNS).to_pylist():
        figures = page_figures(row["regions"], row["image_crops"], smallest)
        if figures:
            page_id = row["page_id"]
            found[page_id] = tuple(
                _known(figure.index, figure.label, figure.bbox_2d, figure.caption, notes.get((page_id, figure.index)))
                for figure in figures
            )
    return found


def _known(index: int, label: str, box: Box, caption: str, note: dict | None) -> KnownFigure:
    # The note on a region of an older layout is one on another figure.
    if note is None or note["state"] != State.OK or tuple(note["bbox_2d"]) != box:
        return KnownFigure(index, label, box, caption)
    return KnownFigure(
        *(index, label, box, caption, note["kind"], note["description"]),
        keywords=tuple(note["keywords"] or ()),
        data_html=note["data_html"],
        smiles=note["smiles"],
    )
