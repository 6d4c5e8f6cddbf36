"""The size at which a vision model of whole patches sees a picture. Pure."""

import math


def whole_patches(width: int, height: int, patch: int, least: int, most: int) -> tuple[int, int]:
    """(columns, rows) of patches of `patch` pixels a side: `least` to `most` of them, near the picture's own shape.

    The rule of the Qwen-VL family's preprocessors ("smart resize", from Qwen2-VL).
    """
    columns, rows = max(1, round(width / patch)), max(1, round(height / patch))
    area = width * height / patch**2
    if columns * rows > most:
        shrink = math.sqrt(area / most)
        columns = max(1, math.floor(width / shrink / patch))
        rows = max(1, math.floor(height / shrink / patch))
    elif columns * rows < least:
        enlarge = math.sqrt(least / area)
        columns, rows = math.ceil(width * enlarge / patch), math.ceil(height * enlarge / patch)
    return columns, rows
