"""DeepSeek-OCR in client processes: images of regions, which it splits into tiles, and answers."""

import math
import re
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

import cv2
import numpy as np
from markdown_it import MarkdownIt

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Task
from kopub.recognition.content import content_parts, fence_code
from kopub.recognition.tables import is_bare, strip_placeholders
from kopub.recognition.vlm.client.region_images import CropImage, encode_image, relative_size, resize

VERSION = CodeVersion("recognition.deepseek_crops", {1: "the first release"})
"""Version of how a region becomes an image; the answer cache keeps answers to the same image."""
VIEW = 1024
"""Pixels per side of the view of the whole crop, which is fitted into it with its shape kept."""
TILE = 640
"""Pixels per side of a tile of DeepSeek-OCR. A crop that fits in one tile is not split."""
TOKEN = 64
"""Pixels per side of one image token: patches of 16, compressed four by four."""
MOST_TILES = 6
_SIDES = range(1, MOST_TILES + 1)
_GRIDS = sorted((grid for grid in product(_SIDES, _SIDES) if 1 < math.prod(grid) <= MOST_TILES), key=math.prod)


@dataclass(frozen=True, slots=True)
class Views:
    """The way in which a model of the family sees a crop.

    Tiles have `tile` pixels per side; `row_ends` says whether rows of tokens have an end token. `most_tokens` is the
    number for a crop of six tiles in a column, the most of any.
    """

    tile: int
    row_ends: bool
    most_tokens: int


OCR = Views(TILE, True, 933)
OCR2 = Views(768, False, 1121)
"""The views of DeepSeek-OCR-2."""


class TiledImage(CropImage):
    """A crop as it is sent to DeepSeek-OCR."""

    __slots__ = ()

    views: ClassVar[Views] = OCR

    @property
    def tokens(self) -> int:
        """Number of image tokens in the prompt.

        Every row of a view or of all tiles may have one extra token, and each view has another.
        """
        end = int(self.views.row_ends)
        side, of_tile = VIEW // TOKEN, self.views.tile // TOKEN
        whole = side * (side + end) + 1
        columns, rows = tiles(self.width, self.height, self.views.tile)
        if columns * rows == 1:
            return whole
        return whole + (columns * of_tile + end) * rows * of_tile


class TiledImage2(TiledImage):
    """A crop as it is sent to DeepSeek-OCR-2."""

    __slots__ = ()

    views: ClassVar[Views] = OCR2


def tiles(width: int, height: int, tile: int = TILE) -> tuple[int, int]:
    """Return the (columns, rows) of tiles that the model lays over a crop.

    As in its own preprocessor, this is (1, 1) for a crop that fits in one tile, else the grid nearest in shape. Of two
    equally near grids, the larger one is taken if the crop fills half of it.
    """
    if max(width, height) <= tile:
        return 1, 1
    shape = width / height
    nearest = min(abs(shape - columns / rows) for columns, rows in _GRIDS)
    first, *others = (grid for grid in _GRIDS if abs(shape - grid[0] / grid[1]) == nearest)
    return next((grid for grid in reversed(others) if width * height > math.prod(grid) * tile**2 / 2), first)


def model_size(width: int, height: int, tile: int = TILE) -> tuple[int, int]:
    """Return the (width, height) at which a crop covers its tiles."""
    columns, rows = tiles(width, height, tile)
    if columns * rows == 1:
        return width, height
    shrink = min(1.0, max(columns * tile / width, rows * tile / height))
    return round(width * shrink), round(height * shrink)


def tiled_image(
    crop: np.ndarray, scale: float = 1.0, enough: float = 1.0, kind: type[TiledImage] = TiledImage
) -> TiledImage:
    """Make the image of a crop, shrunk at most once to what the model sees.

    `scale` is relative to that size. `enough` is the scale, relative to the crop on the page, at which its print is
    large enough to be read. A crop that fits in one tile at that scale is sent at it, without tiles; for any other crop
    `enough` has no effect, because it has as many tiles at every size.
    """
    height, width = crop.shape[:2]
    # A crop that is more elongated than any row of tiles is padded.
    below = max(0, math.ceil(width / MOST_TILES) - height)
    beside = max(0, math.ceil(height / MOST_TILES) - width)
    if below or beside:
        # Most pixels of a line are paper, even if its edge cuts through letters.
        paper = np.atleast_1d(np.median(crop, axis=(0, 1))).tolist()
        crop = cv2.copyMakeBorder(crop, 0, below, 0, beside, cv2.BORDER_CONSTANT, value=paper)
        height, width = height + below, width + beside
    tile = kind.views.tile
    if max(width, height) * enough <= tile < max(width, height):
        size = max(1, math.floor(width * enough)), max(1, math.floor(height * enough))
    else:
        columns, rows = model_size(width, height, tile)
        size = max(1, round(columns * scale)), max(1, round(rows * scale))
    return kind(*encode_image(resize(crop, size)), *size, relative_size(size, crop))


