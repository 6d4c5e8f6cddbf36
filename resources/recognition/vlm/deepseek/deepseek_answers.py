"""Answers of DeepSeek-OCR without boxes, marks and what the model adds to the print, tables as HTML. Pure."""

import re
from functools import cache

from markdown_it import MarkdownIt

from resources.layout.regions import Task
from resources.recognition.code_fences import fenced, passages
from resources.recognition.vlm.placeholder_cells import is_bare, without_placeholders

PROMPTS = ("Convert the document to markdown.", "Free OCR.", "OCR this image.", "Parse the figure.")
"""What the model is asked with; an answer may begin with it."""
_ECHO = re.compile(rf"\A\s*(?:{'|'.join(map(re.escape, PROMPTS))})[ \t]*(?:\n|\Z)", re.IGNORECASE)
_GROUNDING = re.compile(
    r"[<＜][|｜](ref|det)[|｜][>＞][^<＜]*(?:[<＜][|｜]/\1[|｜][>＞]|\Z)|[<＜][|｜]/?(?:ref|det|grounding)[|｜][>＞]"
)
"""The label and the box of a block; an answer that was cut off may end within one."""
_SPECIAL = re.compile(r"[<＜][|｜]/?[\w▁]{2,40}[|｜][>＞]|<image>")
"""Other special tokens, as `<｜end▁of▁sentence｜>`; `<|x|>` of one letter may be printed."""
_LABEL_BOX = re.compile(
    r"^[ \t]*(?:(?:sub_)?title|text|(?:table|image|figure)(?:_(?:caption|footnote|title))?|equation|list|header|footer"
    r"|page_number|footnote)?[ \t]?\[\[\d{1,4}(?:,[ \t]*\d{1,4}){3}\]\][ \t]*\n?",
    re.MULTILINE,
)
"""The same where special tokens were skipped: `text[[12, 34, 567, 890]]`."""
_CENTRED = re.compile(r"</?center>")
"""Put around captions by the model; never a printed tag."""
_DRAWING = re.compile(r"\\begin\{(tikzpicture|pgfpicture|picture)\}.*?(?:\\end\{\1\}|\Z)", re.DOTALL)
"""A program for a drawing, which no page prints."""
_ARRAY = re.compile(r"\\begin\{(array|matrix|tabular)\}(?:\{[^{}]*\})?((?:(?!\\begin)[\s\S])*?)\\end\{\1\}")
_COMMAND = re.compile(r"\\(?:hline|quad|qquad|cdots|ldots|vdots|text|mathrm|\\|[,;:! ])")
_DELIMITERS = re.compile(r"\\\[\s*\\\]|\\\(\s*\\\)|\$\$\s*\$\$")
_DELIMITER_ROW = re.compile(r"^[\s|]*:?-+[\s|:-]*$", re.MULTILINE)
"""The second line of a markdown table."""


def clean(text: str, task: Task) -> str:
    """An answer as it is printed: no grounding, no echo of the prompt, no special tokens, no drawn nonsense.

    Code between fences stays as it is. A markdown table becomes `<table>` HTML, its cells as the model wrote them but
    for placeholders that the page cannot hold; a table without one character is no table. A clean answer comes back as
    it is.
    """
    # Where one mark is taken out, the rest of a torn one may be another.
    while (cleaner := _cleaned(text, task)) != text:
        text = cleaner
    return text


def _cleaned(text: str, task: Task) -> str:
    text = _LABEL_BOX.sub("", _SPECIAL.sub("", _GROUNDING.sub("", _ECHO.sub("", text))))
    if "```" in text:
        parts = passages(text)
        text = "\n".join(fenced(each.text, each.language) if each.is_code else _plain(each.text) for each in parts)
    else:
        text = _plain(text)
    text = text.strip()
    if task is not Task.TABLE:
        return text
    if "|" in text and _DELIMITER_ROW.search(text):
        text = _html_tables(text)
    text = without_placeholders(text)
    return "" if is_bare(text) else text


def _plain(text: str) -> str:
    """A text without what the model adds to it."""
    text = _DRAWING.sub("", _CENTRED.sub("", text))
    return _DELIMITERS.sub("", _ARRAY.sub(lambda found: found[0] if _says_something(found[2]) else "", text))


def _says_something(cells: str) -> bool:
    """Whether an array has a letter, a digit or a sign in a cell."""
    return bool(re.search(r"[^\s&\\{}~.]", _COMMAND.sub("", cells)))


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
