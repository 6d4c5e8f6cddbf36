"""A page with its regions drawn on it, small enough for an event log."""

import base64
import io
from collections.abc import Iterator, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

Box = tuple[Sequence[float], str, int]
"""(x1, y1, x2, y2) in pixels of the page, label, and place in the reading order."""

_TEXT, _TITLE, _TABLE, _FORMULA, _PICTURE, _MARGIN, _OTHER = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (110, 110, 110),
    (86, 180, 233),
)
"""Okabe and Ito's palette (2008), whose colours colour-blind people can tell apart; grey is for page margins."""

_COLOURS = {
    **dict.fromkeys(("text", "vertical_text", "abstract", "content", "aside_text"), _TEXT),
    **dict.fromkeys(("reference", "reference_content", "algorithm"), _OTHER),
    **dict.fromkeys(("doc_title", "paragraph_title", "figure_title"), _TITLE),
    "table": _TABLE,
    **dict.fromkeys(("display_formula", "inline_formula", "formula_number"), _FORMULA),
    **dict.fromkeys(("image", "chart", "seal", "header_image", "footer_image"), _PICTURE),
    **dict.fromkeys(("header", "footer", "number", "footnote", "vision_footnote"), _MARGIN),
}

_SIDES = (900, 720, 560, 400, 200, 100)
"""Pixels of the longer side, tried in this order: text is legible at the first, and only boxes at the last."""
_FADE = 0.5
"""Share of white blended in: half-way to white, a page stays legible, its boxes stand out, and its bytes halve."""
_QUALITY = 25
"""WebP quality: Korean stays legible at 800 pixels, and a higher quality costs more bytes than a larger picture."""
_FONT_SIZE = 11
_LINE = 2
_PADDING = 2
_DATA_URI = "data:image/webp;base64,"


def preview(image: np.ndarray, boxes: Sequence[Box] = (), max_bytes: int = 30_000) -> str:
    """Return the page, scaled down with its layout drawn, as a WebP data URI.

    The layout is boxes, labels and reading order (from 1). `image` is RGB, uint8 (height, width, 3). The URI is that of
    the largest picture that fits in `max_bytes` characters. Raises `ValueError` if not even a thumbnail fits.
    """
    for encoded in _candidates(image, boxes):
        uri = _DATA_URI + base64.b64encode(encoded).decode()
        if len(uri) <= max_bytes:
            return uri
    raise ValueError(f"no picture of the page fits into {max_bytes} bytes")


def _candidates(image: np.ndarray, boxes: Sequence[Box]) -> Iterator[bytes]:
    page = _fade(image)
    for side in _SIDES:
        small = page.resize(_size(image, side), Image.Resampling.BOX)
        _draw(small, boxes, _scale(image, side))
        encoded = io.BytesIO()
        small.save(encoded, "WEBP", quality=_QUALITY, method=2)
        yield encoded.getvalue()


def _fade(image: np.ndarray) -> Image.Image:
    """Return the page at the largest size that is tried, half-way to white."""
    import cv2

    # Pillow would first copy the whole page, which takes 120 ms at 300 dpi, at the end of every shard.
    page = Image.fromarray(cv2.resize(image, _size(image, _SIDES[0]), interpolation=cv2.INTER_AREA))
    return Image.blend(page, Image.new("RGB", page.size, "white"), _FADE)


def _scale(image: np.ndarray, side: int) -> float:
    """Return the scale, at most 1, that limits both sides to `side` pixels."""
    return min(1.0, side / max(image.shape[:2]))


def _size(image: np.ndarray, side: int) -> tuple[int, int]:
    """Return width and height at that scale."""
    scale = _scale(image, side)
    return max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale))


def _draw(page: Image.Image, boxes: Sequence[Box], scale: float) -> None:
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(_FONT_SIZE)
    ordered = sorted(boxes, key=lambda box: box[2])
    for bbox, label, _ in ordered:
        x1, y1, x2, y2 = (value * scale for value in bbox)
        outside = (x1 - _LINE, y1 - _LINE, max(x1, x2) + _LINE, max(y1, y2) + _LINE)
        draw.rectangle(outside, outline=_colour(label), width=_LINE)
    # Tags are drawn last, so that no box covers them, and in the margin left of the box if there is room.
    for bbox, label, index in ordered:
        text = f"{index}: {label}"
        left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
        width, height = right - left + 2 * _PADDING, bottom - top + 2 * _PADDING
        x, y = max(0.0, bbox[0] * scale - _LINE - width), bbox[1] * scale - _LINE
        draw.rectangle((x, y, x + width, y + height), fill=_colour(label))
        draw.text((x + _PADDING - left, y + _PADDING - top), text, fill="white", font=font)


def _colour(label: str) -> tuple[int, int, int]:
    return _COLOURS.get(label, _OTHER)
