"""A page with its regions drawn on it, small enough for an event log."""

import base64
import io
from collections.abc import Sequence

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
    import cv2

    height, width = image.shape[:2]
    font = ImageFont.load_default(_FONT_SIZE)
    ordered = sorted(boxes, key=lambda box: box[2])
    page: Image.Image | None = None
    for side in _SIDES:
        scale = min(1.0, side / max(width, height))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        if page is None:
            # Pillow would first copy the whole page, which takes 120 ms at 300 dpi, at the end of every shard.
            page = Image.fromarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
            page = Image.blend(page, Image.new("RGB", page.size, "white"), _FADE)
        small = page.resize(size, Image.Resampling.BOX)
        draw = ImageDraw.Draw(small)
        for bbox, label, _ in ordered:
            x1, y1, x2, y2 = (value * scale for value in bbox)
            outside = (x1 - _LINE, y1 - _LINE, max(x1, x2) + _LINE, max(y1, y2) + _LINE)
            draw.rectangle(outside, outline=_COLOURS.get(label, _OTHER), width=_LINE)
        # Tags are drawn last, so that no box covers them, and in the margin left of the box if there is room.
        for bbox, label, index in ordered:
            text = f"{index}: {label}"
            left, top, right, bottom = draw.textbbox((0, 0), text, font=font)
            wide, high = right - left + 2 * _PADDING, bottom - top + 2 * _PADDING
            x, y = max(0.0, bbox[0] * scale - _LINE - wide), bbox[1] * scale - _LINE
            draw.rectangle((x, y, x + wide, y + high), fill=_COLOURS.get(label, _OTHER))
            draw.text((x + _PADDING - left, y + _PADDING - top), text, fill="white", font=font)
        encoded = io.BytesIO()
        small.save(encoded, "WEBP", quality=_QUALITY, method=2)
        uri = _DATA_URI + base64.b64encode(encoded.getvalue()).decode()
        if len(uri) <= max_bytes:
            return uri
    raise ValueError(f"no picture of the page fits into {max_bytes} bytes")
