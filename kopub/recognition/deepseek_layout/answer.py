"""A grounded answer of DeepSeek-OCR: its blocks, and the regions made from them."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from kopub.layout.regions import Task
from kopub.recognition.tables import count_placeholders
from kopub.recognition.vlm.client.answers import Defect, Problem, find_defect, tidy
from kopub.recognition.vlm.client.chat_requests import ChatAnswer
from kopub.recognition.vlm.client.deepseek import clean
from kopub.states import Reason

OURS: Mapping[str, str] = MappingProxyType(
    {
        "title": "doc_title",
        "sub_title": "paragraph_title",
        "text": "text",
        "paragraph": "text",
        "list": "text",
        "table": "table",
        "table_caption": "figure_title",
        "table_footnote": "vision_footnote",
        "image": "image",
        "figure": "image",
        "image_caption": "figure_title",
        "figure_caption": "figure_title",
        "figure_title": "figure_title",
        "image_footnote": "vision_footnote",
        "figure_footnote": "vision_footnote",
        "chart": "chart",
        "chart_caption": "figure_title",
        "equation": "display_formula",
        "formula": "display_formula",
        "equation_caption": "formula_number",
        "header": "header",
        "footer": "footer",
        "page_number": "number",
        "footnote": "footnote",
    }
)
"""Our labels by the model's own. The first nine and the captions were seen in real answers, the others in parsers
written by others."""
UNKNOWN = "text"
"""Our label for blocks that the model labels in any other way: their text is read."""
TITLES = frozenset({"doc_title", "paragraph_title"})
CAPTIONS = frozenset(label for label in OURS if label.endswith(("_caption", "_footnote")) or label == "figure_title")
"""The model's own labels for captions and notes of a table or a picture."""
CAPTIONED = frozenset({"table", "image", "figure", "chart"})


GRID = 999
"""The largest coordinate in both directions, whatever the shape of the page; the smallest is 0."""

PixelBox = tuple[float, float, float, float]
"""(x1, y1, x2, y2) in pixels of the upright page."""
ShareBox = tuple[float, float, float, float]
"""(x1, y1, x2, y2) as shares of width and height, each 0 to 1, with a positive area."""


@dataclass(frozen=True, slots=True)
class LabelledText:
    """A block of a page: the model's label, its boxes, its text.

    Text before the first tag has no label and no box; a block whose boxes cannot be used has none either. `is_last`
    marks the block in which the answer ends.
    """

    label: str
    boxes: tuple[ShareBox, ...]
    text: str
    is_last: bool = False


def _mark(name: str) -> str:
    return rf"[<＜][|｜]{name}[|｜][>＞]"


_NUMBERS = r"\[[\[\]\d\s,.\-]*"
_TAG = re.compile(
    # A closed label, or one in which the answer ends, then its box, whole or cut off.
    rf"{_mark('ref')}(?P<label>[^<＜\n]{{0,200}}?)(?:{_mark('/ref')}|(?=[<＜][|｜])|\Z)"
    rf"(?:\s*{_mark('det')}\s*(?P<boxes>{_NUMBERS})?(?:{_mark('/det')})?)?"
    rf"|{_mark('det')}\s*(?P<named>[A-Za-z_]{{2,40}}(?=\s*\[))?\s*(?P<named_boxes>{_NUMBERS})?(?:{_mark('/det')})?"
    rf"|^[ \t]*(?P<bare>{'|'.join(sorted(OURS, key=len, reverse=True))})[ \t]?"
    r"(?P<bare_boxes>\[\[[\d\s,.\-]*(?:\][\s,]*\[[\d\s,.\-]*)*(?:\]\]|\Z))",
    re.MULTILINE | re.IGNORECASE,
)
_STRAY = re.compile(rf"{_mark('/?(?:ref|det|grounding)')}|[<＜][|｜]/?(?:ref?|r|det?|d|grounding)?[|｜]?\Z")
"""A mark without its partner, or a mark that is cut off at the end of the answer."""
_ONE_BOX = re.compile(r"\[([^\[\]]*)\]?")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAME = re.compile(r"[A-Za-z0-9_ \-]*")
_TABLE = re.compile(r"<table", re.IGNORECASE)


