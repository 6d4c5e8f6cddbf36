"""Measure signs of how the product reads, against limits that only ever tighten: `python -m tools.signs`.

A sign is no proof. Lines squeezed or comments padded do not make code clearer, but code that is cut ever smaller, or
that grows without need, shows here first. A sign that is worse than its limit fails; lower a limit once the code keeps
the lower one, and raise one only with a reason in the commit.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kopub", "kopub_assets", "resources")
AT_MOST = {
    "functions per 1,000 lines of code": 74.9,
    "comprehensions per 1,000 lines of code": 39.1,
    "private functions per 1,000 lines of code": 20.6,
    "imports inside functions": 243,
    "classes named after a region or block": 13,
    "classes named after a page or document": 18,
    "lines": 76_770,
}
AT_LEAST = {"comments, percent of lines": 1.3}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Module)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLANK = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def measure(sources: Iterable[str]) -> dict[str, float]:
    """Return every sign of the modules `sources` by name."""
    counts: Counter[str] = Counter()
    for source in sources:
        tree = ast.parse(source)
        nodes = list(ast.walk(tree))
        functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
        classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
        code, comments = _lines(source)
        docstrings = {
            line
            for node in nodes
            if isinstance(node, _SCOPES) and ast.get_docstring(node, clean=False) is not None
            for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
        }
        counts["lines"] += source.count("\n")
        counts["code"] += len(code - docstrings)
        counts["comments"] += comments
        counts["functions"] += len(functions)
        counts["private"] += sum(re.match("_(?!_)", function.name) is not None for function in functions)
        counts["comprehensions"] += sum(isinstance(node, _COMPREHENSIONS) for node in nodes)
        # A set, because a function inside a function is walked twice.
        counts["local imports"] += len(
            {
                node
                for function in functions
                for node in ast.walk(function)
                if isinstance(node, (ast.Import, ast.ImportFrom))
            }
        )
        counts["regions"] += sum(bool(re.search("Region|Block", name)) for name in classes)
        counts["pages"] += sum(bool(re.search("Page|Document", name)) for name in classes)
    thousands = counts["code"] / 1000
    return {
        "functions per 1,000 lines of code": counts["functions"] / thousands,
        "comprehensions per 1,000 lines of code": counts["comprehensions"] / thousands,
        "private functions per 1,000 lines of code": counts["private"] / thousands,
        "imports inside functions": counts["local imports"],
        "classes named after a region or block": counts["regions"],
        "classes named after a page or document": counts["pages"],
        "lines": counts["lines"],
        "comments, percent of lines": 100 * counts["comments"] / counts["lines"],
    }


def _lines(source: str) -> tuple[set[int], int]:
    """Return the numbers of the lines with code, and how many lines hold a comment alone."""
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in _BLANK:
            code.update(range(token.start[0], token.end[0] + 1))
    return code, len(comments - code)


def worse(signs: Mapping[str, float]) -> list[str]:
    """Return a line for each sign that is worse than its limit."""
    above = [f"{name}: {signs[name]:,.4g}, at most {most:,}" for name, most in AT_MOST.items() if signs[name] > most]
    below = [f"{name}: {signs[name]:,.4g}, at least {least}" for name, least in AT_LEAST.items() if signs[name] < least]
    return above + below


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    signs = measure(path.read_text("utf-8") for path in paths)
    for name, value in signs.items():
        print(f"{value:10,.1f}  {name}" if isinstance(value, float) else f"{value:10,}  {name}")
    for line in worse(signs):
        print(f"worse than its limit in tools/signs.py: {line}", file=sys.stderr)
    return 1 if worse(signs) else 0


if __name__ == "__main__":
    sys.exit(main())
