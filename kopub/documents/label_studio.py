"""Corrections in Label Studio: pages as its tasks, and its annotations as corrections."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kopub.corrections.log import Action, Correction, CorrectionHistory, CorrectionLog
from kopub.documents.document import Document
from kopub.errors import KopubError
from kopub.fingerprints import fingerprint
from kopub.layout.regions import DEFAULT_TASKS, Task
from kopub.recognition.regions import KINDS
from kopub.texts.markup import printable

_LABEL, _TEXT, _IMAGE = "label", "text", "image"
"""The names of the tags in the labelling configuration of docs/corrections.md."""
_LOCAL_FILES = "/data/local-files/?d="
_NEAR = 1.0
"""Pixels within which the edges of two boxes are the same: percentages are not exact."""


def label_tasks(document: Document, folder: str) -> str:
    """Return a document's pages as tasks, with their regions as predictions.

    Label Studio serves the pictures from `folder`, which lies in the one that it is started with. A task also holds
    its regions as they were, so that its annotation tells what a person changed.
    """
    tasks: list[dict[str, Any]] = []
    for page in document.pages:
        if page.image is None:
            continue
        size = {"original_width": page.width, "original_height": page.height}
        regions: list[dict[str, Any]] = []
        results: list[dict[str, Any]] = []
        for region in page.regions:
            name, kind, text = f"r{region.index}", KINDS[region.task], printable(region.content or "")
            regions.append(
                {
                    "id": name,
                    "label": region.label,
                    "kind": kind,
                    "bbox": list(region.box),
                    "bbox_2d": list(region.box_2d),
                    "text": text,
                    "score": region.score,
                }
            )
            # A region is a labelled rectangle, and one with text a text of the same id.
            x1, y1, x2, y2 = region.box
            wide, high = 100 / page.width, 100 / page.height
            sides = {"width": (x2 - x1) * wide, "height": (y2 - y1) * high}
            place = {"x": x1 * wide, "y": y1 * high, **sides, "rotation": 0}
            drawn = {"id": name, "to_name": _IMAGE, **size}
            rectangle = {"type": "rectanglelabels", "value": {**place, "rectanglelabels": [region.label]}}
            results.append({**drawn, "from_name": _LABEL, **rectangle, "score": region.score})
            if region.task is not Task.SKIP:
                textarea = {"type": "textarea", "value": {**place, "text": [text]}}
                results.append({**drawn, "from_name": _TEXT, **textarea})
        data = {
            _IMAGE: _LOCAL_FILES + quote(f"{folder}/{page.image.path}"),
            "doc_id": document.doc_id,
            "page_id": page.page_id,
            "page": page.number,
            "width": page.width,
            "height": page.height,
            "corrected": page.review.corrections,
            "regions": regions,
        }
        tasks.append({"data": data, "predictions": [{"model_version": "; ".join(page.made_by), "result": results}]})
    return json.dumps(tasks, ensure_ascii=False, indent=1) + "\n"


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A rectangle that a person left or drew: its label, text and box in pixels."""

    label: str
    text: str
    bbox: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """The changes of a person to a page since its task was exported.

    `seen` marks the corrections that the task knew; the ids of `changes` follow from it, so that no correction is
    added twice.
    """

    page_id: str
    seen: str
    changes: tuple[Correction, ...]


def annotated_pages(path: Path, shards: Mapping[str, str], author: str) -> list[Annotation]:
    """Return the annotated pages of Label Studio's JSON export, with valid corrections.

    `shards` has the shard of each page; `author` is the name of annotators whose mail address the export lacks.
    Raises `KopubError`.
    """
    try:
        tasks = json.loads(path.read_bytes())
        if not isinstance(tasks, list):
            raise ValueError("no list of tasks")
    except OSError as error:
        raise KopubError("{path} cannot be read: {error}", path, error.strerror) from None
    except (ValueError, RecursionError):
        form = "{path} is no JSON export of Label Studio: choose `JSON` there, not `JSON-MIN`"
        raise KopubError(form, path) from None
    pages = []
    for number, task in enumerate(tasks, 1):
        try:
            page = _annotated_page(task, shards, author)
            for change in page.changes if page else ():
                change.check()
        except KopubError as error:
            raise KopubError("{path}, task {number}: {reason}", path, number, error) from None
        except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError):
            message = "is not one of `kopub export --label-studio`, or lacks its label or box"
            raise KopubError("{path}: task {number} {reason}", path, number, message) from None
        if page is not None:
            pages.append(page)
    return pages


