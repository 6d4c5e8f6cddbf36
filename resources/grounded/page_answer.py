"""What an answer says of a page, or of a part of it: regions in pixels with their texts, and what is wrong with them.

Pure. The text of a region in doubt is kept apart from sound ones: whoever reads the region decides.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from resources.grounded.blocks import Block, ShareBox, parse
from resources.grounded.labels import OURS, TITLES, UNKNOWN, ours
from resources.grounded.page_ink import PixelBox
from resources.layout.regions import Task
from resources.recognition.vlm.answers import Defect, Problem, find_defect, tidy
from resources.recognition.vlm.chat_requests import Answer
from resources.recognition.vlm.deepseek.deepseek_answers import clean
from resources.recognition.vlm.placeholder_cells import count_placeholders

_KINDS = {"table": Task.TABLE, "display_formula": Task.FORMULA}
_PICTURES = frozenset({"image", "chart"})
_HEADING = re.compile(r"^#{1,6}[ \t]+", re.MULTILINE)
_EQUAL_BLOCKS = {True: 8, False: 30}
"""Equal blocks at the end of an answer from which they are a loop, by whether it used up its room."""
_WORST_FIRST = tuple(Problem)
_LEAST_HEIGHT = 0.01
"""Share of a page's height that text before the first tag has at least."""


class Place(StrEnum):
    """Where the box of a region is from."""

    NAMED = "named"
    """The answer has it."""
    BETWEEN = "between"
    """The answer has none that can be used: the strip that its neighbours leave."""
    NOWHERE = "nowhere"
    """Nobody knows: all that the answer is about."""


@dataclass(frozen=True, slots=True)
class Found:
    """A region that an answer names, with our label and its text; `doubt` says what is wrong with the text."""

    label: str
    bbox: PixelBox
    text: str
    doubt: Problem | None = None
    place: Place = Place.NAMED


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """The regions of an answer in reading order, its whole text, and the worst defect of it.

    `unknown` counts labels that are none of ours, `pruned` cells whose placeholder was taken out.
    """

    regions: tuple[Found, ...]
    text: str
    defect: Defect | None
    unknown: int = 0
    pruned: int = 0


def page_answer(answer: Answer, frame: PixelBox, scripts: Collection[str]) -> PageAnswer:
    """An answer about the part of a page in `frame`. `scripts` are the expected ones, named as by `script_of`."""
    blocks = parse(answer.text)
    if not blocks:
        return PageAnswer((), "", find_defect("", answer.finish_reason, Task.TEXT, scripts))
    used_up = answer.finish_reason == "length"
    contents = [_content(block) for block in blocks]
    text = "\n".join(content for _, content in contents)
    defect = _defect(blocks, contents, answer.finish_reason, scripts)
    sound = len(text) if defect is None or defect.problem is not Problem.LOOP else defect.sound
    regions: list[Found] = []
    start = 0
    for at, (block, (label, content)) in enumerate(zip(blocks, contents, strict=True)):
        if start > sound:
            break  # the loop goes on here
        doubt = _doubt(content, label, scripts)
        if start + len(content) > sound:
            doubt = Problem.LOOP
        elif used_up and block.is_last:
            doubt = doubt or Problem.CUT
        start += len(content) + 1
        regions += _regions(blocks, at, label, content, doubt, frame)
    unknown = sum(bool(block.label) and block.label not in OURS for block in blocks)
    pruned = sum(count_placeholders(block.text) for block in blocks) - count_placeholders(text)
    return PageAnswer(tuple(regions), text, defect, unknown, max(0, pruned))


def joined(parts: Sequence[PageAnswer]) -> PageAnswer:
    """The answers about the parts of a page as one, with the worst defect."""
    defects = [part.defect for part in parts if part.defect is not None]
    return PageAnswer(
        tuple(region for part in parts for region in part.regions),
        "\n".join(part.text for part in parts),
        min(defects, key=lambda defect: _WORST_FIRST.index(defect.problem), default=None),
        sum(part.unknown for part in parts),
        sum(part.pruned for part in parts),
    )


