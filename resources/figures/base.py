"""The protocol of engines that describe figures."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar

from resources.engine import Engine
from resources.figures.figure import FigurePicture
from resources.figures.notes import FigureNote


class FigureNoter(Engine):
    """Describes figures by a model: kind, description, keywords, data of charts, formulas of molecules."""

    off: ClassVar[str | None] = None
    """Why it describes nothing; None for an engine that does."""

    @abstractmethod
    def describe(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[FigureNote]:
        """Yield one `FigureNote` for each figure, in any order, while taking figures lazily.

        `most_pixels` is the size of a picture as the model sees it, at most. A figure that cannot be described is
        `failed` with the reason. Raises `EngineError` when the engine cannot run at all.
        """

    def report(self) -> dict[str, float | str]:
        """Figures of the last `describe`, for plots."""
        return {}
