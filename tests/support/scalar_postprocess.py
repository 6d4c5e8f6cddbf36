"""A reference implementation of PP-DocLayoutV3's post-processing, one box at a time."""

from dataclasses import dataclass, field
from typing import NamedTuple

from kopub.layout.pp_doclayout.postprocess import Containment
from kopub.layout.regions import LABELS

_NEVER_CONTAINED = {"image", "seal", "chart"}


class ScalarBox(NamedTuple):
    label: int
    score: float
    x1: float
    y1: float
    x2: float
    y2: float
    query: int


@dataclass(frozen=True)
class ScalarSettings:
    threshold: float = 0.3
    thresholds: dict[str, float] = field(default_factory=dict)
    nms_same: float = 0.6
    nms_different: float = 0.98
    containment: dict[str, Containment] = field(default_factory=lambda: {"reference": Containment.SMALL})
    unclip: dict[str, tuple[float, float]] = field(default_factory=dict)


Boxes = list[ScalarBox]


def scalar_postprocess(
    scores: list[list[float]],
    boxes: list[list[float]],
    votes: list[float],
    width: int,
    height: int,
    settings: ScalarSettings,
) -> list[ScalarBox]:
    """Return the regions in reading order, from plain lists of numbers."""
    found = _candidates(scores, boxes, votes, width, height, settings)
    found = _nms(found, settings)
    found = _without_page_sized(found, width, height)
    found = _without_contained(found, settings)
    return _placed(found, width, height, settings)


def _candidates(
    scores: list[list[float]],
    boxes: list[list[float]],
    votes: list[float],
    width: int,
    height: int,
    settings: ScalarSettings,
) -> Boxes:
    limits = [settings.thresholds.get(label, settings.threshold) for label in LABELS]
    lowest = min(limits)
    pairs = [
        (score, query, label) for query, row in enumerate(scores) for label, score in enumerate(row) if score >= lowest
    ]
    pairs = sorted(pairs, key=lambda pair: -pair[0])[: len(scores)]
    order = sorted(range(len(votes)), key=lambda query: votes[query])
    rank = {query: position for position, query in enumerate(order)}
    pairs = [pair for pair in pairs if pair[0] >= limits[pair[2]]]
    found = []
    for score, query, label in sorted(pairs, key=lambda pair: (rank[pair[1]], -pair[0], pair[2])):
        cx, cy, w, h = boxes[query]
        x1, y1 = (cx - w / 2) * width, (cy - h / 2) * height
        x2, y2 = (cx + w / 2) * width, (cy + h / 2) * height
        found.append(ScalarBox(label, score, x1, y1, x2, y2, query))
    return found


def _nms(found: Boxes, settings: ScalarSettings) -> Boxes:
    kept: list[int] = []
    for i in sorted(range(len(found)), key=lambda i: -found[i].score):
        for j in kept:
            limit = settings.nms_same if found[i].label == found[j].label else settings.nms_different
            if _pixel_iou(found[j], found[i]) >= limit:
                break
        else:
            kept.append(i)
    return [found[i] for i in sorted(kept)]


def _pixel_iou(a: ScalarBox, b: ScalarBox) -> float:
    across = max(0.0, min(a.x2, b.x2) - max(a.x1, b.x1) + 1.0)
    down = max(0.0, min(a.y2, b.y2) - max(a.y1, b.y1) + 1.0)
    shared = across * down
    area_a = (a.x2 - a.x1 + 1.0) * (a.y2 - a.y1 + 1.0)
    area_b = (b.x2 - b.x1 + 1.0) * (b.y2 - b.y1 + 1.0)
    return shared / (area_a + area_b - shared)


def _without_page_sized(found: Boxes, width: int, height: int) -> Boxes:
    limit = 0.82 if width > height else 0.93
    kept = []
    for box in found:
        x1, x2 = min(max(box.x1, 0.0), width), min(max(box.x2, 0.0), width)
        y1, y2 = min(max(box.y1, 0.0), height), min(max(box.y2, 0.0), height)
        if LABELS[box.label] != "image" or (x2 - x1) * (y2 - y1) <= limit * width * height:
            kept.append(box)
    return kept or found


def _without_contained(found: Boxes, settings: ScalarSettings) -> Boxes:
    kept = [True] * len(found)
    for label, name in enumerate(LABELS):
        mode = settings.containment.get(name, Containment.LARGE)
        contains, contained = [False] * len(found), [False] * len(found)
        for i, inner in enumerate(found):
            for j, outer in enumerate(found):
                decider = outer if mode is Containment.LARGE else inner
                if i != j and decider.label == label and _is_contained(inner, outer):
                    contained[i] = contains[j] = True
        for i in range(len(found)):
            if mode is Containment.LARGE and contained[i]:
                kept[i] = False
            if mode is Containment.SMALL and contains[i] and not contained[i]:
                kept[i] = False
    return [box for box, keep in zip(found, kept, strict=True) if keep]


def _is_contained(inner: ScalarBox, outer: ScalarBox) -> bool:
    area = (inner.x2 - inner.x1) * (inner.y2 - inner.y1)
    if LABELS[inner.label] in _NEVER_CONTAINED or area <= 0:
        return False
    across = max(0.0, min(inner.x2, outer.x2) - max(inner.x1, outer.x1))
    down = max(0.0, min(inner.y2, outer.y2) - max(inner.y1, outer.y1))
    return across * down / area >= 0.8


def _placed(found: Boxes, width: int, height: int, settings: ScalarSettings) -> Boxes:
    placed = []
    for box in found:
        grow_w, grow_h = settings.unclip.get(LABELS[box.label], (1.0, 1.0))
        cx, cy = (box.x1 + box.x2) / 2, (box.y1 + box.y2) / 2
        half_w, half_h = (box.x2 - box.x1) * grow_w / 2, (box.y2 - box.y1) * grow_h / 2
        x1, x2 = min(max(cx - half_w, 0.0), width), min(max(cx + half_w, 0.0), width)
        y1, y2 = min(max(cy - half_h, 0.0), height), min(max(cy + half_h, 0.0), height)
        if x1 < x2 and y1 < y2:
            placed.append(box._replace(x1=x1, y1=y1, x2=x2, y2=y2))
    return placed
