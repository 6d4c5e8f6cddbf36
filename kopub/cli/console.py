"""Prints for commands: lines that break at words, whole tables, durations, and JSON."""

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from kopub.errors import visible
from kopub.states import Reason, phrase

if TYPE_CHECKING:
    from kopub import Page

_PIPED = 200
"""Columns without a terminal: most tables fit and need not become lists."""
_PROSE = 24
"""Columns of a terminal below which a sentence in a table is unreadable."""
_HANGING = 2
_WIDE = r"[\u1100-\u11ff\u2e80-\ud7ff\uf900-\ufaff\ufe30-\uff60]"
"""A character of Korean, Chinese or Japanese."""
_PIECE = re.compile(rf"{_WIDE}[^\w\s]*\s*|(?:(?!{_WIDE}).)+")
"""The parts of a long word that stay together."""
_GLUE = "\xa0"
"""A blank at which no line is broken."""

_VARIABLES = ("KOPUB_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
"""The variables that choose the language of the command line, the first one that is set."""


def in_english() -> bool:
    """Return whether neither `KOPUB_LANG` nor, if it is unset, the locale is Korean."""
    return not next(filter(None, map(os.environ.get, _VARIABLES)), "").lower().startswith("ko")


def said(sentence: str, filled: bool = True) -> str:
    """Return a sentence in the user's language, in English if the catalogue lacks it.

    A line is never half translated: with a reason that the catalogue lacks, it is English. A form that is not `filled`
    keeps its names in braces, for libraries that fill their own.
    """
    if in_english():
        return sentence
    from kopub.language import texts

    korean = texts("ko")
    return korean.sentence(sentence, whole=True)[0] if filled else korean.sentences.get(sentence, sentence)


def table_console() -> Console:
    """Return a console as wide as the terminal, or as tables need if piped."""
    console = Console()
    return console if console.is_terminal else Console(width=_PIPED)


class _RunConsole(Console):
    """A console whose reader may go away, as `head` does, while a run goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        # What was not written is written once more when the file is closed.
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), self.file.fileno())


def lasting_console() -> Console:
    """Return a `table_console` on the present standard output.

    Dagster redirects standard output into a file while a step is running, and the reader of the console may go away.
    """
    try:
        shown = os.dup(sys.stdout.fileno())
    except OSError:
        return table_console()
    file = os.fdopen(shown, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)
    console = _RunConsole(file=file)
    return console if console.is_terminal else _RunConsole(file=file, width=_PIPED)


def say(out: Console, line: str | Text, style: str = "", indent: int = _HANGING) -> None:
    """Print a line in the user's language.

    On a terminal it is broken at words, with further lines indented; a pipe gets it whole. A word longer than the
    terminal, such as a path, stays in one piece that can be copied; Korean without blanks is broken between characters,
    as in print.
    """
    text = Text(said(line)) if isinstance(line, str) else line
    if style:
        text.stylize(style)
    for part in _broken(text, out.width, indent) if out.is_terminal else [text]:
        out.print(part, soft_wrap=True)


def tell(line: str | Text, err: bool = False) -> None:
    """Print a line on standard output or error, as `say` does."""
    say(Console(stderr=True) if err else table_console(), line)


def print_table(out: Console, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]], title: str = "") -> None:
    """Print a table, or a list if the terminal is too narrow.

    Headers and phrases are in the user's language. Headers wrap between words, and cells only in columns with
    `overflow="fold"`, which hold sentences.
    """
    texts: list[list[Text]] = []
    for row in rows:
        # A phrase is told in the user's language.
        cells = (said(cell) if isinstance(cell, Reason) else cell for cell in row)
        texts.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])
    for column in columns:
        column.header = said(str(column.header))
    widths = _widths(columns, texts, out.width)
    if title:
        say(out, title, "bold")
    if widths is None:
        for row in texts:
            say(out, Text.assemble((f"{columns[0].header} ", "dim"), row[0]), "bold")
            named: list[Text] = []
            for column, cell in zip(columns[1:], row[1:], strict=True):
                if cell:
                    named.append(Text.assemble((f"{column.header} ".replace(" ", _GLUE), "dim"), cell))
            for part in _broken(Text(", ").join(named), out.width - _HANGING, _HANGING):
                part.pad_left(_HANGING)
                out.print(part, soft_wrap=True)
        return
    table = Table(*columns, box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="bold")
    for column, width in zip(table.columns, widths, strict=True):
        # All cells fit, and an ellipsis would cut a full line of wide letters in a header.
        column.width, column.overflow = width, "fold"
    for row in texts:
        table.add_row(*row)
    out.print(table)


def right(*names: str) -> list[Column]:
    """Return columns of numbers, aligned to the right."""
    return [Column(name, justify="right") for name in names]


def plain_reason(page_id: str, reason: str | None) -> str:
    """Return why a page was lost, without names that are already in its line.

    It is in the user's language. The names are its own name, and that of the previous table.
    """
    if isinstance(reason, Reason) and not in_english():
        korean = said(reason.values.get("reason", "") if "asset" in reason.values else reason)
        return korean.removeprefix(f"{page_id}: ")
    return (reason or "").removeprefix("raw_pages: ").removeprefix(f"{page_id}: ")


def lost_line(page: "Page") -> str:
    """Return the line on a lost or partial page, in the user's language."""
    return visible(said(phrase("{page} is {state}: {reason}", page.id, page.state, plain_reason(page.id, page.reason))))


def count(number: int, style: str) -> Text:
    """Return a number as a cell, in a style unless it is 0."""
    return Text(f"{number:,}", style if number else "")


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int) -> list[int] | None:
    """Return the widths of a table's columns within `width`, None if impossible."""
    gaps = len(columns) - 1
    whole, least = [], []
    for at, column in enumerate(columns):
        head = str(column.header)
        cells = max((line.cell_len for row in rows for line in row[at].split()), default=0)
        words = max(map(cell_len, head.split()), default=0)
        whole.append(max(cell_len(head), cells))
        least.append(max(words, min(cells, _PROSE) if column.overflow == "fold" else cells))
    spare = width - gaps - sum(least)
    if spare < 0:
        return None
    for at in sorted(range(len(columns)), key=lambda at: whole[at] - least[at]):
        more = min(spare, whole[at] - least[at])
        least[at] += more
        spare -= more
    return least


