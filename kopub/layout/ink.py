"""Ink and paper of a page: light, grey levels, masks, and blank pages.

All searches for lines, rules and cells use a smaller copy of the page, made by `shrink`.
"""

import cv2
import numpy as np
from numpy.typing import NDArray

BLANK_SHARE = 4e-6
"""A page with a smaller share of ink is blank: on A4 at 300 dpi that is 35 pixels, less than a 10-point full stop."""

_SPARSE = 0.02
"""Share of ink above which a page is not checked for consisting of specks: a line of text has 0.003, dust less."""

INK_CONTRAST = 32
"""Grey levels between ink and its paper: above JPEG noise (about 20) and below the palest grey print (about 50)."""

_DARK = 64
"""Grey level of paper below which a page without ink is dark, as if a lamp was off or a picture was lost."""

PRINT_CONTRAST = 64
"""Grey levels between the strokes of letters and their paper at full resolution."""


def grey_histogram(gray: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Count the pixels of each grey level, (256,).

    A count above 16 million is exact to one in 16 million.
    """
    # np.bincount first converts every pixel to eight bytes, which takes at least three times as long.
    counts = cv2.calcHist([np.ascontiguousarray(gray)], [0], None, [256], [0, 256])
    return counts.ravel().astype(np.intp)


def paper_level(gray: NDArray[np.uint8]) -> int:
    """Return the most frequent grey level."""
    return int(grey_histogram(gray).argmax())


def ink_mask(gray: NDArray[np.uint8], contrast: int) -> NDArray[np.bool_]:
    """Mark the pixels that differ from the paper by more than `contrast` grey levels."""
    return np.asarray(cv2.absdiff(gray, np.full_like(gray, paper_level(gray)))) > contrast


def ink_share(gray: NDArray[np.uint8]) -> float:
    """Return the share of pixels that differ from the paper, 0 to 1.

    `gray` is a page, uint8 (height, width). Paper is the most frequent grey level, so light print on a dark page counts
    as ink, and a page of one pixel or one colour has none.
    """
    levels = grey_histogram(gray)
    paper = int(levels.argmax())
    far = np.abs(np.arange(256) - paper) > INK_CONTRAST
    return float(levels[far].sum() / gray.size)


def blank_reason(gray: NDArray[np.uint8]) -> str | None:
    """Return why a person should look at a page without writing; None on light paper."""
    return "the page is dark all over: its scan or photo may have failed" if paper_level(gray) < _DARK else None


def has_writing(gray: NDArray[np.uint8], speck: float) -> bool:
    """Return whether the ink of a page, uint8 (height, width), is more than specks.

    A speck is a connected mark of at most `speck` of both the page's width and its height.
    """
    share = ink_share(gray)
    if share < BLANK_SHARE or share > _SPARSE:
        return share > _SPARSE
    marks = ink_mask(gray, INK_CONTRAST).astype(np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(marks, connectivity=8)
    height, width = gray.shape
    # A mark cannot be smaller than one pixel, which is a speck even on a small copy of a page.
    wide = stats[1:, cv2.CC_STAT_WIDTH] > max(1.0, speck * width)
    high = stats[1:, cv2.CC_STAT_HEIGHT] > max(1.0, speck * height)
    return bool((wide | high).any())


def ink_contrast(gray: NDArray[np.uint8], reach: int) -> NDArray[np.uint8]:
    """Return how far each pixel stands out from the paper around it.

    Paper is the lightest level within `reach` pixels that is not a speck (a morphological closing),
    or the darkest where the surroundings are dark, so tinted boxes and light print on a dark band
    both come out as ink on nothing.
    """
    kernel = np.ones((reach, reach), np.uint8)
    light = cv2.morphologyEx(gray, cv2.MORPH_CLOSE, kernel)
    contrast = cv2.subtract(light, gray)
    dark_paper = cv2.morphologyEx(gray, cv2.MORPH_OPEN, kernel)
    typical = cv2.blur(gray, (reach, reach))
    on_dark = (typical < 128) & (cv2.subtract(typical, dark_paper) < cv2.subtract(light, typical))
    return np.where(on_dark, cv2.subtract(gray, dark_paper), contrast)


_SHORT_SIDE = 1240
"""Shorter side in pixels, as of A4 at 150 dpi: rules, letters and gaps remain, and every step costs a quarter."""
PAPER_REACH = 41
"""Side in pixels of the square in which a pixel's paper is found: wider than a title's strokes, less than a margin."""


def working_scale(height: int, width: int) -> float:
    """Return the scale of a page's working copy, which is 1 for a small page."""
    return min(1.0, _SHORT_SIDE / min(height, width))


def shrink(gray: NDArray[np.uint8], scale: float) -> NDArray[np.uint8]:
    """Shrink a page, uint8 (height, width), by `scale`; at 1 it is returned unchanged."""
    if scale >= 1:
        return gray
    height, width = gray.shape
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    return np.asarray(cv2.resize(gray, size, interpolation=cv2.INTER_AREA), np.uint8)


_TILE = 16
"""Side of a tile in pixels of the working copy; the paper of a tile counts as one level."""
_SMOOTH = 6
"""Most grey levels between the paper of adjacent tiles: light changes slowly, and a tint abruptly."""
_EDGE = 3
"""Most grey levels between adjacent pixels of paper: the edge of a pale tint has 6 or more."""
_WHOLE = 0.99
"""Share of a paper tile that must be paper; an edge runs through other tiles."""
_LEAST_SHARE = 0.5
"""Smallest share of the tiles that must be paper for the paper to be found."""
_SEEN, _HERE = 1, 2
"""Marks of tiles in the mask of a flood fill: seen in an earlier part, and in the present one."""
_EVEN = 40
"""Most grey levels between the darkest and lightest paper of an evenly lit page, ignoring 5 % at both ends.

Within this range the page is read as it is, because a photo whose light fell off by 15 % lost a line when it was
evened. A pale tint up to 13 levels darker may pass as paper, because its edge tiles are half tint.
"""

_FAINT_CONTRAST = 16
"""Grey levels between faint print and its paper: above print that shines through from the other side (about 12)."""
_OVER_NOISE = 6
"""Contrast of faint print in standard deviations of its paper's noise."""
_FAINT_SHARE = 1e-3
"""Smallest share of faint print on a page: one line of text has three times that, and stains and creases have less."""


def readable_grey(pixels: NDArray[np.uint8], keep_tints: bool = False) -> tuple[NDArray[np.uint8], bool]:
    """Return RGB pixels (height, width, 3) as grey (height, width), and whether there is ink.

    The grey page is evenly lit, and if all its print is faint, the print is strengthened. `keep_tints` is passed to
    `even_light`.
    """
    gray = even_light(np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), np.uint8), keep_tints)
    if ink_share(gray) >= BLANK_SHARE:
        return gray, True

    paper = paper_level(gray)
    far = np.abs(shrink(gray, working_scale(*gray.shape)).astype(np.int16) - paper)
    # 1.4826 times the median absolute deviation is the standard deviation of the noise, unaffected by print.
    noise = 1.4826 * float(np.median(far))
    faint = far[far > max(_FAINT_CONTRAST, _OVER_NOISE * noise)]
    if faint.size < _FAINT_SHARE * far.size:
        return gray, False
    # The faint print becomes black on white.
    strength = 255 / float(np.percentile(faint, 90))
    levels = 255 - strength * np.abs(np.arange(256) - paper)
    return np.asarray(cv2.LUT(gray, levels.clip(0, 255).astype(np.uint8)), np.uint8), True


