"""Notes at the foot of a page, tied to the place that refers to them where there is exactly one. Pure."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from resources.documents_out.document import Block, Kind

_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁾", "0123456789)")
_MARK = re.compile(
    r"\s*(?:<sup>\s*)?(?:\$\s*\^\s*\{?)?(?P<mark>[0-9]{1,3}|[⁰¹²³⁴-⁹]{1,3}|\*{1,3}|[†‡])(?P<bracket>[)⁾])?(?:\s*\}?\s*\$)?(?:\s*</sup>)?"
    r"(?=[\s가-힣A-Za-z“‘(\[])\s*"
)
"""What a note begins with: `4)`, `4 `, `*`, also as a superscript."""
_SIGNS = str.maketrans({"*": "s", "†": "d", "‡": "dd"})
_REFERRING = frozenset({Kind.TEXT, Kind.ITEM, Kind.TITLE, Kind.CAPTION})


def tied(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, each note that one place of its page refers to with a mark of its own, and the place with the mark.

    A reference is a superscript, or the number with a bracket right behind a letter: a plain number may be one of the
    text. A note that is not referred to exactly once stays as it is printed. Blocks have one part each.
    """
    done = list(blocks)
    notes: dict[tuple[int, str], list[int]] = defaultdict(list)
    bodies: dict[int, list[int]] = defaultdict(list)
    for at, block in enumerate(done):
        if block.kind is Kind.FOOTNOTE and (found := _MARK.match(block.text)):
            notes[block.page, found["mark"].translate(_SUPERSCRIPTS)].append(at)
        elif block.kind in _REFERRING:
            bodies[block.page].append(at)
    for (page, number), at in notes.items():
        places = [
            (body, *reference.span())
            for body in bodies[page]
            for reference in _reference(number).finditer(done[body].parts[0].text)
        ]
        if len(at) == len(places) == 1:
            mark = f"{page}-{number.translate(_SIGNS)}"
            printed = _MARK.match(done[at[0]].text)
            done[at[0]] = replace(done[at[0]], mark=mark, printed_mark=printed.end() if printed else 0)
            body, start, end = places[0]
            part = done[body].parts[0]
            refers = tuple(sorted((*part.refers, (start, end, mark))))
            done[body] = replace(done[body], parts=(replace(part, refers=refers), *done[body].parts[1:]))
    return done


def _reference(number: str) -> re.Pattern[str]:
    """How a text refers to the note of this number."""
    plain = re.escape(number)
    raised = re.escape(number.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")))
    forms = [rf"<sup>\s*{plain}\)?\s*</sup>", rf"\$\s*\^\s*\{{?\s*{plain}\)?\s*\}}?\s*\$"]
    if number.isdigit():
        forms += [rf"{raised}⁾?(?![⁰¹²³⁴-⁹])", rf"(?<=[가-힣A-Za-z.,”’\"']){plain}\)"]
    else:
        forms.append(rf"(?<=[가-힣A-Za-z.,”’\"')]){plain}(?![*†‡])")
    return re.compile("|".join(forms))
