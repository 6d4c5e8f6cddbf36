"""The regions of a batch's pages, from the model's outputs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from resources.layout.ink import has_writing, ink_share
from resources.layout.pp_doclayout.health import NO_REGION
from resources.layout.pp_doclayout.postprocess import Detections, Rules, holding, postprocess
from resources.layout.pp_doclayout.preprocess import Prepared
from resources.layout.regions import LABELS, PageLayout, Region, Task
from resources.states import State

if TYPE_CHECKING:
    from resources.layout.pp_doclayout.model import Outputs

_REFERENCES = "reference"


@dataclass(frozen=True, slots=True)
class PageRules:
    """What becomes of the model's boxes: the rules for them, and the task of each label.

    `named` are the labels whose task the settings say, `dtype` is the precision of the model, `outline` the probability
    from which a pixel belongs to a region with a mask, and `speck` the share of the page that is no writing yet.
    """

    boxes: Rules
    tasks: Mapping[str, Task]
    named: frozenset[str]
    outline: float
    dtype: str
    speck: float


class Found(NamedTuple):
    """A page's layout, with how many boxes each rule dropped and how many regions have each label."""

    layout: PageLayout
    counts: Counter[str]


def find_regions(pages: Sequence[Prepared], outputs: "Outputs", rules: PageRules) -> list[Found]:
    """What is found on each of some decoded pages, whose outputs are in the same order."""
    found = []
    for i, page in enumerate(pages):
        counts: Counter[str] = Counter()
        try:
            layout = _layout(page, i, outputs, rules, counts)
        except Exception as error:
            # One page must not fail the shard; its row has the reason.
            layout = PageLayout(page.page_id, State.FAILED, f"post-processing: {type(error).__name__}: {error}")
        found.append(Found(layout, counts))
    return found


def _layout(page: Prepared, i: int, outputs: "Outputs", rules: PageRules, counts: Counter[str]) -> PageLayout:
    import numpy as np

    scores, boxes, votes = outputs.scores[i], outputs.boxes[i], outputs.votes[i]
    if not (np.isfinite(scores).all() and np.isfinite(boxes).all() and np.isfinite(votes).all()):
        reason = f"the model's output is not finite in {rules.dtype}; use bfloat16 or float32"
        return PageLayout(page.page_id, State.FAILED, reason)
    detections = postprocess(scores, boxes, votes, page.width, page.height, rules.boxes)
    counts.update({f"dropped_{rule}": count for rule, count in detections.dropped.items()})
    if len(detections) == 0:
        return _empty(page, rules.speck)
    regions = _regions(detections, page, outputs, i, rules)
    counts.update(f"label_{region.label}" for region in regions)
    return PageLayout(page.page_id, State.OK, regions=regions)


def _regions(found: Detections, page: Prepared, outputs: "Outputs", i: int, rules: PageRules) -> tuple[Region, ...]:
    from resources.layout.pp_doclayout.polygons import outline

    masks = outputs.masks(i, found.queries) if outputs.mask_queries is not None else None
    alone = ~holding(found.boxes)
    regions = []
    for index, (label_id, score, box) in enumerate(
        zip(found.labels.tolist(), found.scores.tolist(), found.boxes.tolist(), strict=True)
    ):
        label, bbox = LABELS[label_id], (box[0], box[1], box[2], box[3])
        polygon = None
        if masks is not None:
            polygon = outline(masks[index], bbox, page.width, page.height, rules.outline)
        task = rules.tasks[label]
        if label == _REFERENCES and task is Task.ABANDON and label not in rules.named and alone[index]:
            # Its entries are not regions of their own, so nothing else has their text.
            task = Task.TEXT
        regions.append(Region(index, label, task, score, bbox, polygon))
    return tuple(regions)


def _empty(page: Prepared, speck: float) -> PageLayout:
    """Return a page without regions: blank where nothing is written on it, else failed."""
    import cv2
    import numpy as np

    assert page.pixels is not None
    gray = np.asarray(cv2.cvtColor(page.pixels, cv2.COLOR_RGB2GRAY), np.uint8)
    if has_writing(gray, speck):
        return PageLayout(page.page_id, State.FAILED, f"{NO_REGION} ({ink_share(gray):.2%})")
    return PageLayout(page.page_id, State.BLANK)
