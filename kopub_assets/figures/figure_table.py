"""What the assets of figures share: their rows are pages, and an engine makes something of each figure of a page."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from kopub_assets.materialize.engine_table import EngineTable
from kopub_assets.materialize.row_table import RetryPartial
from kopub_assets.materialize.rows import Row, RowSpec, page_rows, picture_made_from, with_parent
from kopub_assets.ocr_results import OcrResults
from kopub_assets.raw_pages import RawPages
from resources.config.choices import Figures
from resources.errors import StoreError
from resources.figures.figure import TABLE, Figure, FigurePicture, page_figures
from resources.recognition.crops import crop_index, cut
from resources.resource import Resource
from resources.states import LOST, State

_COLUMNS = ["page_id", "regions", "image_crops", "state", "reason"]
_PICTURES = ["page_id", "image_crops", "crop_images"]


@dataclass(slots=True)
class PageResults:
    """What an engine made of the figures of a page, by the index of their regions."""

    page_id: str
    awaited: set[int]
    made: dict[int, Any] = field(default_factory=dict)


class FigureTable(EngineTable):
    """An `EngineTable` with a row for each page and a list of its figures in the column `listed`.

    A page without a figure that is large enough is `blank`, and no engine sees it.
    """

    parents = (RawPages, OcrResults)
    needs: ClassVar[tuple[str, ...]] = ("figures",)
    config: ClassVar[type[Resource] | None] = RetryPartial
    listed: ClassVar[str]
    counts_context: ClassVar[bool] = False
    """Whether the text around a figure decides what is made of it."""
    takes_tables: ClassVar[bool] = False
    """Whether tables count as figures where `figures.tables` says so."""

    @property
    def figures_wanted(self) -> Figures:
        return self.resources["figures"]

    @property
    def settings(self) -> Mapping[str, Any]:
        wanted = self.figures_wanted
        # Named only where it is on: a table that was made before the setting was there is current without it.
        tables = {"figures.tables": True} if self._with_tables else {}
        return {"figures.smallest": wanted.smallest, "figures.most_pixels": wanted.most_pixels, **tables}

    @property
    def _with_tables(self) -> bool:
        return self.takes_tables and self.figures_wanted.tables

    @abstractmethod
    def of_figures(self, pictures: Iterator[FigurePicture]) -> Iterator[Any]:
        """The engine's result for each figure, in any order, with its `id`, `state` and `reason`."""

    @abstractmethod
    def made_of(self, result: Any) -> Row:
        """The fields of a figure that an engine made."""

    def rows(self, shard: str) -> Iterator[RowSpec]:
        pages = page_rows(self.store, RawPages.table, shard)
        for page, read in with_parent(self.store, pages, OcrResults.table, shard, _COLUMNS):
            size = (page["width"], page["height"]) if self._with_tables and page["width"] else None
            figures = page_figures(read["regions"], read["image_crops"], self.figures_wanted.smallest, size)
            said = [
                [f.index, f.label, f.bbox, f.caption, *([f.context] if self.counts_context else [])] for f in figures
            ]
            row = RowSpec.after(
                read, [self.own_recipe, *picture_made_from(page), said], {"page_id": page["page_id"]}, figures
            )
            if row.settled is None and not figures:
                row = replace(row, settled={self.listed: [], "state": State.BLANK, "reason": None})
            yield row

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[RowSpec, dict[int, bytes]]]:
        table = self.store.read(OcrResults.table.name, shard, _PICTURES)
        places = {page_id: at for at, page_id in enumerate(table["page_id"].to_pylist())}
        with self.corpus.reader(shard) if self._with_tables else nullcontext() as source:
            known = {page["page_id"]: page for page in page_rows(self.store, RawPages.table, shard)} if source else {}
            for row in todo:
                (page,) = table.slice(places[row.id], 1).to_pylist()
                listed, held = page["image_crops"] or (), page["crop_images"] or ()
                if len(listed) != len(held):
                    raise StoreError(
                        f"{OcrResults.table} of {row.id} lists {len(listed)} pictures and holds {len(held)}: "
                        "materialize it again"
                    )
                pictures: dict[int, bytes] = {
                    crop_index(crop["path"]): data for crop, data in zip(listed, held, strict=True)
                }
                tables = [figure for figure in row.given if figure.label == TABLE]
                if source is not None and tables:
                    raw = known[row.id]
                    whole = source.page(row.id, raw["page_idx"], raw["sha256"], raw["upright"])
                    pictures |= {figure.index: cut(whole, figure.bbox) for figure in tables}
                yield row, pictures

    def results(self, inputs: Iterator[tuple[RowSpec, dict[int, bytes]]]) -> Iterator[PageResults]:
        pages: dict[str, PageResults] = {}

        def pictures() -> Iterator[FigurePicture]:
            for row, held in inputs:
                figures: list[Figure] = row.given
                pages[row.id] = PageResults(row.id, {figure.index for figure in figures})
                for figure in figures:
                    # The id goes to other processes, which give it back: a page's id may hold any sign.
                    yield FigurePicture(f"{row.id}/{figure.index}", held[figure.index], figure.caption, figure.context)

        for result in self.of_figures(pictures()):
            page_id, _, index = result.id.rpartition("/")
            page = pages[page_id]
            page.made[int(index)] = result
            page.awaited.discard(int(index))
            if not page.awaited:
                yield pages.pop(page_id)

    def row_id(self, result: PageResults) -> str:
        return result.page_id

    def columns(self, row: RowSpec, result: PageResults) -> Row:
        figures: list[Figure] = row.given
        listed = [
            {
                "index": figure.index,
                "label": figure.label,
                "bbox": list(figure.bbox),
                "bbox_2d": list(figure.bbox_2d),
                "caption": figure.caption,
                "state": made.state,
                "reason": made.reason,
                **self.made_of(made),
            }
            for figure in figures
            for made in (result.made[figure.index],)
        ]
        state, reason = page_end(listed)
        return {self.listed: listed, "state": state, "reason": reason}

    def describe_figures(self, pages: Sequence[Sequence[Row] | None]) -> dict[str, Any]:
        """What the UI plots of the lists of all pages."""
        states = Counter(figure["state"] for figures in pages for figure in figures or ())
        return {"figures": states.total(), **{f"figures_{state}": count for state, count in sorted(states.items())}}


def page_end(figures: Sequence[Row]) -> tuple[State, str | None]:
    """State and reason of a page by those of its figures, of which there is one at least."""
    lost = [figure for figure in figures if figure["state"] in LOST]
    made = sum(figure["state"] == State.OK for figure in figures)
    if not lost:
        return (State.OK, None) if made else (State.BLANK, figures[0]["reason"])
    first = lost[0]
    reason = f"{len(lost)} of {len(figures)} figures lost; region {first['index']}: {first['reason']}"
    if made:
        return State.PARTIAL, reason
    quarantined = all(figure["state"] == State.QUARANTINED for figure in lost)
    return State.QUARANTINED if quarantined else State.FAILED, reason
