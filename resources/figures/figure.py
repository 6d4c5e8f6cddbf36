"""The figures of a page: which regions they are, their captions, and the text around them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from resources.recognition.crops import crop_index
from resources.recognition.read_regions import region_texts
from resources.texts.markdown import page_text

LABELS = frozenset({"image", "chart"})
"""Regions that are figures. Pictures of running heads, and seals, are none."""
SMALLEST = 0.02
"""Share of the page that a figure covers, at least, unless a profile says otherwise."""
_CAPTION = "figure_title"
"""The label of captions, those of tables among them."""
TABLE = "table"
_CAPTIONED = LABELS | {TABLE}
_REPEATED = frozenset({_CAPTION, "footer", "header", "number"})
"""Labels whose text says nothing about a figure nearby, or says it already."""
_GRID = 1000
_CAPTION_REACH = 80
_TEXT_REACH = 200
"""Between a figure and its caption, and a figure and its text, at most: of the page's height on a grid of 1000."""
_CONTEXT = 500
"""Characters of the text around a figure."""

Row = Mapping[str, Any]
Box = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Figure:
    """An image or chart of a page, or a table where a profile wants those too.

    `index` is that of its region. `bbox` is (x1, y1, x2, y2) in pixels of the upright page, `bbox_2d` the same on a
    grid of 0 to 1000. `caption` is what is printed as such, and `context` the nearest text, at most 500 characters.
    """

    index: int
    label: str
    bbox: tuple[float, float, float, float]
    bbox_2d: Box
    caption: str
    context: str


@dataclass(frozen=True, slots=True)
class FigurePicture:
    """A figure as an engine gets it: an encoded picture, its caption, and the text around it."""

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
    """The figures of a page that cover at least the share `smallest` of it, in reading order.

    `readings` and `crops` are the values of `regions` and `image_crops` in the page's row of `ocr_results`. `tables_of`
    is the width and height of a page in pixels whose tables are figures too, though no picture of them is kept.
    """
    regions = list(readings or ())
    boxes = {region["index"]: _box(region) for region in regions}
    pictures = {
        crop_index(crop["path"]): (crop["label"], tuple(crop["bbox"]))
        for crop in crops or ()
        if crop["label"] in LABELS
    }
    if tables_of is not None:
        scale = tables_of * 2
        for region in regions:
            if region["native_label"] == TABLE:
                bbox = tuple(part * side / _GRID for part, side in zip(_box(region), scale, strict=True))
                pictures[region["index"]] = TABLE, bbox
    found = [at for at in sorted(pictures) if at in boxes and _share(boxes[at]) >= smallest]
    if not found:
        return []
    captions, texts = _captions(regions, boxes), _texts(regions)
    return [
        Figure(
            at,
            *pictures[at],
            boxes[at],
            "\n".join(captions.get(at, ())),
            _context(boxes[at], [(boxes[other], text) for other, text in texts]),
        )
        for at in found
    ]


def _captions(regions: Sequence[Row], boxes: Mapping[int, Box]) -> dict[int, list[str]]:
    """The captions of figures and tables by region: each caption is that of the nearest one within reach."""
    captioned = [region["index"] for region in regions if region["native_label"] in _CAPTIONED]
    found: dict[int, list[str]] = {}
    for region in sorted(regions, key=lambda region: region["index"]):
        if region["native_label"] != _CAPTION or not (text := _text(region)):
            continue
        near = [(gap, at) for at in captioned if (gap := _gap(boxes[region["index"]], boxes[at])) is not None]
        if near:
            found.setdefault(min(near)[1], []).append(text)
    return found


def _texts(regions: Sequence[Row]) -> list[tuple[int, str]]:
    """(region, text) of what a figure can be explained by."""
    texts = [region for region in regions if region["label"] == "text" and region["native_label"] not in _REPEATED]
    return [(region["index"], text) for region in texts if (text := _text(region))]


def _context(figure: Box, texts: Sequence[tuple[Box, str]]) -> str:
    """The nearest texts within reach, nearest first; the last one is cut at a blank."""
    near = [(distance, text) for box, text in texts if (distance := max(_apart(figure, box))) <= _TEXT_REACH]
    # Sorting is stable: of equally near ones the first in reading order comes first.
    context = "\n".join(text for _, text in sorted(near, key=lambda each: each[0]))
    if len(context) <= _CONTEXT:
        return context
    cut = context[:_CONTEXT]
    return cut[: max(cut.rfind(" "), cut.rfind("\n"), _CONTEXT // 2)].rstrip()


def _gap(caption: Box, box: Box) -> int | None:
    """Between a caption and what it may be of, above, below or beside it; None where it is out of reach."""
    across, down = _apart(caption, box)
    return None if (across and down) or max(across, down) > _CAPTION_REACH else across + down


def _apart(one: Box, other: Box) -> tuple[int, int]:
    """Empty space between two boxes, across and down; 0 where they overlap in that direction."""
    return max(0, one[0] - other[2], other[0] - one[2]), max(0, one[1] - other[3], other[1] - one[3])


def _share(box: Box) -> float:
    return max(0, box[2] - box[0]) * max(0, box[3] - box[1]) / _GRID**2


def _box(region: Row) -> Box:
    x1, y1, x2, y2 = region["bbox_2d"]
    return x1, y1, x2, y2


def _text(region: Row) -> str:
    return " ".join(page_text(region_texts([region])).split())
