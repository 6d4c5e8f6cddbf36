"""Count noisy blank pages with a region, and one-line pages that keep theirs.

    python -m benchmarks.reading.blank_pages [SPECK]

The pages are drawn: blanks with the dust, grain and JPEG noise of scans, and lines of 2 to 12 characters in print of 7
to 14 points on such paper.
"""

import argparse
from functools import partial

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from kopub.layout.base import SPECK
from kopub.layout.cpu.detector import detect_page
from kopub.pages.page import Page
from kopub.parallel import bounded_map

_SIZE = (1240, 1754), (1654, 2339), (2480, 3508)
"""A4 at 150, 200 and 300 dpi."""
_FONT = "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc"
_SIGNS = "가나다라마바사아자차카타파하한글문서쪽abcdefghilmnoprstuvwxyz0123456789"
PAGES = 200


def blank(seed: int) -> np.ndarray:
    """Return grained paper with up to 60 specks of dust of at most 0.5 mm."""
    rng = np.random.default_rng(seed)
    width, height = _SIZE[seed % len(_SIZE)]
    page = np.full((height, width), rng.integers(225, 256), np.uint8)
    largest = 0.5 / 210 * width
    for _ in range(rng.integers(1, 61)):
        x, y = int(rng.integers(0, width)), int(rng.integers(0, height))
        size = tuple(max(1, int(side)) for side in rng.uniform(0.2, 0.5, 2) * largest)
        cv2.ellipse(page, (x, y), size, float(rng.uniform(0, 180)), 0, 360, int(rng.integers(0, 120)), -1)
    cv2.setRNGSeed(seed)
    grain = cv2.randn(np.empty(page.shape, np.int16), np.zeros(1), rng.uniform(0, 6, 1))
    return cv2.add(page, grain, dtype=cv2.CV_8U)


def one_line(seed: int) -> np.ndarray:
    """Return such a page with a short line on it."""
    rng = np.random.default_rng(seed)
    page = Image.fromarray(blank(seed))
    points = rng.uniform(7, 14)
    font = ImageFont.truetype(_FONT, points / 72 * page.width / 8.27, index=1)
    text = "".join(rng.choice(list(_SIGNS), rng.integers(2, 13)))
    at = (rng.uniform(0.1, 0.6) * page.width, rng.uniform(0.05, 0.9) * page.height)
    ImageDraw.Draw(page).text(at, text, fill=int(rng.integers(0, 100)), font=font)
    return np.asarray(page)


def encoded(page: np.ndarray, seed: int) -> bytes:
    """Return the page as a JPEG in one of three qualities."""
    return cv2.imencode(".jpg", page, [cv2.IMWRITE_JPEG_QUALITY, (60, 80, 95)[seed % 3]])[1].tobytes()


def main() -> None:
    """Print both counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("speck", nargs="?", type=float, default=SPECK, help="the profile's `layout.speck`")
    speck = parser.parse_args().speck
    for name, draw in (("blank pages", blank), ("pages of one line", one_line)):
        pages = (Page(f"{name} {seed}", encoded(draw(seed), seed)) for seed in range(PAGES))
        found = sum(bool(layout.regions) for layout in bounded_map(partial(detect_page, speck=speck), pages, 0))
        print(f"{found} of {PAGES} {name} have a region")


if __name__ == "__main__":
    main()
