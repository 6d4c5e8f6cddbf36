"""The figures of a page with captions and context, and their notes."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kopub.boxes import Box
from kopub.engine import Engine
from kopub.fingerprints import CodeVersion
from kopub.recognition.regions import RegionText, crop_index, region_texts
from kopub.states import State
from kopub.texts.markdown import page_text

LABELS = frozenset({"image", "chart"})
"""Regions that are figures. Seals and pictures in running heads are not."""
SMALLEST = 0.02
"""Least share of the page that a figure covers, unless a profile says otherwise."""
_CAPTION = "figure_title"
"""The label of captions, including those of tables."""
TABLE = "table"
_CAPTIONED = LABELS | {TABLE}
_REPEATED = frozenset({_CAPTION, "footer", "header", "number"})
"""Labels whose text says nothing about a figure nearby, or is given already."""
_GRID = 1000
_CAPTION_REACH = 80
_TEXT_REACH = 200
"""Greatest distances of a figure from its caption and from its text, on a grid of 1000."""
_CONTEXT = 500
"""Most characters of the text around a figure."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Figure:
    """An image or chart of a page, or a table if a profile wants it.

    `index` is that of its region. `bbox` is (x1, y1, x2, y2) in pixels of the upright page, `bbox_2d` the same on a
    grid of 0 to 1000. `caption` is the printed caption, and `context` the nearest text, at most 500 characters.
    """

    index: int
    label: str
    bbox: tuple[float, float, float, float]
    bbox_2d: Box[int]
    caption: str
    context: str


@dataclass(frozen=True, slots=True)
class FigurePicture:
    """A figure as given to an engine: picture, caption, and the text around it."""

    id: str
    data: bytes
    caption: str
    context: str = ""


def page_figures(
    readings: Iterable[Row] | None,
    crops: Iterable[Row] | None,
    smallest: float,
    tables_of: tuple[int, int] | None = None,
) -> list[Figure]:
    """Return the figures of a page that cover the share `smallest`, in reading order.

    `readings` and `crops` are the values of `regions` and `image_crops` in the page's row of `ocr_results`. `tables_of`
    is the width and height of a page in pixels whose tables are figures too, though no picture of them is kept.
    """
    regions = list(readings or ())
    boxes = {region["index"]: Box(*region["bbox_2d"]) for region in regions}
    pictures: dict[int, tuple[str, tuple[float, float, float, float]]] = {}
    for crop in crops or ():
        if crop["label"] in LABELS:
            pictures[crop_index(crop["path"])] = crop["label"], tuple(crop["bbox"])
    if tables_of is not None:
        # A box has two horizontal and two vertical edges, in turn.
        scale = tables_of * 2
        for region in regions:
            if region["native_label"] == TABLE:
                bbox = Box(*(part * side / _GRID for part, side in zip(region["bbox_2d"], scale, strict=True)))
                pictures[region["index"]] = TABLE, bbox
    indices = [at for at in sorted(pictures) if at in boxes and boxes[at].area / _GRID**2 >= smallest]
    if not indices:
        return []
    captions = _captions(regions, boxes)
    texts: list[tuple[Box[int], str]] = []
    for region in regions:
        explains = region["label"] == "text" and region["native_label"] not in _REPEATED
        if explains and (text := _region_text(region)):
            texts.append((boxes[region["index"]], text))
    figures: list[Figure] = []
    for at in indices:
        caption = "\n".join(captions.get(at, ()))
        figures.append(Figure(at, *pictures[at], boxes[at], caption, _context(boxes[at], texts)))
    return figures


def _captions(regions: Sequence[Row], boxes: Mapping[int, Box[int]]) -> dict[int, list[str]]:
    """Return the captions by figure or table, each assigned to the nearest one."""
    captioned = [region["index"] for region in regions if region["native_label"] in _CAPTIONED]
    captions: dict[int, list[str]] = {}
    for region in sorted(regions, key=lambda region: region["index"]):
        if region["native_label"] != _CAPTION or not (text := _region_text(region)):
            continue
        near: list[tuple[float, int]] = []
        for at in captioned:
            across, down = boxes[region["index"]].apart(boxes[at])
            if not (across and down) and max(across, down) <= _CAPTION_REACH:
                near.append((across + down, at))
        if near:
            captions.setdefault(min(near)[1], []).append(text)
    return captions


def _context(figure: Box[int], texts: Sequence[tuple[Box[int], str]]) -> str:
    """Return the texts within reach, nearest first; the last is cut at a blank."""
    near = [(distance, text) for box, text in texts if (distance := max(figure.apart(box))) <= _TEXT_REACH]
    # Sorting is stable, so equally near texts stay in reading order.
    context = "\n".join(text for _, text in sorted(near, key=lambda pair: pair[0]))
    if len(context) <= _CONTEXT:
        return context
    cut = context[:_CONTEXT]
    return cut[: max(cut.rfind(" "), cut.rfind("\n"), _CONTEXT // 2)].rstrip()


def _region_text(region: Row) -> str:
    return " ".join(page_text(region_texts([region])).split())


KINDS = (
    "photo", "drawing", "diagram", "flowchart", "map", "bar_chart", "line_chart", "pie_chart", "other_chart", "table",
    "formula", "molecule", "geometry", "screenshot", "logo", "other",
)  # fmt: skip
"""The kinds of figures."""


@dataclass(frozen=True, slots=True)
class FigureNote:
    """A model's description of a figure, of which nothing was read from the page.

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


def notes_text(notes: Iterable[Mapping[str, Any]] | None) -> str:
    """Return description, keywords and data of the `notes` in a row of `figure_notes`."""
    texts: list[str] = []
    for note in notes or ():
        data = note["data_html"] and page_text([RegionText(0, "table", note["data_html"])])
        if text := "\n".join(filter(None, (note["description"], ", ".join(note["keywords"] or ()), data))):
            texts.append(text)
    return "\n\n".join(texts)


class FigureNoter(Engine):
    """Describes figures by a model: kind, description, keywords, data of charts, formulas of molecules."""

    off: ClassVar[str | None] = None
    """The reason why it describes nothing, or None."""

    @abstractmethod
    def describe(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[FigureNote]:
        """Yield one `FigureNote` for each figure, in any order, while taking figures lazily.

        `most_pixels` is the greatest size at which the model sees a picture. A figure that cannot be described is
        `failed` with the reason. Raises `EngineError` if the engine cannot run at all.
        """

    def report(self) -> dict[str, float | str]:
        """Return figures of the last `describe`, for plots."""
        return {}


class NoNotes(FigureNoter):
    """Describes nothing: there is no table of notes, and no server is started for it."""

    code_version: ClassVar[CodeVersion] = CodeVersion("notes.none", {1: "the first release"})
    off: ClassVar[str | None] = "notes.engine is none"

    def describe(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[FigureNote]:
        return iter(())
