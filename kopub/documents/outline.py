"""Finds the entries of lists by their printed signs, and how deep each is."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kopub.documents.document import Block, BlockKind
from kopub.recognition.regions import TextOrigin

LETTERS = "가나다라마바사아자차카타파하"
NUMBER_SIGN = re.compile(
    rf"\s*((?:[0-9]{{1,2}}|[{LETTERS}])(?:\.(?=\s)|\))|\((?:[0-9]{{1,2}}|[{LETTERS}])\)|[①-⑳㉮-㉻])\s*(?=\S)"
)
"""The number of a list entry: 1. 가. 1) 가) (1) (가) ①."""
_ALIKE = str.maketrans("·‧∙ㆍ+°ㅇ–", "•••••◦○-")
"""Signs of one kind: printed in several ways, or read as another (`•` as `ㆍ` or `+`, `◦` as `°`)."""
_ORDER = ("1.", "가.", "1)", "가)", "(1)", "(가)", "①", "㉮", "□■", "○●◎", "-")
"""Kinds of signs as Korean documents nest them, numbers apart from bullets."""
_INDENT = 12
"""Least distance, in parts of 1,000 of the page, by which an entry below another is further in."""
_BULLETS = _ORDER.index("□■")


@dataclass(frozen=True, slots=True)
class _Sign:
    """The kind of a sign, and its number if it is one."""

    kind: str
    number: int | None = None
    left: int | None = None
    """Its place across the page, in parts of 1,000, if that is sure."""

    def is_left_of(self, other: "_Sign") -> bool:
        """Return whether the other entry is surely printed further in."""
        return self.left is not None and other.left is not None and other.left > self.left + _INDENT

    def is_above(self, other: "_Sign") -> bool:
        """Return whether documents nest the other kind below this one."""
        mine = next((at for at, kinds in enumerate(_ORDER) if self.kind in kinds), None)
        theirs = next((at for at, kinds in enumerate(_ORDER) if other.kind in kinds), None)
        if mine is None or theirs is None or (mine < _BULLETS) != (theirs < _BULLETS):
            return False
        return mine < theirs


def with_entries(blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks with their list entries, each with its level.

    A text that begins with a number is an entry if that is the first of its kind, or follows the number of the entry
    before. An entry with a new kind of sign is below the one before it, unless documents nest the two the other way;
    so is one of a document's file with the same sign that is printed further in.
    """
    done: list[Block] = []
    above: list[_Sign] = []
    for block in blocks:
        if block.kind is BlockKind.TITLE:
            above.clear()
        entry = block
        is_text = block.kind is BlockKind.TEXT and block.label == "text"
        if is_text and (number := NUMBER_SIGN.match(block.parts[0].text)):
            part, sign, length = block.parts[0], _sign_of(number[1]), number.end()
            before = sign.kind, (sign.number or 0) - 1
            # A text is an entry if its number is in order.
            if sign.number == 1 or before in [(other.kind, other.number) for other in above]:
                refers = tuple(
                    (start - length, end - length, mark) for start, end, mark in part.refers if start >= length
                )
                parts = replace(part, text=part.text[length:], refers=refers), *block.parts[1:]
                entry = replace(block, kind=BlockKind.ITEM, sign=number[1], parts=parts)
        if entry.kind is BlockKind.ITEM:
            region = entry.parts[0].region
            left = region.box_2d.x1 if region.origin is TextOrigin.DOCUMENT else None
            sign = replace(_sign_of(entry.sign), left=left)
            for at, other in enumerate(above):
                # It is of the level of the other.
                if sign.kind == other.kind and not other.is_left_of(sign):
                    del above[at:]
                    break
            while above and (sign.is_above(above[-1]) or sign.is_left_of(above[-1])):
                above.pop()
            above.append(sign)
            entry = replace(entry, level=len(above))
        done.append(entry)
    return done


def _sign_of(text: str) -> _Sign:
    if not NUMBER_SIGN.match(f"{text} x"):
        return _Sign(text.translate(_ALIKE))
    value = text.strip("().")
    if value.isdecimal():
        return _Sign(text.replace(value, "1"), int(value))
    if value in LETTERS:
        return _Sign(text.replace(value, "가"), LETTERS.index(value) + 1)
    first = "①" if value <= "⑳" else "㉮"
    return _Sign(first, ord(value) - ord(first) + 1)
