"""What a model says of the figures of a page: kind, description, keywords, data of charts, formulas of molecules."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import pyarrow as pa

from kopub_assets.figures.figure_table import FigureTable, PageResults
from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.rows import Row, RowSpec
from resources.code_version import CodeVersion
from resources.figures.base import FigureNoter
from resources.figures.figure import FigurePicture
from resources.figures.notes import FigureNote
from resources.store.corpus_tables import FIGURE_NOTES, Table


class FigureNotes(FigureTable):
    """What a model made up about the images, charts and, with `figures.tables`, tables of every page.

    It sees the picture, the caption and the nearest text. Made where the section `notes` of the profile names an
    engine. None of it was read: it is in no text of a page, and in a vector only where `figures.embed_notes` says so.
    """

    table: ClassVar[Table] = FIGURE_NOTES
    code_version: ClassVar[CodeVersion] = CodeVersion("figure_notes", {1: "the first release"})
    group: ClassVar[str] = "reading"
    engine_section: ClassVar[str | None] = "notes"
    engine: FigureNoter
    listed: ClassVar[str] = "notes"
    counts_context: ClassVar[bool] = True
    takes_tables: ClassVar[bool] = True

    def __init__(self, resources: Any) -> None:
        super().__init__(resources)
        self._seconds: dict[str, float] = {}

    @classmethod
    def off(cls, resources: Mapping[str, Any]) -> str | None:
        return resources["notes"].off

    def of_figures(self, pictures: Iterator[FigurePicture]) -> Iterator[FigureNote]:
        return self.engine.describe(pictures, self.figures_wanted.most_pixels)

    def made_of(self, result: FigureNote) -> Row:
        return {
            "kind": result.kind,
            "description": result.description,
            "keywords": list(result.keywords),
            "data_html": result.data_html,
            "smiles": result.smiles,
            "language": result.language,
            "attempts": result.attempts,
            "seconds": result.seconds,
        }

    def columns(self, row: RowSpec, result: PageResults) -> Row:
        self._seconds[row.id] = sum(note.seconds for note in result.made.values())
        return super().columns(row, result)

    def cost(self, row_id: str) -> float:
        return self._seconds[row_id]

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        pages = table["notes"].to_pylist()
        first = next((note["description"] for notes in pages for note in notes or () if note["description"]), "")
        return {**self.describe_figures(pages), "description": first}
