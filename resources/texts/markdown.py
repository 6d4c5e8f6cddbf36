"""A page as markdown. Pure; numbers, dates and words stay as they were read."""

import re
from collections.abc import Sequence

from resources.recognition.code_fences import fenced, passages, without_fences
from resources.recognition.latex import without_delimiters
from resources.recognition.readings import Crop, RegionText, readable

_TITLES = {"doc_title": "# ", "paragraph_title": "## "}
_FORMULAS = frozenset({"display_formula", "inline_formula"})
TABLE_LABELS = frozenset({"table", "chart"})
"""Labels of regions whose content may be a `<table>`."""
_BULLET = re.compile(r"^[•·‧∙●○◦▪■□–*\-]\s+(?=\S)")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
_LINE_START = re.compile(r"^(#{1,6}(?=\s)|>|(?:-{3,}|={3,})(?=\s*$)|(?:`{3,}(?=[^`]*$)|~{3,}))")
_CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)")


def page_markdown(regions: Sequence[RegionText], crops: Sequence[Crop]) -> str:
    """The page in reading order, blocks a blank line apart.

    Titles are `#` and `##`, bullets `- `, code is fenced, tables are HTML, formulas `$$` with their number as `\\tag`,
    pictures links to their crops. Running heads, feet and page numbers are paragraphs. Failed
    regions are left out.
    """
    ordered = readable(regions)
    pictures = {crop_region(crop.path): crop for crop in crops}
    numbers = _formula_numbers(ordered)
    taken = set(numbers.values())
    blocks = []
    for position, region in enumerate(ordered):
        if position in taken:
            continue
        crop = pictures.get(region.index)
        if crop is not None:
            blocks.append(f"![{crop.label}]({_link(crop.path)})")
        number = ordered[numbers[position]].content if position in numbers else None
        blocks.append(_block(region, number))
    return "\n\n".join(block for block in blocks if block)


def crop_region(path: str) -> int:
    """The index of the region that the crop at a path is of."""
    return int(path.rpartition("_")[2].removesuffix(".jpg"))


def _link(path: str) -> str:
    """A link target: in angle brackets when blanks or brackets would end it early."""
    if re.search(r"[\s()<>]", path):
        return "<" + re.sub(r"[<>\\]", lambda match: "\\" + match[0], path) + ">"
    return path


def _formula_numbers(regions: Sequence[RegionText]) -> dict[int, int]:
    """Positions of the formulas that have a number, with the position of the number: the next region or the last."""
    found: dict[int, int] = {}
    for position, region in enumerate(regions):
        if region.native_label != "formula_number" or not region.content.strip():
            continue
        for neighbour in (position - 1, position + 1):
            free = neighbour not in found and 0 <= neighbour < len(regions)
            if free and regions[neighbour].native_label in _FORMULAS and regions[neighbour].content.strip():
                found[neighbour] = position
                break
    return found


def _block(region: RegionText, number: str | None) -> str:
    content = region.content.strip()
    if not content:
        return ""
    if region.native_label in _TITLES:
        title = " ".join(without_fences(content).split())
        return _TITLES[region.native_label] + _inline(title.lstrip("#").lstrip())
    if region.native_label in TABLE_LABELS and content.startswith("<table"):
        return content
    if region.native_label in _FORMULAS:
        return _formula(content, number)
    return "\n".join(
        fenced(passage.text, passage.language)
        if passage.is_code
        else "\n".join(_line(line) for line in passage.text.splitlines())
        for passage in passages(content)
    )


def _formula(content: str, number: str | None) -> str:
    content = without_delimiters(content)
    if number is not None and "\\tag" not in content:
        content += f" \\tag{{{number.strip().strip('()（）').strip()}}}"
    return f"$$\n{content}\n$$"


def _line(line: str) -> str:
    bullet = _BULLET.match(line)
    if bullet:
        return "- " + _inline(line[bullet.end() :])
    return _LINE_START.sub(r"\\\1", _inline(line))


def _inline(text: str) -> str:
    """Printed angle brackets that markdown would take for HTML, as entities; nothing else changes.

    Between backticks markdown takes nothing for HTML, and would show the entity.
    """
    done, parts = 0, []
    for span in _CODE_SPAN.finditer(text):
        parts += [_TAG.sub("&lt;", text[done : span.start()]), span[0]]
        done = span.end()
    return "".join([*parts, _TAG.sub("&lt;", text[done:])])