def _broken(text: Text, width: int, indent: int) -> Iterable[Text]:
    """Yield a text in lines of at most `width`, indented after the first.

    Words that are longer stay whole.
    """
    for line in text.split("\n", allow_blank=True):
        at, breaks = 0, list[int]()
        used = len(line) - len(line.plain.lstrip(" "))
        for word in re.finditer("[^ ]+ *", line.plain):
            # A word that is longer than a line comes in pieces, where Korean can be broken.
            is_long = cell_len(word[0].rstrip()) > width - indent
            for piece in _PIECE.finditer(line.plain, *word.span()) if is_long else [word]:
                if piece.start() > at and used + cell_len(piece[0].rstrip()) > width:
                    breaks.append(piece.start())
                    at, used = piece.start(), indent
                used += cell_len(piece[0])
        first, *others = line.divide(breaks)
        first.rstrip()
        yield first
        for other in others:
            other.rstrip()
            other.pad_left(indent)
            yield other


def print_json(value: Any) -> None:
    """Print one JSON value, with Hangul unescaped."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=1))


def duration(seconds: float) -> str:
    """Return a duration in the user's language: `8 ms`, `12 s`, `1.5 h`."""
    if not seconds:
        return said("0 s")
    if seconds < 0.05:
        return said(phrase("{milliseconds} ms", max(1, round(1000 * seconds))))
    if seconds < 10:
        return said(phrase("{seconds:.1f} s", seconds))
    if seconds < 120:
        return said(phrase("{seconds:.0f} s", seconds))
    if seconds < 7200:
        return said(phrase("{minutes:.0f} min", seconds / 60))
    return said(phrase("{hours:.1f} h", seconds / 3600))
