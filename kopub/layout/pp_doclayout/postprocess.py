"""The conversion of the model's raw boxes into detections, on whole arrays.

The rules are those of PaddleX's layout post-processing, as configured by the GLM-OCR SDK.
Ties are broken the same way everywhere: by reading order, then score, then label.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from kopub.layout.regions import LABELS

CONTAINED_SHARE = 0.8
"""A box is inside another if this share of its area is."""

PAGE_IMAGE_LANDSCAPE, PAGE_IMAGE_PORTRAIT = 0.82, 0.93
"""An `image` covering more of the page than this is the page itself, if anything else was found on it."""

_IMAGE = LABELS.index("image")
_INLINE = LABELS.index("inline_formula")
_NEVER_CONTAINED = np.isin(LABELS, ("image", "seal", "chart"))
_INLINE_SHARED = 0.5
"""Shared area, relative to the smaller box, above which an inline formula is dropped, if `overlap` is set."""


class Containment(StrEnum):
    """The box that is dropped if one is inside another."""

    LARGE = "large"
    """Boxes inside a box of this label are dropped."""
    SMALL = "small"
    """Boxes around a box of this label are dropped, unless they are themselves inside another of this label."""
    UNION = "union"
    """Both stay."""


class BoxRules(NamedTuple):
    """The rules as arrays over the class ids."""

    thresholds: NDArray[np.float64]
    """(C,) lowest score kept."""
    nms_same: float
    nms_different: float
    """IoU from which the box with the lower score is dropped, within one label and between two."""
    inner_goes: NDArray[np.bool_]
    """(C,) `Containment.LARGE`."""
    outer_goes: tuple[int, ...]
    """Class ids with `Containment.SMALL`."""
    unclip: NDArray[np.float64]
    """(C, 2) factors by which width and height grow about the centre."""
    overlap: float | None = None
    """Share of the smaller of two boxes above which it is dropped; None for no such rule."""


@dataclass(frozen=True, slots=True)
class Detections:
    """A page's detections in reading order; `dropped` counts the boxes dropped by each rule."""

    boxes: NDArray[np.float64]
    """(n, 4) x1, y1, x2, y2 in pixels of the page."""
    labels: NDArray[np.intp]
    scores: NDArray[np.float64]
    queries: NDArray[np.intp]
    """(n,) index of the model's query that made the region."""
    dropped: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)

    def only(self, keep: NDArray[np.bool_], rule: str) -> "Detections":
        """Return the detections that a rule keeps, and count the others."""
        dropped = {**self.dropped, rule: len(keep) - int(np.count_nonzero(keep))}
        return Detections(self.boxes[keep], self.labels[keep], self.scores[keep], self.queries[keep], dropped)


def make_rules(
    *,
    threshold: float,
    thresholds: Mapping[str, float],
    nms_same: float,
    nms_different: float,
    containment: Mapping[str, Containment],
    unclip: Mapping[str, tuple[float, float]],
    overlap: float | None = None,
) -> BoxRules:
    """Make rules from settings; other labels get the threshold, `large` and no unclip."""
    modes = [containment.get(label, Containment.LARGE) for label in LABELS]
    return BoxRules(
        thresholds=np.array([thresholds.get(label, threshold) for label in LABELS]),
        nms_same=nms_same,
        nms_different=nms_different,
        inner_goes=np.array([mode is Containment.LARGE for mode in modes]),
        outer_goes=tuple(i for i, mode in enumerate(modes) if mode is Containment.SMALL),
        unclip=np.array([unclip.get(label, (1.0, 1.0)) for label in LABELS]),
        overlap=overlap,
    )