def parse(answer: str) -> tuple[LabelledText, ...]:
    """Parse an answer into its blocks, in reading order.

    An answer without text and tags has none. A table's HTML goes to the table even if the tag of its caption comes in
    between, and a caption printed above its table or picture comes before it.
    """
    blocks = list(_blocks(answer))
    if blocks:
        blocks[-1] = replace(blocks[-1], is_last=True)
    for at, block in enumerate(blocks):
        if block.label != "table" or block.text:
            continue
        for later in range(at + 1, len(blocks)):
            other = blocks[later]
            if other.label not in CAPTIONS:
                break
            if html := _TABLE.search(other.text):
                blocks[at] = replace(block, text=other.text[html.start() :], is_last=other.is_last)
                blocks[later] = replace(other, text=other.text[: html.start()].strip(), is_last=False)
                break
    for at in range(len(blocks) - 1):
        block, caption = blocks[at], blocks[at + 1]
        if block.label in CAPTIONED and caption.label in CAPTIONS and block.boxes and caption.boxes:
            (_, top, _, bottom), (_, above, _, below) = block.boxes[0], caption.boxes[0]
            if above + below < top + bottom and below <= (top + bottom) / 2:
                blocks[at], blocks[at + 1] = caption, block
    return tuple(blocks)


def _blocks(answer: str) -> Iterator[LabelledText]:
    label, start, tagged = "", 0, False
    boxes: list[ShareBox] = []
    for tag in [*_TAG.finditer(answer), None]:
        text = _STRAY.sub("", answer[start : tag.start() if tag else None]).strip()
        if not text and not _NAME.fullmatch(label):
            # If the prompt asks for words instead of blocks, the model writes the printed words in place of the label.
            label, text = "", label
        if text or (tagged if tag else boxes):
            yield LabelledText(label.lower(), tuple(boxes), text)
        if tag is None:
            return
        label = (tag["label"] or tag["named"] or tag["bare"] or "").strip()
        boxes = []
        for box in _ONE_BOX.findall(tag["boxes"] or tag["named_boxes"] or tag["bare_boxes"] or ""):
            numbers = [min(max(float(number), 0.0), GRID) / GRID for number in _NUMBER.findall(box)]
            if len(numbers) == 4:
                # Corners may come in any order, and a box may have no area.
                (x1, x2), (y1, y2) = sorted(numbers[::2]), sorted(numbers[1::2])
                boxes += [(x1, y1, x2, y2)] if x1 < x2 and y1 < y2 else []
        start, tagged = tag.end(), True


_KINDS = {"table": Task.TABLE, "display_formula": Task.FORMULA}
_PICTURES = frozenset({"image", "chart"})
_HEADING = re.compile(r"^#{1,6}[ \t]+", re.MULTILINE)
_EQUAL_BLOCKS = {True: 8, False: 30}
"""Fewest equal blocks at the end of an answer that are a loop, by whether it used up its room."""
_WORST_FIRST = tuple(Problem)
_LEAST_HEIGHT = 0.01
"""Least height, as a share of the page's, of the strip between two neighbours."""


class BoxSource(StrEnum):
    """The origin of the box of a region."""

    NAMED = "named"
    """The answer gives it."""
    BETWEEN = "between"
    """The answer gives no usable box: it is the strip between the neighbours."""
    NOWHERE = "nowhere"
    """It is unknown: the box is the whole part of the page that the answer is about."""


@dataclass(frozen=True, slots=True)
class NamedRegion:
    """A region of an answer; `doubt` says what is wrong with its text."""

    label: str
    bbox: PixelBox
    text: str
    doubt: Problem | None = None
    place: BoxSource = BoxSource.NAMED


@dataclass(frozen=True, slots=True)
class LayoutAnswer:
    """The regions of an answer in reading order, its text, and its worst defect.

    `unknown` counts labels missing from `OURS`, `pruned` cells whose placeholder was removed.
    """

    regions: tuple[NamedRegion, ...]
    text: str
    defect: Defect | None
    unknown: int = 0
    pruned: int = 0


