"""The reasons for states of pages, regions and figures, collected from the source code."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = (
    *(f"kopub/{room}" for room in ("pages", "layout", "recognition", "embedding", "figures", "texts", "tables")),
    "kopub/vllm/client",
)
_SAYS = frozenset(
    {
        "UndecodableImage",
        "Defect",
        "UnansweredRequest",
        "RefusedRequest",
        "TransientError",
        "AnswerTimeout",
        "LostServer",
    }
    | {"Row", "PageLayout", "PageReading", "Embedding", "FigureNote", "RegionText"}
)
"""Calls whose text arguments are reasons."""
_NAME, _FILES = "reason", "pages"
"""The variable that holds a reason; in `pages` it holds the reason why a command ends, which does not count."""
_RUN_ENDS = frozenset({"worker_process.py", "indexing.py"})
"""Modules whose messages end a run or precede one, and are in no table."""


def reasons() -> dict[str, str]:
    """Return the source position of every reason, with 7 for interpolated values."""
    files = [path for room in _ROOMS for path in _modules(room) if path.name not in _RUN_ENDS]
    return {
        text: f"{path.relative_to(ROOT)}:{expression.lineno}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for expression in (*_said(node), *(() if _FILES in path.parts else _named(node)))
        for text in _texts(expression)
    }


def doubts() -> dict[str, str]:
    """Return the source position of every reason to doubt a text, with 7 for values."""
    return {
        f"7% {text}" if call.func.id == "_share" else text: f"{path.relative_to(ROOT)}:{call.lineno}"
        for path in _modules("kopub/texts")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("Doubt", "_share")
        for given in call.args
        for text in _texts(given)
        # The f-string inside `_share` itself.
        if text != "7% 7"
    }


def _modules(room: str) -> list[Path]:
    """Return the modules of a room. Raises `FileNotFoundError` if there are none: the room has moved."""
    modules = sorted((ROOT / room).rglob("*.py"))
    if not modules:
        raise FileNotFoundError(f"{room} has no modules: name the room in tests/support/reasons.py as it is now called")
    return modules


def _said(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            yield from (word.value for word in node.keywords if word.arg in ("reason", "problem") or name in _SAYS)
            yield from node.args if name in _SAYS else ()
        case ast.Dict():
            keys = (key.value if isinstance(key, ast.Constant) else None for key in node.keys)
            yield from (value for key, value in zip(keys, node.values, strict=True) if key == "reason")
        case _:
            pass


def _named(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)]) if name == _NAME:
            yield node.value
        case _:
            pass


def _texts(said: ast.expr) -> Iterator[str]:
    match said:
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one), *_texts(other))
        case ast.BoolOp(values=values):
            yield from (text for value in values for text in _texts(value))
        case ast.Constant(value=str(text)) if " " in text:
            yield text
        case ast.JoinedStr(values=values):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else _value(part) for part in values)
            if any(character.isalpha() for character in text):
                yield text
        case _:
            pass


def _value(part: ast.expr) -> str:
    if not isinstance(part, ast.FormattedValue):
        return "7"
    if ast.unparse(part.value).startswith("_regions("):
        return "7 regions"
    return "7%" if "%" in ast.unparse(part.format_spec or ast.Constant("")) else "7"
