"""A page before the model, decoded and shrunk, and its regions after the model."""

import io
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import cv2
import numpy as np
from PIL import Image

from kopub.errors import UndecodableImage
from kopub.layout.ink import blank_reason, has_writing, ink_share
from kopub.layout.pp_doclayout.postprocess import BoxRules, boxes_with_inner, postprocess, trace_outline
from kopub.layout.regions import LABELS, Layout, Region, Task
from kopub.pages.page import Page, Picture, decode
from kopub.states import Reason, State

if TYPE_CHECKING:
    import torch

    from kopub.layout.pp_doclayout.model import Outputs

SIDE = 800
"""Side of the model's square input in pixels; the aspect ratio is not kept."""
_JPEG_START = b"\xff\xd8\xff"
_EXIF_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True)
class ModelInput:
    """A page as input for the model.

    `pixels` is RGB uint8 (SIDE, SIDE, 3), or None if `state` says that preparing it failed.
    """

    page_id: str
    width: int
    height: int
    pixels: np.ndarray | None
    seconds: float
    state: State = State.OK
    reason: str | None = None


def prepare(page: Page, gpu_jpeg: bool) -> ModelInput:
    """Decode and shrink one page; a fault becomes its state, never an exception."""
    started = time.perf_counter()
    try:
        is_plain = False
        if gpu_jpeg and bytes(page.data[:3]) == _JPEG_START:
            # nvJPEG neither turns a page nor knows other colours.
            with Image.open(io.BytesIO(page.data), formats=("JPEG",)) as image:
                is_plain = image.mode in {"RGB", "L"} and image.getexif().get(_EXIF_ORIENTATION, 1) == 1
        if is_plain:
            pixels, width, height = _decode_and_shrink_on_gpu(page.data)
        else:
            pixels, width, height = _decode_and_shrink(page.packed or page.data)
    except UndecodableImage as error:
        return ModelInput(page.page_id, 0, 0, None, time.perf_counter() - started, error.state, str(error))
    except Exception as error:
        reason = Reason("preparing the page failed: {error}", error=f"{type(error).__name__}: {error}")
        return ModelInput(page.page_id, 0, 0, None, time.perf_counter() - started, State.FAILED, reason)
    return ModelInput(page.page_id, width, height, pixels, time.perf_counter() - started)


def _decode_and_shrink(data: Picture) -> tuple[np.ndarray, int, int]:
    image = decode(data)
    height, width = image.shape[:2]
    return cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC), width, height


def _decode_and_shrink_on_gpu(data: bytes | memoryview) -> tuple[np.ndarray, int, int]:
    """Decode with nvJPEG and shrink.

    A file that nvJPEG refuses is decoded on the host, which also finds the reason.
    """
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg  # pyright: ignore[reportMissingImports]

    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    with torch.inference_mode(), torch.cuda.stream(_decode_stream()):
        try:
            image = decode_jpeg(encoded, mode=ImageReadMode.RGB, device="cuda")
        except RuntimeError:
            return _decode_and_shrink(data)
        height, width = image.shape[-2:]
        small = torch.nn.functional.interpolate(
            image[None].float(), size=(SIDE, SIDE), mode="bicubic", align_corners=False
        )
        pixels = small[0].round_().clamp_(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().cpu()
    return pixels.numpy(), width, height


@cache
def _decode_stream() -> "torch.cuda.Stream":
    """Return a separate CUDA stream, so that decoding does not wait for the model."""
    import torch

    return torch.cuda.Stream()


_REFERENCES = "reference"
NO_REGION = "no region was found on a page with ink ({share:.2%})"


@dataclass(frozen=True, slots=True)
class LayoutRules:
    """The rules for the model's boxes, and each label's task.

    `named` are the labels whose task the settings give, `dtype` is the precision of the model, `outline` the
    probability from which a pixel belongs to a region's mask, and `speck` the share of the page up to which a mark is
    not writing.
    """

    boxes: BoxRules
    tasks: Mapping[str, Task]
    named: frozenset[str]
    outline: float
    dtype: str
    speck: float


class Findings(NamedTuple):
    """A page's layout, with counts of dropped boxes by rule and regions by label."""

    layout: Layout
    counts: Counter[str]


def find_regions(pages: Sequence[ModelInput], outputs: "Outputs", rules: LayoutRules) -> list[Findings]:
    """Find the regions of decoded pages; `outputs` are in the same order."""
    findings = []
    for i, page in enumerate(pages):
        counts: Counter[str] = Counter()
        try:
            layout = _layout(page, i, outputs, rules, counts)
        except Exception as error:
            # One page must not fail the shard, so its row states the reason.
            reason = Reason("post-processing: {error}", error=f"{type(error).__name__}: {error}")
            layout = Layout(page.page_id, State.FAILED, reason)
        findings.append(Findings(layout, counts))
    return findings


def _layout(page: ModelInput, i: int, outputs: "Outputs", rules: LayoutRules, counts: Counter[str]) -> Layout:
    scores, boxes, votes = outputs.scores[i], outputs.boxes[i], outputs.votes[i]
    if not (np.isfinite(scores).all() and np.isfinite(boxes).all() and np.isfinite(votes).all()):
        reason = Reason("the model's output is not finite in {dtype}; use bfloat16 or float32", dtype=rules.dtype)
        return Layout(page.page_id, State.FAILED, reason)
    detections = postprocess(scores, boxes, votes, page.width, page.height, rules.boxes)
    counts.update({f"dropped_{rule}": count for rule, count in detections.dropped.items()})
    if len(detections) == 0:
        assert page.pixels is not None
        gray = np.asarray(cv2.cvtColor(page.pixels, cv2.COLOR_RGB2GRAY), np.uint8)
        if has_writing(gray, rules.speck):
            return Layout(page.page_id, State.FAILED, Reason(NO_REGION, share=ink_share(gray)))
        return Layout(page.page_id, State.BLANK, blank_reason(gray))
    masks = outputs.masks(i, detections.queries) if outputs.mask_queries is not None else None
    alone = ~boxes_with_inner(detections.boxes)
    regions = []
    for index, (label_id, score, box) in enumerate(
        zip(detections.labels.tolist(), detections.scores.tolist(), detections.boxes.tolist(), strict=True)
    ):
        label, bbox = LABELS[label_id], (box[0], box[1], box[2], box[3])
        polygon = None
        if masks is not None:
            polygon = trace_outline(masks[index], bbox, page.width, page.height, rules.outline)
        task = rules.tasks[label]
        if label == _REFERENCES and task is Task.ABANDON and label not in rules.named and alone[index]:
            # Its entries are not regions of their own, so no other region has their text.
            task = Task.TEXT
        regions.append(Region(index, label, task, score, bbox, polygon))
    counts.update(f"label_{region.label}" for region in regions)
    return Layout(page.page_id, State.OK, regions=tuple(regions))