def page_answer(answer: ChatAnswer, frame: PixelBox, scripts: Collection[str]) -> LayoutAnswer:
    """Judge an answer about the part of a page in `frame`.

    `scripts` are the expected scripts, named as in `script_of`.
    """
    blocks = parse(answer.text)
    if not blocks:
        return LayoutAnswer((), "", find_defect("", answer.finish_reason, Task.TEXT, scripts))
    labels: list[str] = []
    contents: list[str] = []
    unknown = placeholders = 0
    for block in blocks:
        label = OURS.get(block.label, UNKNOWN)
        if label not in _KINDS and "<table" in block.text.lower():
            label = "table"
        kind = _KINDS.get(label, Task.TEXT)
        content = tidy(clean(block.text, kind), kind)
        labels.append(label)
        contents.append(_HEADING.sub("", content) if label in TITLES else content)
        unknown += bool(block.label) and block.label not in OURS
        placeholders += count_placeholders(block.text)
    text = "\n".join(contents)
    defect = _defect(blocks, contents, answer.finish_reason, scripts)
    sound = len(text) if defect is None or defect.problem is not Problem.LOOP else defect.sound
    regions: list[NamedRegion] = []
    start = 0
    for at, (label, content) in enumerate(zip(labels, contents, strict=True)):
        if start > sound:
            break  # the rest is the loop
        alone = find_defect(content, "stop", _KINDS.get(label, Task.TEXT), scripts) if content.strip() else None
        doubt = None if alone is None else alone.problem
        if start + len(content) > sound:
            doubt = Problem.LOOP
        elif answer.finish_reason == "length" and blocks[at].is_last:
            doubt = doubt or Problem.CUT
        start += len(content) + 1
        regions += _regions(blocks, at, label, content, doubt, frame)
    pruned = max(0, placeholders - count_placeholders(text))
    return LayoutAnswer(tuple(regions), text, defect, unknown, pruned)


def join_answers(parts: Sequence[LayoutAnswer]) -> LayoutAnswer:
    """Join the answers about the parts of a page, with the worst defect."""
    regions: list[NamedRegion] = []
    defects: list[Defect] = []
    unknown = pruned = 0
    for part in parts:
        regions += part.regions
        unknown += part.unknown
        pruned += part.pruned
        if part.defect is not None:
            defects.append(part.defect)
    text = "\n".join(part.text for part in parts)
    worst = min(defects, key=lambda defect: _WORST_FIRST.index(defect.problem), default=None)
    return LayoutAnswer(tuple(regions), text, worst, unknown, pruned)


def _defect(
    blocks: Sequence[LabelledText], contents: Sequence[str], finish_reason: str, scripts: Collection[str]
) -> Defect | None:
    used_up = finish_reason == "length"
    last, same = blocks[-1], 1
    while same < len(blocks) and (blocks[-1 - same].label, blocks[-1 - same].text) == (last.label, last.text):
        same += 1
    if same >= _EQUAL_BLOCKS[used_up]:
        ended = "\n".join(contents[: len(blocks) - same + 1])
        reason = Reason("{count} equal blocks ({label:.40}) end it", count=same, label=last.label or UNKNOWN)
        return Defect(Problem.LOOP, reason, len(ended))
    text = "\n".join(contents)
    if not text.strip():
        # A page with nothing but pictures has no text.
        return Defect(Problem.CUT, "the answer was cut off", 0) if used_up else None
    return find_defect(text, finish_reason, Task.TABLE if "<table" in text else Task.TEXT, scripts)


def _regions(
    blocks: Sequence[LabelledText], at: int, label: str, content: str, doubt: Problem | None, frame: PixelBox
) -> list[NamedRegion]:
    """Return the regions of a block: one for its text, one for each picture."""
    boxes = [_in_frame(box, frame) for box in blocks[at].boxes]
    regions: list[NamedRegion] = []
    if label in _PICTURES:
        regions += [NamedRegion(label, box, "") for box in boxes]
        # A picture is cut out, and the text that the model read in it becomes a region of its own.
        label = UNKNOWN
    elif not content:
        regions += [NamedRegion(label, box, "", doubt) for box in boxes]
    if not content:
        return regions
    if boxes:
        x1, y1, x2, y2 = zip(*boxes, strict=True)
        around = min(x1), min(y1), max(x2), max(y2)
        return [*regions, NamedRegion(label, around, content, doubt)]
    # Without a box, the text is in the strip between its neighbours, if these have any.
    above, below, has_neighbour = 0.0, 1.0, False
    for other in blocks[:at]:
        if other.boxes:
            above, has_neighbour = other.boxes[-1][3], True
    for other in reversed(blocks[at + 1 :]):
        if other.boxes:
            below, has_neighbour = other.boxes[0][1], True
    if has_neighbour and below - above >= _LEAST_HEIGHT:
        strip = _in_frame((0.0, above, 1.0, below), frame)
        return [NamedRegion(label, strip, content, doubt, BoxSource.BETWEEN)]
    return [NamedRegion(label, frame, content, doubt, BoxSource.NOWHERE)]


def _in_frame(box: ShareBox, frame: PixelBox) -> PixelBox:
    (x1, y1, x2, y2), (left, top, right, bottom) = box, frame
    width, height = right - left, bottom - top
    return left + x1 * width, top + y1 * height, left + x2 * width, top + y2 * height
