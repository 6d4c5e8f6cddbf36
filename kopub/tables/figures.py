"""The assets of figures: a row for each page, with a result for each figure."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kopub.config.choices import Figures
from kopub.config.settings import Resources
from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.log import CorrectionLog
from kopub.embedding.base import Embedder, Embedding
from kopub.engine import Resource
from kopub.errors import StoreError
from kopub.figures.figure import TABLE, Figure, FigureNote, FigureNoter, FigurePicture, page_figures
from kopub.fingerprints import CodeVersion
from kopub.recognition.regions import crop_index, cut
from kopub.states import LOST, Reason, State
from kopub.store.corpus_tables import FIGURE_NOTES, FIGURE_VECTORS, Table
from kopub.store.rows import one_row_a_part
from kopub.tables.asset import EngineTable, Metadata, RetryPartial
from kopub.tables.checks import Check, unsound_vectors
from kopub.tables.ocr_and_texts import OcrResults
from kopub.tables.pages_and_layout import RawPages
from kopub.tables.rows import Row, RowResult, RowSpec, ShardResult, page_rows, picture_inputs, with_parent

_COLUMNS = ["page_id", "regions", "image_crops", "state", "reason"]
_PICTURES = ["page_id", "image_crops", "crop_images"]


@dataclass(slots=True)
class FigureResults:
    """The results for a page's figures, by the index of their regions."""

    page_id: str
    awaited: set[int]
    results: dict[int, Any] = field(default_factory=dict)


class FigureTable(EngineTable):
    """An `EngineTable` of pages, with their figures listed in the column `parts`.

    A page without a figure that is large enough is `blank`, and is not given to the engine.
    """

    parents = (RawPages, OcrResults)
    needs: ClassVar[tuple[str, ...]] = ("figures",)
    config: ClassVar[type[Resource] | None] = RetryPartial
    counts_context: ClassVar[bool] = False
    """True if the text around a figure affects its result."""
    takes_tables: ClassVar[bool] = False
    """True if tables count as figures when `figures.tables` is set."""

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self.figures_wanted: Figures = resources["figures"]
        self._with_tables = self.takes_tables and self.figures_wanted.tables

    @property
    def settings(self) -> Mapping[str, Any]:
        options = self.figures_wanted
        # Named only if it is on, so that a table from before the setting existed stays current without it.
        tables = {"figures.tables": True} if self._with_tables else {}
        return {"figures.smallest": options.smallest, "figures.most_pixels": options.most_pixels, **tables}

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        return CorrectionLog(self.store).shard_settings(shard)

    @abstractmethod
    def of_figures(self, pictures: Iterator[FigurePicture]) -> Iterator[Any]:
        """Yield the engine's result for each figure, in any order.

        Each has its `id`, `state` and `reason`.
        """

    @abstractmethod
    def made_of(self, result: Any) -> Row:
        """Return the fields of a figure that the engine made."""

    def rows(self, shard: str) -> Iterator[RowSpec]:
        pages = page_rows(self.store, RawPages.table, shard)
        for page, reading in with_parent(CorrectedTables(self.store), pages, OcrResults.table, shard, _COLUMNS):
            size = (page["width"], page["height"]) if self._with_tables and page["width"] else None
            figures = page_figures(reading["regions"], reading["image_crops"], self.figures_wanted.smallest, size)
            facts: list[list[Any]] = []
            for figure in figures:
                context = [figure.context] if self.counts_context else []
                facts.append([figure.index, figure.label, figure.bbox, figure.caption, *context])
            made_from = [self.recipe_hash, *picture_inputs(page), facts]
            row = RowSpec.after(reading, made_from, {"page_id": page["page_id"]}, figures)
            if row.predetermined is None and not figures:
                row = replace(row, predetermined={self.parts: [], "state": State.BLANK, "reason": None})
            yield row

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[RowSpec, dict[int, bytes]]]:
        table = CorrectedTables(self.store).read(OcrResults.table.name, shard, _PICTURES)
        places = {page_id: at for at, page_id in enumerate(table["page_id"].to_pylist())}
        with self.corpus.reader(shard) if self._with_tables else nullcontext() as source:
            pages = {page["page_id"]: page for page in page_rows(self.store, RawPages.table, shard)} if source else {}
            for row in todo:
                (page,) = table.slice(places[row.id], 1).to_pylist()
                crops, images = page["image_crops"] or (), page["crop_images"] or ()
                if len(crops) != len(images):
                    form = "{asset} of {page} lists {listed} pictures and holds {held}: materialize it again"
                    raise StoreError(form, OcrResults.table, row.id, len(crops), len(images))
                pictures: dict[int, bytes] = {}
                for crop, data in zip(crops, images, strict=True):
                    pictures[crop_index(crop["path"])] = data
                tables = [figure for figure in row.given if figure.label == TABLE]
                if source is not None and tables:
                    whole = source.page_of(pages[row.id])
                    for figure in tables:
                        pictures[figure.index] = cut(whole, figure.bbox)
                yield row, pictures

    def results(self, inputs: Iterator[tuple[RowSpec, dict[int, bytes]]]) -> Iterator[FigureResults]:
        pages: dict[str, FigureResults] = {}

        def pictures() -> Iterator[FigurePicture]:
            for row, images in inputs:
                figures: list[Figure] = row.given
                pages[row.id] = FigureResults(row.id, {figure.index for figure in figures})
                for figure in figures:
                    # The id goes to other processes and comes back; a page's id may hold any character.
                    yield FigurePicture(
                        f"{row.id}/{figure.index}", images[figure.index], figure.caption, figure.context
                    )

        for result in self.of_figures(pictures()):
            page_id, _, index = result.id.rpartition("/")
            page = pages[page_id]
            page.results[int(index)] = result
            page.awaited.discard(int(index))
            if not page.awaited:
                yield pages.pop(page_id)

    def row(self, spec: RowSpec, result: FigureResults) -> RowResult:
        figures: list[Figure] = spec.given
        rows = []
        for figure in figures:
            answer = result.results[figure.index]
            row = {
                "index": figure.index,
                "label": figure.label,
                "bbox": list(figure.bbox),
                "bbox_2d": list(figure.bbox_2d),
                "caption": figure.caption,
                "state": answer.state,
                "reason": answer.reason,
            }
            rows.append(row | self.made_of(answer))
        state, reason = page_end(rows)
        return RowResult(spec.id, {self.parts: rows, "state": state, "reason": reason}, self.cost_of(result))

    def cost_of(self, result: FigureResults) -> float:
        """Return the cost of a page's figures, in any unit."""
        return 1.0

    def describe_figures(self, pages: Sequence[Sequence[Row] | None]) -> dict[str, Any]:
        """Return what the UI plots about the figures of all pages."""
        states = Counter(figure["state"] for figures in pages for figure in figures or ())
        return {"figures": states.total(), **{f"figures_{state}": count for state, count in sorted(states.items())}}


