"""Pictures, ruling lines and filled boxes that a PDF page draws.

The module does not load a PDF library by itself.
"""

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise, product, starmap

import numpy as np
from numpy.typing import NDArray
from pypdfium2 import PdfImage, PdfiumError, PdfMatrix, PdfObject, PdfPage, raw

from kopub.boxes import Box, is_within

_TEXT, _IMAGE = 1, 3
"""The kinds of objects that PDFium calls `FPDF_PAGEOBJ_TEXT` and `FPDF_PAGEOBJ_IMAGE`."""
_SUBPIXELS = 64
"""PDFium rounds points to whole pixels, so it is given a page this many times as large, to place boxes exactly."""
_MOST_PATHS, _MOST_SEGMENTS = 20_000, 60_000
"""Most paths, and most of their segments, among which rules are looked for; a map has more."""
_MOST_RULES = 4_000
_STRAIGHT = 0.75
"""Points by which the ends of a level or upright line may differ."""
_SHORTEST, _THICKEST = 4.0, 3.0
"""Points: the least length and the greatest thickness of a rule; a thicker box is a filled area."""
_OPAQUE = 250
"""Alpha, of 255, from which a picture's pixel hides what is below it."""
_WHITE = 240
"""Level of red, green and blue from which a colour cannot be seen on paper."""
_MOST_CLEAR = 0.5
"""Largest transparent share of a picture that hides text below it; a stamp or a watermark is mostly transparent."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The transform from a PDF's points to the upright page's pixels."""

    matrix: NDArray[np.float64]
    offset: NDArray[np.float64]

    @classmethod
    def of(cls, page: PdfPage, width: int, height: int) -> "Placement":
        """Return the transform of a page that is drawn with these pixels."""
        x, y = ctypes.c_int(), ctypes.c_int()

        def pixel(across: float, up: float) -> NDArray[np.float64]:
            size = (width * _SUBPIXELS, height * _SUBPIXELS)
            raw.FPDF_PageToDevice(page.raw, 0, 0, *size, 0, across, up, x, y)
            return np.array((x.value, y.value), np.float64) / _SUBPIXELS

        reach = 100.0
        origin = pixel(0, 0)
        matrix = np.column_stack(((pixel(reach, 0) - origin) / reach, (pixel(0, reach) - origin) / reach))
        return cls(matrix, origin)

    def box(self, left: float, bottom: float, right: float, top: float) -> tuple[float, float, float, float]:
        """Return a box of the PDF as (x1, y1, x2, y2) in pixels."""
        corners = self.matrix @ np.array(((left, right), (bottom, top))) + self.offset[:, None]
        (x1, x2), (y1, y2) = np.sort(corners, axis=1)
        return float(x1), float(y1), float(x2), float(y2)


class Coverings:
    """The pictures of a page, which hide text drawn before them, as in scans."""

    def __init__(self, page: PdfPage, placement: Placement) -> None:
        self._order: dict[int, int] = {}
        """The position of each text object in drawing order, by its address."""
        self._pictures: list[tuple[int, Box, PdfObject]] = []
        self._hides: dict[int, bool] = {}
        """Whether a picture hides what is below it, by its position; looked up once, for it must be decoded."""
        for at, drawn in enumerate(page.get_objects(filter=[_TEXT, _IMAGE])):
            if drawn.type == _TEXT:  # pyright: ignore[reportAttributeAccessIssue]
                self._order[address(drawn.raw)] = at
            elif self._order:
                x1, y1, x2, y2 = placement.box(*_bounds(drawn))
                self._pictures.append((at, Box(int(x1), int(y1), int(x2), int(y2)), drawn))

    def hide(self, text: ctypes.c_void_p, box: Box) -> bool:
        """Return whether a picture drawn later covers the middle of a text object's word."""
        if not self._pictures or (drawn := self._order.get(address(text))) is None:
            return False
        for at, around, picture in self._pictures:
            if at <= drawn or not is_within(box, around):
                continue
            if at not in self._hides:
                assert isinstance(picture, PdfImage)
                try:
                    pixels = picture.get_bitmap(render=True, scale_to_original=False).to_numpy()
                except PdfiumError:
                    clear = 1.0  # a picture that cannot be decoded is not drawn
                else:
                    clear = 0.0 if pixels.ndim < 3 or pixels.shape[2] < 4 else (pixels[..., 3] < _OPAQUE).mean()
                self._hides[at] = bool(clear <= _MOST_CLEAR)
            if self._hides[at]:
                return True
        return False