def _annotated_page(task: Mapping[str, Any], shards: Mapping[str, str], author: str) -> Annotation | None:
    """Return the page of a task, None if nobody has annotated it."""
    data = task["data"]
    page_id, width, height, seen = data["page_id"], data["width"], data["height"], data["corrected"]
    annotations = [annotation for annotation in task["annotations"] if not annotation.get("was_cancelled")]
    if not annotations:
        return None
    if len(annotations) > 1:
        raise KopubError("{page} has {count} annotations: delete all but one", page_id, len(annotations))
    if page_id not in shards:
        raise KopubError("there is no page {page!r} here", page_id)
    by = annotations[0].get("completed_by")
    of_page = Correction(
        page_id, shards[page_id], Action.TEXT, by["email"] if isinstance(by, dict) else author, reason="Label Studio"
    )
    drawn = _drawn(annotations[0]["result"], width, height)
    changes: list[Correction] = []
    for region in data["regions"]:
        # A person may have drawn a rectangle anew where one was; its id is then another.
        name = region["id"]
        if name not in drawn:
            name = next((other for other in drawn if _is_same(drawn[other].bbox, region["bbox"])), None)
        change = replace(
            of_page,
            bbox=tuple(region["bbox"]),
            bbox_2d=tuple(region["bbox_2d"]),
            label=region["label"],
            kind=region["kind"],
            before=region["text"],
        )
        changes += _changes(change, None if name is None else drawn.pop(name), width, height)
    changes += [_addition(of_page, rectangle, width, height) for rectangle in drawn.values()]
    with_ids: list[Correction] = []
    for change in changes:
        # The id follows from the change, so that an annotation that is imported twice adds nothing.
        identity = [seen, page_id, change.action, change.bbox_2d, change.label, change.after]
        with_ids.append(replace(change, id=fingerprint(identity)))
    return Annotation(page_id, seen, tuple(with_ids))


def _drawn(results: Sequence[Mapping[str, Any]], width: int, height: int) -> dict[str, _Drawn]:
    """Return the rectangles of an annotation by id."""
    texts = {result["id"]: "\n".join(result["value"]["text"]) for result in results if result.get("type") == "textarea"}
    drawn = {}
    for result in results:
        if result.get("type") != "rectanglelabels":
            continue
        place = result["value"]
        if place.get("rotation"):
            raise KopubError("a rectangle is rotated: draw it upright")
        across, down = (place["x"], place["x"] + place["width"]), (place["y"], place["y"] + place["height"])
        x1, x2 = (min(max(edge * width / 100, 0.0), width) for edge in across)
        y1, y2 = (min(max(edge * height / 100, 0.0), height) for edge in down)
        text = texts.get(result["id"], "").replace("\r\n", "\n")
        drawn[result["id"]] = _Drawn(place["rectanglelabels"][0], text, (x1, y1, x2, y2))
    return drawn


def _is_same(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(abs(a - b) <= _NEAR for a, b in zip(one, other, strict=True))


def _changes(region: Correction, drawn: _Drawn | None, width: int, height: int) -> list[Correction]:
    """Return what a person changed in a region."""
    assert region.bbox is not None
    struck = replace(region, action=Action.STRIKE)
    if drawn is None:
        return [struck]
    if not _is_same(drawn.bbox, region.bbox):
        return [struck, _addition(region, drawn, width, height)]
    changes, kind = [], region.kind
    if drawn.label != region.label:
        changes.append(replace(region, action=Action.LABEL, before=region.label or "", after=drawn.label))
        # The text is then found by the kind that the label gives its region.
        kind = KINDS[DEFAULT_TASKS.get(drawn.label, Task.TEXT)]
    if drawn.text.strip() != region.before.strip():
        changes.append(replace(region, kind=kind, after=drawn.text))
    return changes


def _addition(of_page: Correction, drawn: _Drawn, width: int, height: int) -> Correction:
    on_grid = tuple(round(edge * 1000 / size) for edge, size in zip(drawn.bbox, (width, height) * 2, strict=True))
    kind = KINDS[DEFAULT_TASKS.get(drawn.label, Task.TEXT)]
    placed = {"bbox": drawn.bbox, "bbox_2d": on_grid, "label": drawn.label, "kind": kind}
    return replace(of_page, action=Action.ADD, before="", after=drawn.text, **placed)


def add_annotations(log: CorrectionLog, page: Annotation) -> int:
    """Add the corrections of a page that the log lacks, and return their number.

    Raises `KopubError`, and adds nothing more, if others have corrected the page since its task was exported.
    """
    own, added = {change.id for change in page.changes}, 0
    for change in page.changes:
        history = log.page(page.page_id)
        others = CorrectionHistory(tuple(correction for correction in history.every if correction.id not in own))
        # A page without corrections has no mark.
        if (others.seen if others.every else "") != page.seen:
            raise KopubError("{page} was corrected since its task was exported: export it again", page.page_id)
        if change.id not in {correction.id for correction in history.every}:
            log.add(change, history.seen)
            added += 1
    return added