def _content(block: Block) -> tuple[str, str]:
    """Our label and the content of a block, in the form of `RegionText.content`."""
    label = ours(block.label) if block.label else UNKNOWN
    if label not in _KINDS and "<table" in block.text.lower():
        label = "table"
    kind = _KINDS.get(label, Task.TEXT)
    content = tidy(clean(block.text, kind), kind)
    return label, _HEADING.sub("", content) if label in TITLES else content


def _defect(
    blocks: Sequence[Block], contents: Sequence[tuple[str, str]], finish_reason: str, scripts: Collection[str]
) -> Defect | None:
    used_up = finish_reason == "length"
    same = 1
    while same < len(blocks) and _is_like(blocks[-1 - same], blocks[-1]):
        same += 1
    if same >= _EQUAL_BLOCKS[used_up]:
        ended = "\n".join(content for _, content in contents[: len(blocks) - same + 1])
        return Defect(Problem.LOOP, f"{same} equal blocks ({blocks[-1].label or UNKNOWN:.40}) end it", len(ended))
    text = "\n".join(content for _, content in contents)
    if not text.strip():
        # A page of pictures alone has no text.
        return Defect(Problem.CUT, "the answer was cut off", 0) if used_up else None
    return find_defect(text, finish_reason, Task.TABLE if "<table" in text else Task.TEXT, scripts)


def _is_like(block: Block, other: Block) -> bool:
    return block.label == other.label and block.text == other.text


def _doubt(content: str, label: str, scripts: Collection[str]) -> Problem | None:
    """What is wrong with the text of one region by itself."""
    if not content.strip():
        return None
    defect = find_defect(content, "stop", _KINDS.get(label, Task.TEXT), scripts)
    return None if defect is None else defect.problem


def _regions(
    blocks: Sequence[Block], at: int, label: str, content: str, doubt: Problem | None, frame: PixelBox
) -> list[Found]:
    """The regions of a block: one for its text, and one for each picture."""
    block = blocks[at]
    boxes = [_in_frame(box, frame) for box in block.boxes]
    if label in _PICTURES:
        pictures = [Found(label, box, "") for box in boxes]
        # A picture is cut out; what the model read in it is a text of its own.
        texts = [Found(UNKNOWN, _around(boxes), content, doubt)] if content and boxes else []
        if pictures or not content:
            return [*pictures, *texts]
        label = UNKNOWN
    if boxes and content:
        return [Found(label, _around(boxes), content, doubt)]
    if boxes:
        return [Found(label, box, "", doubt) for box in boxes]
    if not content:
        return []
    box = _between(blocks, at)
    if box is None:
        return [Found(label, frame, content, doubt, Place.NOWHERE)]
    return [Found(label, _in_frame(box, frame), content, doubt, Place.BETWEEN)]


def _between(blocks: Sequence[Block], at: int) -> ShareBox | None:
    """The strip between the neighbours of a block without a box; None where they leave none."""
    after = next((block.boxes[0] for block in blocks[at + 1 :] if block.boxes), None)
    before = next((block.boxes[-1] for block in reversed(blocks[:at]) if block.boxes), None)
    if after is None and before is None:
        return None
    top = before[3] if before is not None else 0.0
    bottom = after[1] if after is not None else 1.0
    return (0.0, top, 1.0, bottom) if bottom - top >= _LEAST_HEIGHT else None


def _in_frame(box: ShareBox, frame: PixelBox) -> PixelBox:
    (x1, y1, x2, y2), (left, top, right, bottom) = box, frame
    width, height = right - left, bottom - top
    return left + x1 * width, top + y1 * height, left + x2 * width, top + y2 * height


def _around(boxes: Sequence[PixelBox]) -> PixelBox:
    x1, y1, x2, y2 = zip(*boxes, strict=True)
    return min(x1), min(y1), max(x2), max(y2)
