"""No notes on figures: the default."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from resources.code_version import CodeVersion
from resources.figures.base import FigureNoter
from resources.figures.figure import FigurePicture
from resources.figures.notes import FigureNote


class NoNotes(FigureNoter):
    """Describes nothing: there is no table of notes, and no server is started for it."""

    code_version: ClassVar[CodeVersion] = CodeVersion("notes.none", {1: "the first release"})
    off: ClassVar[str | None] = "notes.engine is none"

    def describe(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[FigureNote]:
        return iter(())