def postprocess(
    scores: NDArray[np.float32],
    boxes: NDArray[np.float32],
    votes: NDArray[np.float32],
    width: int,
    height: int,
    rules: BoxRules,
) -> Detections:
    """Turn the model's boxes into detections on a page of `width` x `height` pixels.

    `scores` (Q, C) are probabilities, `boxes` (Q, 4) centre and size relative to the page, and `votes` (Q,) grow along
    the reading order. At most Q pairs of query and label are considered, best first.
    """
    queries, labels = _candidates(scores, votes, rules.thresholds)
    centre, half = boxes[queries, :2].astype(np.float64), boxes[queries, 2:].astype(np.float64) / 2
    page = np.array([width, height], np.float64)
    detections = Detections(
        boxes=np.hstack([(centre - half) * page, (centre + half) * page]),
        labels=labels,
        scores=scores[queries, labels].astype(np.float64),
        queries=queries,
    )
    # The order counts: each rule looks at what those before it have left.
    detections = detections.only(_not_overlapped(detections, rules), "overlapping")
    detections = detections.only(_not_page_sized(detections, width, height), "page_sized")
    detections = detections.only(_not_contained(detections, rules), "contained")
    detections = detections.only(_not_sharing(detections, rules.overlap), "sharing")
    # Boxes grow about their centres, but not beyond the page, where some have no area.
    low, high = detections.boxes[:, :2], detections.boxes[:, 2:]
    centre, half = (low + high) / 2, (high - low) * rules.unclip[detections.labels] / 2
    grown = np.clip(np.hstack([centre - half, centre + half]), 0.0, np.tile(page, 2))
    has_area = (grown[:, 0] < grown[:, 2]) & (grown[:, 1] < grown[:, 3])
    return replace(detections, boxes=grown).only(has_area, "off_page")


