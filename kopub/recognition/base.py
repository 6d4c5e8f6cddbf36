"""The interface of recognizers."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

from pydantic import Field, field_validator

from kopub.engine import Engine
from kopub.layout.regions import READ_TASKS, Region
from kopub.pages.page import Page
from kopub.recognition.content import KOREAN
from kopub.recognition.regions import PageReading
from kopub.states import phrase

STEP_TIMES = "KOPUB_STEP_TIMES"
"""The environment variable that names the file to which readers add the times of their steps."""


class Recognizer(Engine):
    """Reads the regions of pages."""

    reread: list[str] = Field(
        default=[],
        description="Tasks (text, table, formula) that are read from the crop even if the text is already known, as "
        "from a layout engine that reads. Regions without text are always read.",
    )

    @field_validator("reread")
    @classmethod
    def _tasks(cls, named: list[str]) -> list[str]:
        unknown = sorted(set(named).difference(READ_TASKS))
        if unknown:
            raise ValueError(phrase("{task!r} is not read; name some of {tasks}", unknown[0], ", ".join(READ_TASKS)))
        return sorted(set(named))

    @property
    def expected_scripts(self) -> frozenset[str]:
        """The expected scripts, named as by `script_of`; text in other scripts looks wrong."""
        return KOREAN

    def remedy(self, script: str) -> str:
        """Return how to read pages in an unexpected script, as the end of a sentence."""
        return "choose a reader and settings for it"

    @abstractmethod
    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        """Yield one `PageReading` for each page, in any order.

        Pages are taken lazily. Regions whose task is `skip` or `abandon` come back with empty content and finish_reason
        "skipped". A region that fails does not affect the others: the page is then `partial`, or `failed` if no region
        gave text (`regions.page_state`). Raises `EngineError` if the engine cannot run at all.
        """

    def report(self) -> dict[str, float | str]:
        """Return figures of the last `read`, for plots."""
        return {}
