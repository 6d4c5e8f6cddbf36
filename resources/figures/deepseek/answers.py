"""DeepSeek-OCR's answers to "Parse the figure.": the form says what it is. Pure; nothing in them is run."""

import ast
from collections.abc import Mapping
from html import escape
from typing import Any

from resources.figures.judged import Judged, Problem, smiles_of, unfinished
from resources.layout.regions import Task
from resources.recognition.vlm.answers import tidy
from resources.recognition.vlm.chat_requests import Answer
from resources.recognition.vlm.deepseek.deepseek_answers import clean

_LONGEST = 20_000
"""Characters of a drawing: a literal of more is a loop's, and Python's parser takes memory for it."""
_MOST_PARTS = 200


def judge(answer: Answer) -> Judged:
    """The note in an answer, or what is wrong with it.

    A table is a chart's data, a dictionary of lines and circles a drawing, one word of SMILES a molecule, and all else
    a description.
    """
    if (problem := unfinished(answer)) is not None:
        return problem
    text = clean(answer.text, Task.TABLE).strip()
    if not text:
        return Judged(Problem.EMPTY, "the answer is empty")
    if "<table" in text.lower():
        return Judged(kind="other_chart", data_html=tidy(text, Task.TABLE))
    if text.startswith("{"):
        return _geometry(text)
    if (smiles := smiles_of(text)) is not None:
        return Judged(kind="molecule", smiles=smiles)
    return Judged(kind="other", description=" ".join(text.split()))


def _geometry(text: str) -> Judged:
    drawn = _drawing(text)
    if drawn is None:
        return Judged(Problem.FORM, "the answer begins like a drawing and is none")
    return Judged(kind="geometry", data_html=drawn)


def _drawing(text: str) -> str | None:
    """The lines and circles of a drawing as `<table>` HTML; None for a text that is no literal of them."""
    if len(text) > _LONGEST:
        return None
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    if not isinstance(found, dict) or not found.keys() & {"Line", "Circle"}:
        return None
    rows = [
        (str(part), str(name), str(value))
        for part, fields in found.items()
        for name, values in (fields if isinstance(fields, Mapping) else {"": fields}).items()
        for value in _listed(values)
    ]
    shown = rows[:_MOST_PARTS]
    cells = ("".join(f"<td>{escape(cell, quote=False)}</td>" for cell in row) for row in shown)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>" if shown else None


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]
