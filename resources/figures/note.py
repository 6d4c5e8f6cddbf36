"""What a model says of a figure."""

from dataclasses import dataclass

from resources.states import State

KINDS = (
    "photo", "drawing", "diagram", "flowchart", "map", "bar_chart", "line_chart", "pie_chart", "other_chart", "table",
    "formula", "molecule", "geometry", "screenshot", "logo", "other",
)  # fmt: skip
"""What a figure can be."""


@dataclass(frozen=True, slots=True)
class FigureNote:
    """What a model made up about a figure; nothing of it was read from the page.

    `kind` is one of `KINDS`. `data_html` is the data of a chart as `<table>` HTML, `smiles` a molecule's formula;
    `language` is that of the description. All of them are empty unless the state is `ok`.
    """

    id: str
    state: State
    reason: str | None = None
    kind: str | None = None
    description: str = ""
    keywords: tuple[str, ...] = ()
    data_html: str | None = None
    smiles: str | None = None
    language: str | None = None
    attempts: int = 1
    seconds: float = 0.0
