"""Answers of DeepSeek-OCR without boxes and layout marks, tables as HTML. Pure."""

import re
from functools import cache

from markdown_it import MarkdownIt

from resources.layout.regions import Task

_GROUNDING = re.compile(r"<\|(ref|det)\|>[^<]*(?:<\|/\1\|>|\Z)|<\|/?(?:ref|det|grounding)\|>")
"""The label and the box of a block; an answer that was cut off may end within one."""
_CENTRED = re.compile(r"</?center>")
"""Put around captions by the model; never a printed tag."""
_DELIMITER_ROW = re.compile(r"^[\s|]*:?-+[\s|:-]*$", re.MULTILINE)
"""The second line of a markdown table."""


def clean(text: str, task: Task) -> str:
    """An answer without grounding; a markdown table as `<table>` HTML, its cells as the model wrote them."""
    text = _CENTRED.sub("", _GROUNDING.sub("", text)).strip()
    if task is Task.TABLE and "|" in text and _DELIMITER_ROW.search(text):
        return _html_tables(text)
    return text


def _html_tables(text: str) -> str:
    lines = text.split("\n")
    done, inside = 0, False
    html: list[str] = []
    for token in _parser().parse(text):
        if token.type == "table_open" and token.map is not None:
            html += [f"{line}\n" for line in lines[done : token.map[0]]]
            done, inside = token.map[1], True
        if inside:
            html.append(token.content if token.type == "inline" else f"<{'/' * (token.nesting < 0)}{token.tag}>")
        if token.type == "table_close":
            inside = False
            html.append("\n")
    return ("".join(html) + "\n".join(lines[done:])).strip()


@cache
def _parser() -> MarkdownIt:
    """Parses GitHub's markdown tables and nothing else, so that cells stay as they are."""
    return MarkdownIt("zero").enable("table")
