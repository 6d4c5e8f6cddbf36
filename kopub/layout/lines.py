"""Text lines and ruled lines of a page from its ink, as boxes."""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from kopub.boxes import Box, union
from kopub.layout.grid import RuledLines
from kopub.layout.ink import INK_CONTRAST
from kopub.layout.runs import merge_intervals

MOST = 1500
"""Most runs of text kept, largest first: a full page of small print has 400, a noisy scan 20,000 specks."""


@dataclass(frozen=True, slots=True)
class TextLine:
    """A run of text without wide gaps.

    `stroke` is the mean length in pixels of its horizontal runs of ink.
    """

    box: Box
    stroke: float


def estimate_em(ink: NDArray[np.uint8]) -> float:
    """Estimate the height of the body text in pixels; 16 if there is no text.

    `ink` is a mask of 0 and 1. The estimate is the median height of the connected runs after a slight horizontal smear,
    weighted by width.
    """
    smeared = cv2.morphologyEx(ink, cv2.MORPH_CLOSE, np.ones((3, 15), np.uint8))
    _, _, stats, _ = cv2.connectedComponentsWithStats(smeared, connectivity=8)
    heights, widths = stats[1:, cv2.CC_STAT_HEIGHT], stats[1:, cv2.CC_STAT_WIDTH]
    # Runs of letters are wider than high; below 6 px nothing can be read, and above 80 px it is not body text.
    lettering = (widths > 1.5 * heights) & (heights >= 6) & (heights <= 80)
    if not lettering.any():
        return 16.0
    heights, widths = heights[lettering], widths[lettering]
    order = np.argsort(heights)
    middle = np.searchsorted(np.cumsum(widths[order]), widths.sum() / 2)
    return float(heights[order][middle])


def find_lines(ink: NDArray[np.uint8], em: float) -> list[TextLine]:
    """Find the text lines of a 0/1 ink mask; words within an `em` are joined."""
    kernel = np.ones((max(3, round(0.2 * em)), round(em)), np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(cv2.morphologyEx(ink, cv2.MORPH_CLOSE, kernel), connectivity=8)
    boxes = [
        Box(x, y, x + w, y + h)
        for x, y, w, h, _ in stats[1:].tolist()
        # Specks, smaller in both directions than the dot of an i, are dropped.
        if w >= 0.12 * em or h >= 0.12 * em
    ]
    ends = np.diff(ink, axis=1, prepend=np.uint8(0)) == 1
    area, runs = (np.asarray(cv2.integral(mask), np.int32) for mask in (ink, ends.astype(np.uint8)))
    lines: list[TextLine] = []
    for box in _join_parts(boxes, em):
        x1, y1, x2, y2 = box
        marks, strokes = (int(of[y2, x2] - of[y1, x2] - of[y2, x1] + of[y1, x1]) for of in (area, runs))
        lines.append(TextLine(box, marks / max(1, strokes)))
    return lines


def _join_parts(boxes: list[Box], em: float) -> list[Box]:
    """Join parts of one line: accents, equals signs, and parts that a rule cut off."""
    done: list[Box] = []
    for box in sorted(boxes, key=lambda b: -b.width * b.height)[:MOST]:
        for number, line in enumerate(done):
            high = min(box.y2, line.y2) - max(box.y1, line.y1)
            near = box.x1 < line.x2 + em / 2 and line.x1 < box.x2 + em / 2
            slack = 0.25 * em if box.height < em / 2 and box.x1 < line.x2 and line.x1 < box.x2 else 0
            if near and high + slack > 0.5 * min(box.height, line.height):
                done[number] = union([box, line])
                break
        else:
            done.append(box)
    return done


FAINT = 12
"""Grey levels between a rule and its paper, to which light grey hairlines fall when a page is halved."""
_MOST_TRIES, _ALIKE = 3, 0.2
"""Most searches for rules, and least difference of two heights of the body text after which is searched again."""
_EVEN = 0.25
"""Least contrast of a rule's palest part, as a share of the usual one; between blurred letters it is a tenth."""


def part_rules(contrast: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], RuledLines, float]:
    """Return a page's 0/1 ink mask without rules, the rules, and the `em`."""
    marks = (contrast > INK_CONTRAST).astype(np.uint8)
    rules, ink, em = RuledLines((), ()), marks, estimate_em(marks)
    # Letters that touch a rule count as no text, and a row between rules as a line of it, until the rules are erased.
    for _ in range(_MOST_TRIES):
        rules, ink, before = find_rules(contrast, em), marks.copy(), em
        for x1, y1, x2, y2 in (*rules.horizontal, *rules.vertical):
            ink[max(0, y1 - 1) : y2 + 1, max(0, x1 - 1) : x2 + 1] = 0
        em = estimate_em(ink)
        if abs(em - before) < _ALIKE * before:
            break
    return ink, rules, em


