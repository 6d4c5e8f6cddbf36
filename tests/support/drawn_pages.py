"""Page images of coloured blocks, reproducible by seed."""

import cv2
import numpy as np

from kopub.pages.page import Page


def drawing(seed: int, height: int = 900, width: int = 640) -> np.ndarray:
    rng = np.random.default_rng(seed)
    tint = rng.integers(120, 256, (16, 12, 3)).astype(np.uint8)
    page = cv2.resize(tint, (width, height), interpolation=cv2.INTER_LINEAR)
    for _ in range(30):
        x, y = rng.integers(0, width - 60), rng.integers(0, height - 60)
        w, h = rng.integers(20, width // 2), rng.integers(15, height // 6)
        page[y : y + h, x : x + w] = rng.integers(0, 200, 3)
    return page


def png(image: np.ndarray) -> bytes:
    return cv2.imencode(".png", image)[1].tobytes()


def some_pages(count: int) -> list[Page]:
    return [Page(f"p{i}", png(drawing(i))) for i in range(count)]