def _candidates(
    scores: NDArray[np.float32], votes: NDArray[np.float32], thresholds: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return (query, label) pairs above their thresholds, in reading order."""
    n_queries, n_labels = scores.shape
    flat = scores.ravel()
    pairs = np.flatnonzero(flat >= thresholds.min())
    if len(pairs) > n_queries:
        pairs = pairs[np.argsort(-flat[pairs], kind="stable")[:n_queries]]
    queries, labels = np.divmod(pairs, n_labels)
    over = flat[pairs] >= thresholds[labels]
    pairs, queries, labels = pairs[over], queries[over], labels[over]
    rank = np.empty(n_queries, np.intp)
    rank[np.argsort(votes, kind="stable")] = np.arange(n_queries)
    order = np.lexsort((labels, -flat[pairs], rank[queries]))
    return queries[order], labels[order]


def _not_overlapped(detections: Detections, rules: BoxRules) -> NDArray[np.bool_]:
    """Mark the boxes that greedy non-maximum suppression keeps.

    IoU counts pixels, so a box is one pixel wider and higher than its coordinates.
    """
    by_score = np.argsort(-detections.scores, kind="stable")
    boxes, labels = detections.boxes[by_score], detections.labels[by_score]
    shared = _intersections(boxes, 1.0)
    areas = (boxes[:, 2] - boxes[:, 0] + 1.0) * (boxes[:, 3] - boxes[:, 1] + 1.0)
    iou = shared / (areas[:, None] + areas - shared)
    limits = np.where(labels[:, None] == labels, rules.nms_same, rules.nms_different)
    suppresses = np.triu(iou >= limits, 1)
    stays = np.ones(len(boxes), bool)
    for i in np.flatnonzero(suppresses.any(axis=1)):
        if stays[i]:
            stays &= ~suppresses[i]
    keep = np.empty_like(stays)
    keep[by_score] = stays
    return keep


def _not_page_sized(detections: Detections, width: int, height: int) -> NDArray[np.bool_]:
    """Mark all boxes except images as large as the page, unless nothing else is left."""
    limit = PAGE_IMAGE_LANDSCAPE if width > height else PAGE_IMAGE_PORTRAIT
    inside = np.clip(detections.boxes, 0.0, [width, height, width, height])
    areas = (inside[:, 2] - inside[:, 0]) * (inside[:, 3] - inside[:, 1])
    keep = (detections.labels != _IMAGE) | (areas <= limit * width * height)
    return keep if keep.any() else ~keep


def boxes_with_inner(boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Mark the boxes (n, 4) that have another one inside, (n,)."""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    inside = _intersections(boxes, 0.0) >= CONTAINED_SHARE * areas[:, None]
    np.fill_diagonal(inside, False)
    return np.asarray(inside.any(axis=0))


def _not_contained(detections: Detections, rules: BoxRules) -> NDArray[np.bool_]:
    boxes, labels = detections.boxes, detections.labels
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    candidates = (areas > 0) & ~_NEVER_CONTAINED[labels]
    shares = _intersections(boxes, 0.0) / np.where(candidates, areas, 1.0)[:, None]
    inside = (shares >= CONTAINED_SHARE) & candidates[:, None]
    np.fill_diagonal(inside, False)
    keep = np.logical_not((inside & rules.inner_goes[labels]).any(axis=1))
    for label in rules.outer_goes:
        of_label = inside & (labels == label)[:, None]
        keep &= ~of_label.any(axis=0) | of_label.any(axis=1)
    return keep


def _not_sharing(detections: Detections, overlap: float | None) -> NDArray[np.bool_]:
    """Mark the boxes to keep of those that overlap.

    The smaller of two boxes is dropped if they share more than `overlap` of it; of two equal ones, the later. A picture
    and a box of another label both stay. An inline formula is dropped if more than half of the smaller box is shared.
    """
    keep = np.ones(len(detections), bool)
    if overlap is None:
        return keep
    boxes, labels = detections.boxes, detections.labels
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    smaller = np.minimum(areas[:, None], areas)
    shares = _intersections(boxes, 0.0) / np.where(smaller > 0, smaller, 1.0)
    inline, picture = labels == _INLINE, _NEVER_CONTAINED[labels]
    over = shares > np.where(inline[:, None] | inline, _INLINE_SHARED, overlap)
    over &= ~((picture[:, None] | picture) & (labels[:, None] != labels))
    for first, second in np.argwhere(np.triu(over, 1)):
        if not (keep[first] and keep[second]):
            continue
        if inline[first] or inline[second]:
            keep[[first, second]] = ~inline[[first, second]]
        else:
            keep[first if areas[first] < areas[second] else second] = False
    return keep


def _intersections(boxes: NDArray[np.float64], extra: float) -> NDArray[np.float64]:
    """Return the (n, n) areas that boxes share, each side grown by `extra`."""
    x1, y1, x2, y2 = boxes.T
    across = np.minimum(x2[:, None], x2) - np.maximum(x1[:, None], x1) + extra
    down = np.minimum(y2[:, None], y2) - np.maximum(y1[:, None], y1) + extra
    return np.maximum(across, 0.0) * np.maximum(down, 0.0)


DETAIL = 0.004
"""Douglas-Peucker tolerance as a share of the outline's length, as in PaddleX."""


def trace_outline(
    logits: NDArray[np.float32], bbox: tuple[float, float, float, float], width: int, height: int, threshold: float
) -> tuple[tuple[float, float], ...] | None:
    """Return the corners of the largest part of a mask (h, w) inside its box.

    They are in page pixels; None if the part has no area. `logits` cover the whole page of `width` x `height` pixels; a
    pixel is set if its probability exceeds `threshold`.
    """
    rows, columns = logits.shape
    scale = np.array([width / columns, height / rows])
    left, top = np.floor(np.array(bbox[:2]) / scale).astype(int)
    right, bottom = np.ceil(np.array(bbox[2:]) / scale).astype(int)
    part = logits[top:bottom, left:right] > np.log(threshold / (1 - threshold))
    contours, _ = cv2.findContours(part.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    if not contours:
        return None
    largest = max(contours, key=cv2.contourArea)
    corners = cv2.approxPolyDP(largest, DETAIL * cv2.arcLength(largest, True), True)[:, 0]
    if len(corners) < 3:
        return None
    # A contour runs through pixel centres.
    placed = np.clip((corners + (left, top) + 0.5) * scale, bbox[:2], bbox[2:])
    return tuple((float(x), float(y)) for x, y in placed)
