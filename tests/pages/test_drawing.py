"""Page previews: they fit, they open, and they show the boxes."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from kopub.layout.regions import LABELS
from kopub.pages.drawing import preview


def page(height: int = 1400, width: int = 1000) -> np.ndarray:
    """Return white paper with lines of speckle where a page has text."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    ink = np.random.default_rng(7).integers(0, 256, (height, width), np.uint8)
    for top in range(100, height - 100, 40):
        pixels[top : top + 20, 100 : width - 100] = ink[top : top + 20, 100 : width - 100, None]
    return pixels


def opened(uri: str) -> Image.Image:
    head, _, data = uri.partition(",")
    assert head == "data:image/webp;base64"
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


def colours(label: str) -> np.ndarray:
    """Return the mean colour of the left edge of a box with `label`."""
    blank = np.full((500, 500, 3), 255, np.uint8)
    shown = np.asarray(opened(preview(blank, [((200, 100, 400, 450), label, 0)])), float)
    return shown[200:400, 198:200].mean(axis=(0, 1))


@pytest.mark.parametrize("max_bytes", [3_000, 10_000, 30_000])
def test_a_preview_never_exceeds_its_limit(max_bytes: int):
    boxes = [((100, 100 + 40 * row, 900, 120 + 40 * row), LABELS[row], row) for row in range(25)]
    uri = preview(page(), boxes, max_bytes)
    assert len(uri) <= max_bytes
    assert opened(uri).width / opened(uri).height == pytest.approx(1000 / 1400, abs=0.02)


def test_more_room_gives_a_larger_picture():
    assert opened(preview(page(), max_bytes=60_000)).height > opened(preview(page(), max_bytes=8_000)).height


def test_a_limit_that_nothing_fits_is_an_error():
    with pytest.raises(ValueError, match="fits into 50 bytes"):
        preview(page(), max_bytes=50)


def test_boxes_are_drawn_where_they_are():
    blank = np.full((900, 600, 3), 255, np.uint8)
    shown = np.asarray(opened(preview(blank, [((200, 300, 400, 500), "table", 0)])), int)
    inked = np.argwhere(np.abs(shown - 255).sum(axis=2) > 150)
    assert inked[:, 0].min() == pytest.approx(298, abs=3)
    assert inked[:, 0].max() == pytest.approx(502, abs=3)
    assert inked[:, 1].max() == pytest.approx(402, abs=3)


def test_what_is_done_differently_has_another_colour():
    shown = [colours(label) for label in ("text", "paragraph_title", "table", "display_formula", "image", "header")]
    for at, one in enumerate(shown):
        for other in shown[at + 1 :]:
            assert np.abs(one - other).sum() > 60
    assert np.abs(colours("table") - (0, 158, 115)).max() < 40


def test_label_and_reading_order_are_shown():
    box = (200, 300, 400, 500)
    first, second, other = (
        preview(page(), [(box, label, index)]) for label, index in (("text", 0), ("text", 1), ("footnote", 0))
    )
    assert len({first, second, other}) == 3
    assert preview(page(), [(box, "text", 0)]) == first


@pytest.mark.parametrize("size", [(1, 1), (20_000, 50), (50, 20_000), (300, 200)])
def test_pages_of_any_shape_are_shown(size: tuple[int, int]):
    assert max(opened(preview(np.full((*size, 3), 200, np.uint8), [((-5, -5, 60_000, 9), "new", 41)])).size) <= 900
