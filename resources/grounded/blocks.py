"""The parser of grounded answers: tags with labels and boxes, and the text after each. Pure.

An answer is a sequence of `<|ref|>LABEL<|/ref|><|det|>[[x1, y1, x2, y2]]<|/det|>`, each with the text that follows it
up to the next one. Where special tokens are skipped it is `LABEL[[x1, y1, x2, y2]]` on a line of its own, and a model
of the same family writes `<|det|>LABEL [x1, y1, x2, y2]<|/det|>`. Brackets and bars may be full-width. No letter
outside a tag is lost, whatever the answer is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from resources.grounded.labels import CAPTIONED, CAPTIONS, OURS

GRID = 999
"""Coordinates go from 0 to this in both directions, whatever the shape of the page."""

ShareBox = tuple[float, float, float, float]
"""(x1, y1, x2, y2) as shares of width and height, each 0 to 1, of a positive area."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page: the model's label, its boxes, its text.

    Text before the first tag has no label and no box; a block whose boxes cannot be used has none either. `is_last` is
    the one in which the answer ends.
    """

    label: str
    boxes: tuple[ShareBox, ...]
    text: str
    is_last: bool = False


def _mark(name: str) -> str:
    return rf"[<＜][|｜]{name}[|｜][>＞]"


_NUMBERS = r"\[[\[\]\d\s,.\-]*"
_TAG = re.compile(
    # A closed label, or one in which the answer ends; then its box, whole or cut.
    rf"{_mark('ref')}(?P<label>[^<＜\n]{{0,200}}?)(?:{_mark('/ref')}|(?=[<＜][|｜])|\Z)"
    rf"(?:\s*{_mark('det')}\s*(?P<boxes>{_NUMBERS})?(?:{_mark('/det')})?)?"
    rf"|{_mark('det')}\s*(?P<named>[A-Za-z_]{{2,40}}(?=\s*\[))?\s*(?P<named_boxes>{_NUMBERS})?(?:{_mark('/det')})?"
    rf"|^[ \t]*(?P<bare>{'|'.join(sorted(OURS, key=len, reverse=True))})[ \t]?"
    r"(?P<bare_boxes>\[\[[\d\s,.\-]*(?:\][\s,]*\[[\d\s,.\-]*)*(?:\]\]|\Z))",
    re.MULTILINE | re.IGNORECASE,
)
_STRAY = re.compile(rf"{_mark('/?(?:ref|det|grounding)')}|[<＜][|｜]/?(?:ref?|r|det?|d|grounding)?[|｜]?\Z")
"""A mark without its partner, or one in which the answer was cut off."""
_ONE_BOX = re.compile(r"\[([^\[\]]*)\]?")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NAME = re.compile(r"[A-Za-z0-9_ \-]*")
_TABLE = re.compile(r"<table", re.IGNORECASE)


def parse(answer: str) -> tuple[Block, ...]:
    """The blocks of an answer in reading order; none for an answer without text and tags.

    A table's HTML is the table's, also where the tag of its caption stands before it, and a caption that is printed
    above its table or picture comes before it.
    """
    blocks = list(_blocks(answer))
    if blocks:
        blocks[-1] = replace(blocks[-1], is_last=True)
    return tuple(_captions_in_place(_tables_to_their_tags(blocks)))


def without_tags(answer: str) -> str:
    """The answer's text alone: what stands outside of tags and marks."""
    return _STRAY.sub("", _TAG.sub("", answer))


def _blocks(answer: str) -> Iterator[Block]:
    label, boxes, start, tagged = "", (), 0, False
    for tag in _TAG.finditer(answer):
        block = _block(label, boxes, answer[start : tag.start()])
        if tagged or block.text:
            yield block
        label = (tag["label"] or tag["named"] or tag["bare"] or "").strip()
        boxes = _boxes(tag["boxes"] or tag["named_boxes"] or tag["bare_boxes"] or "")
        start, tagged = tag.end(), True
    block = _block(label, boxes, answer[start:])
    if block.text or block.boxes:
        yield block


def _block(label: str, boxes: tuple[ShareBox, ...], text: str) -> Block:
    text = _STRAY.sub("", text).strip()
    if not text and not _NAME.fullmatch(label):
        # Asked for words instead of blocks, the model writes the printed words where the label stands.
        return Block("", boxes, label)
    return Block(label.lower(), boxes, text)


def _boxes(written: str) -> tuple[ShareBox, ...]:
    """The boxes of a tag that have an area; corners in the wrong order are put right."""
    found = []
    for box in _ONE_BOX.findall(written):
        numbers = [min(max(float(number), 0.0), GRID) / GRID for number in _NUMBER.findall(box)]
        if len(numbers) == 4:
            (x1, x2), (y1, y2) = sorted(numbers[::2]), sorted(numbers[1::2])
            if x1 < x2 and y1 < y2:
                found.append((x1, y1, x2, y2))
    return tuple(found)


def _tables_to_their_tags(blocks: list[Block]) -> list[Block]:
    """The HTML of a table moved to the tag of the table where tags of its caption or notes stand between the two."""
    for at, block in enumerate(blocks):
        if block.label != "table" or block.text:
            continue
        for later in range(at + 1, len(blocks)):
            other = blocks[later]
            if other.label not in CAPTIONS:
                break
            found = _TABLE.search(other.text)
            if found is not None:
                blocks[at] = replace(block, text=other.text[found.start() :], is_last=other.is_last)
                blocks[later] = replace(other, text=other.text[: found.start()].strip(), is_last=False)
                break
    return blocks


def _captions_in_place(blocks: list[Block]) -> list[Block]:
    """Captions before their table or picture where they are printed above it."""
    for at in range(len(blocks) - 1):
        block, caption = blocks[at], blocks[at + 1]
        if block.label in CAPTIONED and caption.label in CAPTIONS and block.boxes and caption.boxes:
            (_, top, _, bottom), (_, above, _, below) = block.boxes[0], caption.boxes[0]
            if above + below < top + bottom and below <= (top + bottom) / 2:
                blocks[at], blocks[at + 1] = caption, block
    return blocks