def even_light(gray: NDArray[np.uint8], keep_tints: bool = False) -> NDArray[np.uint8]:
    """Return a page, uint8 (height, width), as if its paper were lit evenly.

    The same array is returned if the light is even or no paper is found. Paper is the area that extends from tile to
    tile without an edge, over most of the page. Anything on it, such as a photo, gets the light of the paper around it.
    A pale box may be too close to the paper to have an edge between tiles, and then becomes paper; with `keep_tints`,
    edges between pixels are searched instead.
    """
    small = shrink(gray, working_scale(*gray.shape))
    columns, rows = max(1, small.shape[1] // _TILE), max(1, small.shape[0] // _TILE)
    kernel = np.ones((PAPER_REACH, PAPER_REACH), np.uint8)
    light = np.asarray(cv2.morphologyEx(small, cv2.MORPH_CLOSE, kernel), np.uint8)
    tiles = np.asarray(cv2.resize(light, (columns, rows), interpolation=cv2.INTER_AREA), np.uint8)
    if int(tiles.max()) - int(tiles.min()) <= _EVEN:
        return gray
    level = _find_level_paper(light, (columns, rows)) if keep_tints else None
    paper = _find_paper(tiles) if level is None else level
    if paper is None:
        return gray
    darkest, lightest = np.percentile(tiles[paper], (5, 95))
    if lightest - darkest <= _EVEN:
        return gray
    if level is None:
        ground = cv2.inpaint(tiles, (~paper).astype(np.uint8), 3, cv2.INPAINT_TELEA)
    else:
        # A quadratic surface is fitted to the paper, since inpainting would bend across a large box.
        y, x = (axis / max(tiles.shape) for axis in np.indices(tiles.shape))
        terms = np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=-1)
        weights, *_ = np.linalg.lstsq(terms[paper], tiles[paper].astype(np.float64), rcond=None)
        ground = np.where(paper, tiles, (terms @ weights).clip(1, 255).astype(np.uint8))
    ground = cv2.resize(cv2.blur(ground, (3, 3)), gray.shape[::-1], interpolation=cv2.INTER_LINEAR)
    return np.asarray(cv2.divide(gray, ground, scale=float(lightest)), np.uint8)


def _find_level_paper(light: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.bool_] | None:
    """Return the tiles of the largest edgeless part, if most of the page."""
    level = cv2.morphologyEx(light, cv2.MORPH_GRADIENT, np.ones((3, 3), np.uint8)) <= _EDGE
    _, parts, stats, _ = cv2.connectedComponentsWithStats(level.astype(np.uint8), connectivity=4)
    areas = stats[1:, cv2.CC_STAT_AREA]
    if not areas.size or areas.max() < _LEAST_SHARE * light.size:
        return None
    paper = (parts == 1 + int(areas.argmax())).astype(np.float32)
    return np.asarray(cv2.resize(paper, size, interpolation=cv2.INTER_AREA)) > _WHOLE


def _find_paper(tiles: NDArray[np.uint8]) -> NDArray[np.bool_] | None:
    """Return the largest set of connected, similar tiles, if it is most of the page."""
    rows, columns = tiles.shape
    mask = np.zeros((rows + 2, columns + 2), np.uint8)
    for row, column in np.ndindex(rows, columns):
        if mask[row + 1, column + 1]:
            continue
        mask[mask == _HERE] = _SEEN
        filled = 4 | cv2.FLOODFILL_MASK_ONLY | _HERE << 8
        area, *_ = cv2.floodFill(tiles, mask, (column, row), 0, _SMOOTH, _SMOOTH, filled)
        if area >= _LEAST_SHARE * tiles.size:
            return mask[1:-1, 1:-1] == _HERE
    return None