def address(drawn: object) -> int:
    """Return the address of an object of PDFium, the same for one object."""
    return ctypes.cast(drawn, ctypes.c_void_p).value or 0  # pyright: ignore[reportArgumentType]


def _bounds(drawn: PdfObject) -> tuple[float, float, float, float]:
    """Return (left, bottom, right, top) on the page; PDFium gives them relative to a form."""
    left, bottom, right, top = drawn.get_bounds()
    corners = list(product((left, right), (bottom, top)))
    form = drawn.container
    while form is not None:
        corners = list(starmap(form.get_matrix().on_point, corners))
        form = form.container
    xs, ys = zip(*corners, strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def pixels_of(drawn: PdfObject, page: PdfPage, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the part of a drawn page that an object occupies, which may be empty."""
    height, width = pixels.shape[:2]
    left, top, right, bottom = Placement.of(page, width, height).box(*_bounds(drawn))
    return pixels[max(0, round(top)) : max(0, round(bottom)), max(0, round(left)) : max(0, round(right))]


def pictures_of(page: PdfPage, width: int, height: int) -> Iterator[Box]:
    """Yield the boxes of a page's pictures in pixels; charts and drawings are none."""
    placement = Placement.of(page, width, height)
    for drawn in islice(page.get_objects(filter=[_IMAGE]), _MOST_RULES):
        yield _pixels(placement, _bounds(drawn))


def shapes_of(page: PdfPage, placement: Placement) -> tuple[tuple[Box, ...], tuple[Box, ...]]:
    """Return the level and upright lines, and the filled boxes, of a page in pixels.

    A stroked box gives its four sides, a thin filled one is a line. Curves and slanting lines are left out.
    """
    rules: dict[Box, None] = {}
    fills: dict[Box, None] = {}
    left = _MOST_SEGMENTS
    for path in islice(page.get_objects(filter=[raw.FPDF_PAGEOBJ_PATH]), _MOST_PATHS):
        left -= raw.FPDFPath_CountSegments(path.raw)
        if left < 0 or len(rules) + len(fills) > _MOST_RULES:
            break
        mode, stroked = ctypes.c_int(), ctypes.c_int()
        raw.FPDFPath_GetDrawMode(path.raw, mode, stroked)
        filled = mode.value != raw.FPDF_FILLMODE_NONE and not is_clear(path.raw)
        width = ctypes.c_float(1.0)
        raw.FPDFPageObj_GetStrokeWidth(path.raw, width)
        forms, form = PdfMatrix(), path.container
        while form is not None:
            forms, form = forms.multiply(form.get_matrix()), form.container
        clip: Sequence[float] | None = None
        for corners in _lines_of(path, forms):
            clip = _clip_of(path, forms) if clip is None else clip
            x1, y1, x2, y2 = box = _clipped(corners, clip)
            is_box = len(corners) >= 4 and all(starmap(_is_straight, pairwise(corners)))
            if filled and is_box and min(x2 - x1, y2 - y1) > _THICKEST:
                fills[_pixels(placement, box)] = None
            elif filled and is_box and min(x2 - x1, y2 - y1) >= 0 and max(x2 - x1, y2 - y1) >= _SHORTEST:
                rules[_pixels(placement, box)] = None
            if not stroked.value or width.value > 2 * _THICKEST:
                continue
            for a, b in pairwise(corners):
                x1, y1, x2, y2 = box = _clipped((a, b), clip)
                if _is_straight(a, b) and min(x2 - x1, y2 - y1) >= 0 and max(x2 - x1, y2 - y1) >= _SHORTEST:
                    rules[_pixels(placement, box)] = None
    return tuple(rules), tuple(fills)


def _clip_of(path: PdfObject, forms: PdfMatrix) -> list[float]:
    """Return the box in points to which a path is clipped."""
    clip = raw.FPDFPageObj_GetClipPath(path.raw)
    box = [-np.inf, -np.inf, np.inf, np.inf]
    x, y = ctypes.c_float(), ctypes.c_float()
    for at in range(raw.FPDFClipPath_CountPaths(clip)):
        points = []
        for index in range(raw.FPDFClipPath_CountPathSegments(clip, at)):
            raw.FPDFPathSegment_GetPoint(raw.FPDFClipPath_GetPathSegment(clip, at, index), x, y)
            points.append(forms.on_point(x.value, y.value))
        box = list(_clipped(points, box)) if points else box
    return box


def _clipped(points: Sequence[tuple[float, float]], clip: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the box of points within another.

    Its right is left of its left if they are apart.
    """
    xs, ys = zip(*points, strict=True)
    return max(min(xs), clip[0]), max(min(ys), clip[1]), min(max(xs), clip[2]), min(max(ys), clip[3])


def _lines_of(path: PdfObject, forms: PdfMatrix) -> Iterator[list[tuple[float, float]]]:
    """Yield the corners of each line or outline of a path."""
    matrix = path.get_matrix().multiply(forms)
    x, y = ctypes.c_float(), ctypes.c_float()
    corners: list[tuple[float, float]] = []
    for at in range(raw.FPDFPath_CountSegments(path.raw)):
        segment = raw.FPDFPath_GetPathSegment(path.raw, at)
        kind = raw.FPDFPathSegment_GetType(segment)
        raw.FPDFPathSegment_GetPoint(segment, x, y)
        point = matrix.on_point(x.value, y.value)
        if kind != raw.FPDF_SEGMENT_LINETO:
            if len(corners) > 1:
                yield corners
            corners = []
        corners.append(point)
        if raw.FPDFPathSegment_GetClose(segment) and len(corners) > 2 and corners[0] != corners[-1]:
            corners.append(corners[0])
    if len(corners) > 1:
        yield corners


def _is_straight(a: tuple[float, float], b: tuple[float, float]) -> bool:
    return min(abs(a[0] - b[0]), abs(a[1] - b[1])) <= _STRAIGHT


def _pixels(placement: Placement, box: tuple[float, float, float, float]) -> Box:
    x1, y1, x2, y2 = map(round, placement.box(*box))
    return Box(x1, y1, max(x1 + 1, x2), max(y1 + 1, y2))


def is_clear(drawn: ctypes.c_void_p) -> bool:
    """Return whether an object's filling is wholly transparent."""
    *_, alpha = _filling(drawn)
    return alpha == 0


def is_white(drawn: ctypes.c_void_p) -> bool:
    """Return whether an object is filled with white or nearly so."""
    *colour, _ = _filling(drawn)
    return min(colour) >= _WHITE


def _filling(drawn: ctypes.c_void_p) -> tuple[int, int, int, int]:
    """Return red, green, blue and alpha; opaque black if PDFium does not know."""
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    if not raw.FPDFPageObj_GetFillColor(drawn, red, green, blue, alpha):
        return 0, 0, 0, 255
    return red.value, green.value, blue.value, alpha.value


def begins_line(page: ctypes.c_void_p, index: int) -> bool:
    """Return whether a letter stands on another line than the one before, and aside.

    PDFium joins lines on a page that it takes for vertical writing.
    """
    a, b = raw.FS_RECTF(), raw.FS_RECTF()
    if not (raw.FPDFText_GetLooseCharBox(page, index - 1, a) and raw.FPDFText_GetLooseCharBox(page, index, b)):
        return False
    size = max(abs(a.top - a.bottom), abs(b.top - b.bottom))
    aside = abs(b.left + b.right - a.left - a.right) / 2
    return max(b.bottom - a.top, a.bottom - b.top) > size / 2 and aside > size / 2
