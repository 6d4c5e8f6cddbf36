"""The reasons for states of pages, regions and figures, collected from the source code."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[2]
_ROOMS = (
    *(f"kopub/{room}" for room in ("pages", "layout", "recognition", "embedding", "figures", "texts", "tables")),
    "kopub/vllm/client",
)
_SAYS = frozenset(
    {
        "UndecodableImage",
        "UnreadImage",
        "Failure",
        "LostAnswer",
        "_UnusableVector",
        "Defect",
        "UnansweredRequest",
        "RefusedRequest",
        "TransientError",
        "AnswerTimeout",
        "LostServer",
    }
    | {"Row", "Layout", "PageReading", "Embedding", "FigureNote", "RegionText"}
)
"""Calls whose text arguments are reasons."""
_NAME, _FILES = "reason", "pages"
"""The variable that holds a reason; in `pages` it holds the reason why a command ends, which does not count."""
_RUN_ENDS = frozenset({"worker_process.py", "indexing.py"})
"""Modules whose messages end a run or precede one, and are in no table."""

_OF_SHARE = "{share:.0%} 7"
"""The form inside `_share`, whose calls are among the doubts."""


def reasons() -> dict[str, str]:
    """Return the source position of the form of every reason, with 7 for values that have no name."""
    files = [path for room in _ROOMS for path in _modules(room) if path.name not in _RUN_ENDS]
    found = {}
    for path in files:
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            for expression in (*_said(node), *(() if _FILES in path.parts else _named(node))):
                found |= {text: f"{path.relative_to(ROOT)}:{expression.lineno}" for text in _texts(expression, tree)}
    found.pop(_OF_SHARE)
    return found


def doubts() -> dict[str, str]:
    """Return the source position of the form of every reason to doubt a text."""
    found = {}
    for path in _modules("kopub/texts"):
        tree = ast.parse(path.read_text("utf-8"))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in ("Doubt", "_share"):
                share = "{share:.0%} " if call.func.id == "_share" else ""
                texts = [text for given in call.args for text in _texts(given, tree)]
                found |= {share + text: f"{path.relative_to(ROOT)}:{call.lineno}" for text in texts}
    found.pop(_OF_SHARE)
    return found


def _modules(room: str) -> list[Path]:
    """Return the modules of a room. Raises `FileNotFoundError` if there are none: the room has moved."""
    modules = sorted((ROOT / room).rglob("*.py"))
    if not modules:
        raise FileNotFoundError(f"{room} has no modules: name the room in tests/support/reasons.py as it is now called")
    return modules


def _said(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=ast.Name(id="Reason")):
            yield node
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            yield from (word.value for word in node.keywords if word.arg in ("reason", "problem"))
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


def _assigns(node: ast.AST, name: str) -> TypeGuard[ast.Assign]:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == [name]


def _texts(said: ast.expr, tree: ast.Module) -> Iterator[str]:
    match said:
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one, tree), *_texts(other, tree))
        case ast.BoolOp(values=values):
            yield from (text for value in values for text in _texts(value, tree))
        case ast.Call(func=ast.Name(id="Reason"), args=[ast.Name(id=name), *_]) | ast.Name(id="form" as name):
            # A variable of another function may have the name; its text must be known too.
            values = [node.value for node in ast.walk(tree) if _assigns(node, name)]
            yield from (text for value in values for text in _texts(value, tree))
        case ast.Call(func=ast.Name(id="Reason"), args=[form, *_]):
            yield from _texts(form, tree)
        case ast.Constant(value=str(text)) if " " in text:
            yield text
        case ast.JoinedStr(values=values):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "7" for part in values)
            if any(character.isalpha() for character in text):
                yield text
        case _:
            pass
