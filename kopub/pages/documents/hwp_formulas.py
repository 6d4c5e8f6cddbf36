"""Hancom's equations as TeX. Pure."""

import re
from collections.abc import Iterator

_GREEK = re.compile(
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|upsilon|phi|chi|psi|omega"
)
_SAME_WORD = re.compile(
    "sum|int|oint|prod|lim|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|min|max|times|cdots?|partial|bar|vec|hat|dot|cup|cap"
    "|subset|forall|exists|approx|left|right|leq?|geq?|neq?"
)
_OTHER_WORDS = {
    **{"inf": r"\infty", "triangle": r"\triangle", "rm": "", "it": "", "bold": ""},
    **{"`": r"\,", "~": r"\;", "#": r"\\", "+-": r"\pm", "-+": r"\mp", "->": r"\to", "<=": r"\le", ">=": r"\ge"},
}
_ENVIRONMENTS = {
    **{"matrix": "matrix", "pmatrix": "pmatrix", "bmatrix": "bmatrix", "dmatrix": "vmatrix", "cases": "cases"},
    **{"eqalign": "aligned", "pile": "gathered"},
}
_TOKEN = re.compile(r'"[^"]*"|[A-Za-z]+|[0-9.]+|\+-|-\+|->|<=|>=|\S')
_DEEPEST = 50
"""Most groups within one another."""


def latex_of(script: str) -> str:
    """Return an equation as TeX; words that only Hancom has stay as they are."""
    return " ".join(_terms(iter(_TOKEN.findall(script)), 0))


def _terms(words: Iterator[str], depth: int) -> list[str]:
    """Return the terms up to the end of a group."""
    terms: list[str] = []
    for word in words:
        if word == "}":
            if depth:
                break
            continue
        lower = word.lower()
        if word == "{" and depth < _DEEPEST:
            term = f"{{{' '.join(_terms(words, depth + 1))}}}"
        elif len(word) > 1 and word[0] == '"':
            term = rf"\text{{{word[1:-1]}}}"
        elif _GREEK.fullmatch(lower):
            term = rf"\{lower.capitalize() if word.isupper() else lower}"
        elif _SAME_WORD.fullmatch(lower):
            term = rf"\{lower}"
        else:
            term = _OTHER_WORDS.get(lower, word)
        terms.append(term)
        before = terms[-2] if len(terms) > 1 else ""
        if before in _ENVIRONMENTS and terms[-1].startswith("{"):
            name = _ENVIRONMENTS[before]
            terms[-2:] = [rf"\begin{{{name}}}{terms[-1][1:-1]}\end{{{name}}}"]
        elif before.lower() in ("over", "atop") and len(terms) > 2:
            terms[-3:] = [rf"\frac{_group(terms[-3])}{_group(terms[-1])}"]
        elif before.lower() == "of" and len(terms) > 3 and terms[-4].lower() == "root":
            terms[-4:] = [rf"\sqrt[{terms[-3]}]{_group(terms[-1])}"]
    return terms


def _group(term: str) -> str:
    return term if term.startswith("{") else f"{{{term}}}"