PROMPTS = ("Convert the document to markdown.", "Free OCR.", "OCR this image.", "Parse the figure.")
"""The prompts of the model, one of which an answer may begin with."""
_ECHO = re.compile(rf"\A\s*(?:{'|'.join(map(re.escape, PROMPTS))})[ \t]*(?:\n|\Z)", re.IGNORECASE)
_GROUNDING = re.compile(
    r"[<＜][|｜](ref|det)[|｜][>＞][^<＜]*(?:[<＜][|｜]/\1[|｜][>＞]|\Z)|[<＜][|｜]/?(?:ref|det|grounding)[|｜][>＞]"
)
"""The label and box of a block; an answer that was cut off may end within one."""
_SPECIAL = re.compile(r"[<＜][|｜]/?[\w▁]{2,40}[|｜][>＞]|<image>")
"""Other special tokens, such as `<｜end▁of▁sentence｜>`; `<|x|>` with one letter may be printed."""
_LABEL_BOX = re.compile(
    r"^[ \t]*(?:(?:sub_)?title|text|(?:table|image|figure)(?:_(?:caption|footnote|title))?|equation|list|header|footer"
    r"|page_number|footnote)?[ \t]?\[\[\d{1,4}(?:,[ \t]*\d{1,4}){3}\]\][ \t]*\n?",
    re.MULTILINE,
)
"""The label and box of a block without special tokens: `text[[12, 34, 567, 890]]`."""
_CENTRED = re.compile(r"</?center>")
"""A tag that the model puts around captions, and that is never printed."""
_DRAWING = re.compile(r"\\begin\{(tikzpicture|pgfpicture|picture)\}.*?(?:\\end\{\1\}|\Z)", re.DOTALL)
"""A program for a drawing, which no page prints."""
_ARRAY = re.compile(r"\\begin\{(array|matrix|tabular)\}(?:\{[^{}]*\})?((?:(?!\\begin)[\s\S])*?)\\end\{\1\}")
_PRINTED = re.compile(r"[^\s&\\{}~.]")
"""A letter, digit or sign in a cell of an array."""
_COMMAND = re.compile(r"\\(?:hline|quad|qquad|cdots|ldots|vdots|text|mathrm|\\|[,;:! ])")
_DELIMITERS = re.compile(r"\\\[\s*\\\]|\\\(\s*\\\)|\$\$\s*\$\$")
_DELIMITER_ROW = re.compile(r"^[ \t|]*:?-[ \t\r|:-]*$", re.MULTILINE)
"""The second line of a markdown table."""
_MARKDOWN_TABLES = MarkdownIt("zero").enable("table")
"""A parser that knows nothing else, so that cells are left alone."""


def clean(text: str, task: Task) -> str:
    """Return an answer as it is printed, without the model's additions.

    Grounding, an echo of the prompt, special tokens and invented drawings are removed. Code between fences is kept. A
    markdown table becomes `<table>` HTML with the cells as the model wrote them, except placeholders that the page
    cannot contain; a table without any character is removed. A clean answer is returned unchanged.
    """
    before = None
    while text != before:
        # Removing one mark may turn the remains of a torn one into another.
        before = text
        text = _LABEL_BOX.sub("", _SPECIAL.sub("", _GROUNDING.sub("", _ECHO.sub("", text))))
        parts: list[str] = []
        for part in content_parts(text):
            if part.is_code:
                parts.append(fence_code(part.text, part.language))
                continue
            words = _DRAWING.sub("", _CENTRED.sub("", part.text))
            # An array of which no cell says anything goes too.
            words = _ARRAY.sub(lambda array: array[0] if _PRINTED.search(_COMMAND.sub("", array[2])) else "", words)
            parts.append(_DELIMITERS.sub("", words))
        text = "\n".join(parts).strip()
        if task is Task.TABLE:
            if "|" in text and _DELIMITER_ROW.search(text):
                text = _html_tables(text)
            text = strip_placeholders(text)
            text = "" if is_bare(text) else text
    return text


def _html_tables(text: str) -> str:
    lines = text.split("\n")
    done, inside = 0, False
    html: list[str] = []
    for token in _MARKDOWN_TABLES.parse(text):
        if token.type == "table_open" and token.map is not None:
            html += [f"{line}\n" for line in lines[done : token.map[0]]]
            done, inside = token.map[1], True
        if inside:
            html.append(token.content if token.type == "inline" else f"<{'/' * (token.nesting < 0)}{token.tag}>")
        if token.type == "table_close":
            inside = False
            html.append("\n")
    return ("".join(html) + "\n".join(lines[done:])).strip()
