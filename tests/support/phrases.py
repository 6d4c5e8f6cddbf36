"""The phrases of the command line, collected from the source code and from the commands' help."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from kopub.cli.main import app
from kopub.cli.on_demand import COMMANDS, load_command
from kopub.errors import KopubError

ROOT = Path(__file__).resolve().parents[2]
_PHRASES = frozenset({"phrase", "said", "say", "tell", "_tell", "joined", "counted"})
"""Calls whose literal arguments are phrases."""
_FINDINGS = frozenset({"ok", "warning", "problem", "with_remedy"})
"""Calls whose arguments are what was checked, what was found and what to do about it."""
_HEADS = frozenset({"Column", "right"})
_OF_FORMS = frozenset({"form", "line", "says", "why", "time", "well", "differs", "do", "does", "finding", "remedy"})
"""Variables that hold a form or a phrase until it is said."""
_OF_HEADS = frozenset({"head", "_GPU_HEAD", "_STEP_HEAD"})
"""Variables that hold the heads of a table's columns."""


def phrases(modules: list[Path]) -> dict[str, str]:
    """Return the source position of every phrase in `modules`."""
    found: dict[str, str] = {}
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            for text, line in _said(node):
                found[text] = f"{path.relative_to(ROOT)}:{line}"
    return found


def help_texts() -> dict[str, str]:
    """Return the command of each paragraph of help, of commands, options and arguments, and of each panel."""
    group = typer.main.get_group(app)
    found = dict.fromkeys(_help(group), "kopub")
    for listed in COMMANDS:
        found |= dict.fromkeys((listed.panel, listed.summary, *_help(load_command(listed.name))), listed.name)
    return found


def _help(command: Any) -> Iterator[str]:
    yield from filter(None, (command.help or "").split("\n\n"))
    yield from filter(None, (getattr(parameter, "help", None) for parameter in command.params))
    for part in getattr(command, "commands", {}).values():
        yield from _help(part)


def errors() -> frozenset[str]:
    """Return the names of the errors of this project, as far as their modules are imported."""

    def of(kind: type) -> Iterator[str]:
        yield kind.__name__
        for each in kind.__subclasses__():
            yield from of(each)

    return frozenset(of(KopubError))


def _said(node: ast.AST) -> Iterator[tuple[str, int]]:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args):
            if name == "counted":
                yield from ((text, node.lineno) for text in _counted(args))
            elif name in _HEADS or (name in _FINDINGS and isinstance(node.func, ast.Name)):
                yield from ((text, node.lineno) for each in args for text in _literals(each) if text)
            elif name in _PHRASES or name in errors():
                # Later arguments are values and styles: the names of files and colours have no blanks.
                first = args[1:2] if name == "say" else args[:1]
                texts = [*(text for each in first for text in _literals(each) if _is_phrase(text))]
                values = [text for each in args for text in _literals(each) if " " in text and name == "phrase"]
                yield from ((text, node.lineno) for text in (*texts, *values))
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _OF_FORMS:
            yield from ((text, node.lineno) for text in _literals(value) if _is_phrase(text))
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=value) | ast.AugAssign(target=ast.Name(id=name), value=value)
        ) if name in _OF_HEADS:
            yield from ((text, node.lineno) for text in _literals(value) if text)
        case ast.Yield(value=ast.expr() as value):
            yield from ((text, node.lineno) for text in _literals(value) if " " in text)
        case _:
            pass


def _counted(args: list[ast.expr]) -> Iterator[str]:
    words = [word for each in args[1:] for word in _literals(each)]
    for word in words[:1]:
        yield f"{{count:,}} {word}"
        yield f"{{count:,}} {words[1] if words[1:] else f'{word}s'}"


def _is_phrase(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _literals(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression can be, and those in its lists."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from (*_literals(one), *_literals(other))
        case ast.BoolOp(values=parts) | ast.List(elts=parts) | ast.Tuple(elts=parts):
            yield from (text for part in parts for text in _literals(part))
        case ast.Starred(value=value):
            yield from _literals(value)
        case _:
            pass
