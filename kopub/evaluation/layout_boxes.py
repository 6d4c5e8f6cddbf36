"""Precision, recall and F1 of regions, and COCO's mean average precision. Pure."""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kopub.diff.compare import assign, iou
from kopub.errors import ConfigError

BOX = tuple[float, float, float, float]
"""(x1, y1, x2, y2) in any unit that gold and regions share."""

IOU = 0.5


@dataclass(frozen=True, slots=True)
class ScoredBox:
    """A box and its kind.

    `score` is the detector's, and unused in gold. `ignored` gold counts neither as missed nor as wrongly found.
    """

    kind: str
    box: BOX
    score: float = 1.0
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class BoxCounts:
    """The numbers of blocks, regions and matches on one page."""

    blocks: int
    regions: int
    same: int

    @property
    def precision(self) -> float:
        return self.same / self.regions if self.regions else float(not self.blocks)

    @property
    def recall(self) -> float:
        return self.same / self.blocks if self.blocks else float(not self.regions)

    @property
    def f1(self) -> float:
        counted = self.blocks + self.regions
        return 2 * self.same / counted if counted else 1.0


def find(gold: Sequence[ScoredBox], regions: Sequence[ScoredBox]) -> BoxCounts:
    """Count the pairs of a block and a region of one kind with enough IoU.

    A region on an ignored block, whatever its kind, is left out.
    """
    blocks: list[ScoredBox] = []
    ignored: list[ScoredBox] = []
    for block in gold:
        (ignored if block.ignored else blocks).append(block)
    boxes = [region.box for region in regions]
    pairs = iou([block.box for block in blocks], boxes)
    kinds = np.array([[b.kind == r.kind for r in regions] for b in blocks], bool).reshape(pairs.shape)
    fits = kinds & (pairs >= IOU)
    # The number of pairs comes first, then their overlap.
    assigned = assign(np.where(fits, 1 + pairs / (1 + len(blocks)), 0.0))
    same = {column for row, column in assigned.items() if fits[row, column]}
    covering = (iou([block.box for block in ignored], boxes) >= IOU).any(axis=0)
    on_ignored = {*np.flatnonzero(covering).tolist()} - same
    return BoxCounts(len(blocks), len(regions) - len(on_ignored), len(same))


def coco_map(gold: Sequence[Sequence[ScoredBox]], regions: Sequence[Sequence[ScoredBox]]) -> float | None:
    """Return COCO's mean average precision (IoU 0.5 to 0.95) over pages; None without any gold.

    `gold` and `regions` have one item per page. As in COCO, regions of kinds that the gold does not have are left out.
    Raises `ConfigError` if pycocotools is not installed.
    """
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError:
        raise ConfigError("it needs pycocotools: `pip install 'kopub[eval]'`") from None
    kinds_of_gold: set[str] = set()
    for page in gold:
        kinds_of_gold.update(block.kind for block in page if not block.ignored)
    kinds = sorted(kinds_of_gold)
    if not kinds:
        return None
    number = {kind: at for at, kind in enumerate(kinds)}
    truth = _annotations(gold, number)
    detections = _annotations(regions, number)
    # pycocotools prints its progress on standard output.
    with contextlib.redirect_stdout(io.StringIO()):
        coco: Any = COCO()
        coco.dataset = {
            "info": {},
            "images": [{"id": page} for page in range(len(gold))],
            "annotations": truth,
            "categories": [{"id": at, "name": kind} for kind, at in number.items()],
        }
        coco.createIndex()
        if not detections:
            return 0.0
        evaluation = COCOeval(coco, coco.loadRes(detections), "bbox")
        evaluation.params.maxDets = [1, 10, 100]
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0])


def _annotations(pages: Sequence[Sequence[ScoredBox]], number: dict[str, int]) -> Any:
    annotations: list[dict[str, object]] = []
    for page, blocks in enumerate(pages):
        for block in blocks:
            if block.kind not in number:
                continue
            x1, y1, x2, y2 = block.box
            width, height = x2 - x1, y2 - y1
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": page,
                    "category_id": number[block.kind],
                    "bbox": [x1, y1, width, height],
                    "area": width * height,
                    "iscrowd": int(block.ignored),
                    "score": block.score,
                }
            )
    return annotations
