"""The known answer of a sample: text, elements with boxes, a table, a formula, a line, answers or facts. Pure."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class PageText:
    """All text of a page. `markdown` says that it has markup; without `ordered` its reading order is not known."""

    text: str
    markdown: bool = False
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Element:
    """One block of a page.

    `category` is the benchmark's own. `bbox` is (x1, y1, x2, y2) as shares of width and height, each 0 to 1. `order`
    is its place in the reading order, None where it has none. `html` is that of a table, `latex` of a formula (or a
    table), `text` of all others. `ignored` elements are neither scored nor counted as wrong.
    """

    id: str
    category: str
    bbox: tuple[float, float, float, float]
    order: int | None = None
    text: str = ""
    html: str = ""
    latex: str = ""
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class PageElements:
    """The blocks of a page; `width` and `height` in pixels of the picture that the boxes were drawn on."""

    elements: tuple[Element, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class TableHtml:
    """A table as HTML, `<html><body><table>...`."""

    html: str


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula as LaTeX without delimiters."""

    latex: str


@dataclass(frozen=True, slots=True)
class Line:
    """The text of one line."""

    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a page with all answers that count as right.

    `dense` compares without any blank and with the case of letters, as OCRBench does for formulas.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    dense: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """Questions about one picture."""

    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """One test of a page in the form of olmOCR-bench: `type` and the fields of its line of JSON, checked."""

    id: str
    type: str
    group: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """What must be true of the text that is read of one page."""

    facts: tuple[Fact, ...]


Gold = PageText | PageElements | TableHtml | Formula | Line | Answers | Facts

_KINDS = {kind.__name__: kind for kind in get_args(Gold)}


def to_json(gold: Gold) -> str:
    """One line of JSON that `from_json` reads back, the same for the same gold."""
    return json.dumps({"kind": type(gold).__name__, **asdict(gold)}, ensure_ascii=False, sort_keys=True)


def from_json(line: str) -> Gold:
    """The gold that `to_json` wrote."""
    values = json.loads(line)
    return _built(_KINDS[values.pop("kind")], values)


def _built(kind: Any, value: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{each.name: _built(hints[each.name], value[each.name]) for each in fields(kind)})
    if get_origin(kind) is tuple:
        part = get_args(kind)[0]
        return tuple(_built(part, each) for each in value)
    if get_origin(kind) in (Union, UnionType):
        return value
    return value
