"""Notes at the foot of a page, tied to the one place that refers to each. Pure."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from resources.documents_out.document import Block, Kind

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁾", "0123456789)")
_MARK = re.compile(
    r"\s*(?:<sup>\s*)?(?:\$\s*\^\s*\{?)?(?P<mark>[0-9]{1,3}|[⁰¹²³⁴-⁹]{1,3}|\*{1,3}|[†‡])(?P<bracket>[)⁾])?(?:\s*\}?\s*\$)?(?:\s*</sup>)?"
    r"(?=[\s가-힣A-Za-z“‘(\[])\s*"
)
"""What a note begins with: `4)`, `4 `, `*`, also as a superscript."""
_SIGNS = str.maketrans({"*": "s", "†": "d", "‡": "dd"})
_REFERRING = frozenset({Kind.TEXT, Kind.ITEM, Kind.TITLE, Kind.CAPTION})
_REFERENCE = re.compile(
    r"<sup>\s*(?P<html>[^<>]{1,24}?)\s*</sup>"
    r"|\$\s*\^\s*\{?\s*(?P<latex>[^${}]{1,24}?)\s*\}?\s*\$"
    r"|(?P<raised>[⁰¹²³⁴-⁹][⁰¹²³⁴-⁹⁾,]*)"
    r"|(?<=[가-힣A-Za-z.,”’\"'])(?P<plain>[0-9]{1,3})\)"
    r"|(?<=[가-힣A-Za-z.,”’\"')])(?P<sign>\*{1,3}|[†‡])(?![*†‡])"
)
"""How a text refers to notes: a superscript, which may name several, or a number with a bracket behind a letter."""
_BASE = re.compile(r"(?:[0-9]|(?<![A-Za-z])(?:[A-Za-z]|[cdkm]m))$")
"""What an exponent stands behind: a digit, a variable, a unit of length."""
_NUMBER = re.compile(r"[0-9]{1,3}|\*{1,3}|[†‡]")

Place = tuple[int, str]
"""Number of a page and the mark of a note as it is printed there."""


@dataclass(frozen=True, slots=True)
class _Reference:
    """A place of a block's text that refers to one note or several."""

    block: int
    start: int
    end: int
    notes: tuple[Place, ...]


def separate(text: str) -> list[str]:
    """The notes of a region at the foot of a page: one begins where a line has the mark that follows the last one."""
    notes: list[str] = []
    before: re.Match[str] | None = None
    for line in text.split("\n"):
        mark = _MARK.match(line)
        begins = mark is not None and (before is None or _follows(before, mark))
        if begins or not notes:
            notes.append(line)
        else:
            notes[-1] += f"\n{line}"
        before = mark if begins else before
    return notes


def tied(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, each note that one place of its page refers to with a mark of its own, and the place with the mark.

    The mark is the printed one where no other note of the document has it, else with the number of the page before it.
    A superscript that names several notes is tied when all of them are. What is not referred to exactly once stays as
    it is printed: a superscript may be an exponent. Blocks have one part each.
    """
    done = list(blocks)
    notes: dict[Place, list[int]] = defaultdict(list)
    for at, block in enumerate(done):
        if block.kind is Kind.FOOTNOTE and (found := _MARK.match(block.text)):
            notes[block.page, found["mark"].translate(_SUPERSCRIPTS)].append(at)
    references = [
        reference
        for at, block in enumerate(done)
        if block.kind in _REFERRING
        for reference in _references(at, block.page, block.parts[0].text)
    ]
    places = Counter(place for reference in references for place in reference.notes)
    chosen = [each for each in references if all(len(notes.get(n, ())) == places[n] == 1 for n in each.notes)]
    printed = Counter(number for reference in chosen for _, number in reference.notes)
    for reference in chosen:
        refers = done[reference.block].parts[0].refers
        begin = reference.start
        for place in reference.notes:
            page, number = place
            mark = number.translate(_SIGNS) if printed[number] == 1 else f"{page}-{number.translate(_SIGNS)}"
            at = notes[place][0]
            found = _MARK.match(done[at].text)
            done[at] = replace(done[at], mark=mark, printed_mark=found.end() if found else 0)
            # The first mark stands for what is printed, the others behind it for nothing more.
            refers = (*refers, (begin, reference.end, mark))
            begin = reference.end
        block = done[reference.block]
        done[reference.block] = replace(block, parts=(replace(block.parts[0], refers=refers), *block.parts[1:]))
    return done


def _references(at: int, page: int, text: str) -> Iterator[_Reference]:
    for found in _REFERENCE.finditer(text):
        named = next(group for group in found.groups() if group is not None).translate(_SUPERSCRIPTS)
        numbers = re.split(r"[\s,;)]+", named.strip(" )"))
        if numbers in (["2"], ["3"]) and _BASE.search(text, 0, found.start()):
            continue
        if all(map(_NUMBER.fullmatch, numbers)) and len(set(numbers)) == len(numbers):
            yield _Reference(at, *found.span(), tuple((page, number) for number in numbers))


def _follows(before: re.Match[str], mark: re.Match[str]) -> bool:
    """Whether a mark comes after another in the notes of a page."""
    old, new = (each["mark"].translate(_SUPERSCRIPTS) for each in (before, mark))
    if old.isdigit() != new.isdigit():
        return False
    if not new.isdigit():
        return new != old
    return int(new) == int(old) + 1 and bool(before["bracket"]) == bool(mark["bracket"])