def page_end(figures: Sequence[Row]) -> tuple[State, str | None]:
    """Return a page's state and reason from those of its figures, at least one."""
    lost = [figure for figure in figures if figure["state"] in LOST]
    ok = sum(figure["state"] == State.OK for figure in figures)
    if not lost:
        return (State.OK, None) if ok else (State.BLANK, figures[0]["reason"])
    first = lost[0]
    form = "{lost} of {count} figures lost; region {region}: {reason}"
    reason = Reason(form, lost=len(lost), count=len(figures), region=first["index"], reason=first["reason"])
    if ok:
        return State.PARTIAL, reason
    quarantined = all(figure["state"] == State.QUARANTINED for figure in lost)
    return State.QUARANTINED if quarantined else State.FAILED, reason


class FigureNotes(FigureTable):
    """The notes of a model on the figures of every page.

    Figures are images, charts and, with `figures.tables`, tables. The model sees the picture, the caption and the
    nearest text. The table is made if the profile's section `notes` names an engine. Notes were generated, not read:
    they are in no text of a page, and in its vector only if `figures.embed_notes` is set.
    """

    table: ClassVar[Table] = FIGURE_NOTES
    code_version: ClassVar[CodeVersion] = CodeVersion("figure_notes", {1: "the first release"})
    engine_section: ClassVar[str | None] = "notes"
    engine: FigureNoter
    parts: ClassVar[str] = "notes"
    counts_context: ClassVar[bool] = True
    takes_tables: ClassVar[bool] = True

    @classmethod
    def off(cls, resources: Resources) -> str | None:
        return resources["notes"].off

    def of_figures(self, pictures: Iterator[FigurePicture]) -> Iterator[FigureNote]:
        return self.engine.describe(pictures, self.figures_wanted.most_pixels)

    def made_of(self, result: FigureNote) -> Row:
        return {name: value for name, value in asdict(result).items() if name not in ("id", "state", "reason")}

    def cost_of(self, result: FigureResults) -> float:
        return sum(note.seconds for note in result.results.values())

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        pages = table["notes"].to_pylist()
        first = next((note["description"] for notes in pages for note in notes or () if note["description"]), "")
        return {**self.describe_figures(pages), "description": first}


FIGURE_VECTORS_ARE_SOUND = Check(
    "figure_vectors_are_sound", "Every figure that is ok has a vector of the right width and norm 1, without NaN."
)


class FigureEmbeddings(FigureTable):
    """The vectors of the images and charts of every page.

    They are float16 with L2 norm 1 and are compared with query vectors. They are made if the profile sets
    `figures.vectors`: each figure costs up to half as much as a page's picture.
    """

    table: ClassVar[Table] = FIGURE_VECTORS
    code_version: ClassVar[CodeVersion] = CodeVersion("figure_embeddings", {1: "the first release"})
    engine_section: ClassVar[str | None] = "embedding"
    engine: Embedder
    checks: ClassVar[tuple[Check, ...]] = (*EngineTable.checks, FIGURE_VECTORS_ARE_SOUND)
    parts: ClassVar[str] = "figures"

    @classmethod
    def off(cls, resources: Resources) -> str | None:
        return None if resources["figures"].vectors else "figures.vectors is false"

    def typical_seconds(self, megabytes: float) -> float:
        return self.engine.typical_image_seconds

    def of_figures(self, pictures: Iterator[FigurePicture]) -> Iterator[Embedding]:
        return self.engine.embed_figures(pictures, self.figures_wanted.most_pixels)

    def made_of(self, result: Embedding) -> Row:
        return {"vector": None if result.vector is None else result.vector.astype(np.float16)}

    def problems(self, result: ShardResult) -> Mapping[str, str | None]:
        figures = one_row_a_part(result.table, "figures")
        return {FIGURE_VECTORS_ARE_SOUND.name: unsound_vectors(figures, self.engine.dim, (State.OK,), "figures")}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        return {"dimensions": self.engine.dim, **self.describe_figures(table["figures"].to_pylist())}