def find_rules(contrast: NDArray[np.uint8], em: float) -> RuledLines:
    """Find thin lines, 2.5 `em` wide or 2 `em` high, in a page's contrast."""
    thickest = max(3, round(em / 3))
    side = (thickest + 1) | 1  # an even one would be off its middle
    # A tint behind a row is as long as a rule, and rules across it stand out from it.
    solid = cv2.morphologyEx(contrast, cv2.MORPH_OPEN, np.ones((side, side), np.uint8))
    thin = np.asarray(cv2.subtract(contrast, solid), np.uint8)
    return RuledLines(
        _find_thin_lines(thin, round(2.5 * em), 1, thickest),
        _find_thin_lines(thin, 1, round(2.0 * em), thickest),
    )


def _find_thin_lines(contrast: NDArray[np.uint8], width: int, height: int, thickest: int) -> tuple[Box, ...]:
    # Beyond the edge is no ink, which would make a rule of a letter that is cut off there.
    strong = cv2.morphologyEx(
        contrast, cv2.MORPH_OPEN, np.ones((height, width), np.uint8), borderType=cv2.BORDER_CONSTANT, borderValue=0
    )
    _, _, stats, _ = cv2.connectedComponentsWithStats((strong > FAINT).astype(np.uint8), connectivity=8)
    rules: list[Box] = []
    for x, y, w, h, _ in stats[1:].tolist():
        if min(w, h) > thickest:
            continue
        # A rule is evenly dark, unlike a row of blurred letters.
        along = contrast[y : y + h, x : x + w].max(axis=int(w < h))
        palest, usual = np.percentile(along, (10, 50))
        if palest > _EVEN * usual:
            rules.append(Box(x, y, x + w, y + h))
    return tuple(rules)


def find_ruled_areas(rules: RuledLines, shape: tuple[int, int], em: float) -> tuple[list[Box], list[Box]]:
    """Find the tables, and the frames of other blocks, among the rules of a page.

    `shape` is (height, width). Rules that touch form a group, which is a table if it has inner lines, or else a frame.
    """
    canvas = np.zeros(shape, np.uint8)
    for x1, y1, x2, y2 in (*rules.horizontal, *rules.vertical):
        canvas[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2] = 1
    count, labels = cv2.connectedComponents(canvas)
    groups: list[tuple[list[Box], list[Box]]] = [([], []) for _ in range(count)]
    for direction, boxes in enumerate((rules.horizontal, rules.vertical)):
        for box in boxes:
            groups[int(labels[box.y1, box.x1])][direction].append(box)

    tables: list[Box] = []
    frames: list[Box] = []
    # The first label is that of the page without rules.
    for horizontal, vertical in groups[1:]:
        box = union([*horizontal, *vertical])
        rows = len(merge_intervals([(rule.y1, rule.y2) for rule in horizontal], em / 2))
        columns = len(merge_intervals([(rule.x1, rule.x2) for rule in vertical], em / 2))
        if box.width < 4 * em or box.height < 1.2 * em or not rows or not columns:
            continue
        if (rows >= 2 and columns >= 3) or (rows >= 3 and columns == 1) or rows >= 4:
            tables.append(box)
        elif rows >= 2 and columns == 2:
            frames.append(box)
    return tables, frames
