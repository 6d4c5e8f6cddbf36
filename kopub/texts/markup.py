"""Text as markdown that a renderer shows as it was read.

It does nothing else: no link, picture or tag is made of it. A sign is escaped only where a GFM renderer would take it
for markup.
"""

import html
import re

_HIDDEN = [*range(0x09), *range(0x0E, 0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F)]
_HIDDEN += [*range(0x2066, 0x206A), 0xFEFF, *range(0xFDD0, 0xFDF0), 0xFFFE, 0xFFFF, *range(0xE0000, 0xE0080)]
_PRINTABLE = dict.fromkeys(_HIDDEN) | dict.fromkeys([0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029], "\n")


def printable(text: str) -> str:
    """Return a text without control characters and those that change its direction.

    Terminals and browsers obey them; no page prints them. Other line breaks become line feeds.
    """
    return text.replace("\r\n", "\n").translate(_PRINTABLE)


def printable_value(value: object) -> object:
    """Return a value of a template, a text as `printable` does."""
    # Markup is a `str` too, and is as it must be.
    return printable(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


_MARKUP = re.compile(
    r"""\\(?=[!-/:-@\[-`{-~\n]|\Z)  # would escape the next sign, or break the line
    |\[(?=\^)                       # begins a reference to a note
    |\](?=[(:])                     # ends the text of a link, or the label of a definition
    |<(?=[A-Za-z/!?])               # begins a tag
    |&(?=\#?[0-9A-Za-z]+;)          # begins an entity""",
    re.VERBOSE,
)
_ENTITIES = {"<": "&lt;", "&": "&amp;"}
_PAIRED = re.compile(r"\*+|_+|~+|`+|\$+")
_ADDRESS = re.compile(r"(?:(?:https?|ftp)(?=://)|www(?=\.))([:.])(?=(\S*))", re.IGNORECASE)
_MATH = re.compile(r"\$(?=\S)[^$\n]{1,1000}?(?<=\S)\$(?![0-9])")
_LATEX = re.compile(r"\\[A-Za-z]|\^|_\{|^\$[A-Za-z](?:\$|[^가-힣]*[=<>+])")
"""Signs of a formula, or a single letter; between other dollar signs are amounts of money, or whatever is printed."""


def inline_markdown(text: str) -> str:
    """Return a printable passage of one block, with escapes where it would be markup.

    A reader's formula, `$x^2$`, stays one.
    """
    changes: dict[int, str] = {}
    for sign in _MARKUP.finditer(text):
        changes[sign.start()] = _ENTITIES.get(sign[0], f"\\{sign[0]}")
    # Signs that begin emphasis, a deletion, code or a formula. Renderers differ in what they take for punctuation, so a
    # sign counts if any of them might pair it.
    closing: dict[str, bool] = {}
    for run in reversed([*_PAIRED.finditer(text)]):
        sign, before, after = run[0][0], text[run.start() - 1 : run.start()], text[run.end() : run.end() + 1]
        opens, closes = bool(after) and not after.isspace(), bool(before) and not before.isspace()
        if sign == "_":
            opens, closes = opens and not before.isalnum(), closes and not after.isalnum()
        elif sign == "`":
            # Code ends with as many backticks as it begins with, whatever is beside them.
            sign, opens, closes = run[0], True, True
        if opens and closing.get(sign):
            changes |= dict.fromkeys(range(*run.span()), f"\\{run[0][0]}")
        closing[sign] = closing.get(sign, False) or closes
    # Renderers that make a link of an address show the escapes in it.
    escapes = set(changes)
    for address in _ADDRESS.finditer(text):
        if not escapes.isdisjoint(range(*address.span(2))):
            changes[address.start(1)] = f"\\{address[1]}"
    for formula in _MATH.finditer(text):
        if _LATEX.search(formula[0]):
            changes |= dict.fromkeys(range(*formula.span()), "") | {formula.start(): _inert_latex(formula[0])}
    return "".join(changes.get(at, char) for at, char in enumerate(text)) if changes else text


_LINE_START = re.compile(
    r"[0-9]{1,9}(?=[.)](?:\s|$))|(?=#{1,6}(?:\s|$)|>|[-+*](?:\s|$)|(?:[-_*]\s*){3,}$|[-=]+$|`{3}|~{3}"
    r"|[|:-][|:\s-]*$|\[[ xX]\](?:\s|$))"
)
"""The beginning of a list, title, quotation, rule, code, table or task, up to the sign to be escaped."""


def block_markdown(text: str, line_break: str = "\n") -> str:
    """Return a printable passage as one block."""
    lines = filter(None, map(str.strip, text.split("\n")))
    return line_break.join(map(line_start, inline_markdown("\n".join(lines)).split("\n")))


def line_start(line: str) -> str:
    """Return a line of `inline_markdown`, escaped where it would begin another block."""
    start = _LINE_START.match(line)
    return f"{line[: start.end()]}\\{line[start.end() :]}" if start else line


def title_markdown(text: str, level: int) -> str:
    """Return a title, which keeps the number signs at its end."""
    return "#" * level + " " + re.sub(r"(?<=\s)(?=#+\s*$)", r"\\", inline_markdown(text))


def formula_markdown(content: str, number: str | None) -> str:
    """Return a display formula, already without delimiters, with its number as `\\tag`."""
    if number is not None and "\\tag" not in content:
        content += f" \\tag{{{number.strip().strip('()（）').strip()}}}"
    return f"$$\n{inert_latex(content)}\n$$"


def inert_latex(formula: str) -> str:
    """Return a formula that ends neither its fence nor its block.

    It holds no tag or link. LaTeX shows it as before.
    """
    formula = re.sub(r"\n\s*\n", "\n", printable(formula))
    formula = re.sub(r"\$(?=\$)|(?<=\$)\$", r"\\$", formula)
    return _inert_latex(re.sub(r"`{3,}|~{3,}", lambda run: " ".join(run[0]), formula))


def _inert_latex(formula: str) -> str:
    return re.sub(r"\](?=[(:])", "]{}", re.sub(r"<(?=[A-Za-z/!?])", r"\\lt ", formula))


def defuse(text: str) -> str:
    """Return a text without remote pictures and with links to web or mail alone.

    It is for texts that are not markdown themselves, but may be rendered as such. The bracket of any other link and the
    sign of a picture other than a crop are escaped, so that they are shown as printed.
    """
    text = _PICTURE.sub(r"\\!", printable(text))
    text = _LINK.sub(lambda link: f"{link[0][:-1]}\\]" if _is_unsafe(link) else link[0], text)
    return _AUTOLINK.sub(lambda link: link[0] if link[1].lower() in _SAFE_SCHEMES else f"&lt;{link[0][1:]}", text)


_PICTURE = re.compile(r"(?<!\\)!(?=\[)(?!\[\w*\]\(<?crops/)")
_LINK = re.compile(r"(?<!\\)(?P<before>\\*)\](?=[(:]\s*(?P<target><[^>\n]{0,500}|\S{1,500}))")
"""The end of a link's text, or of the label in a link definition."""
_AUTOLINK = re.compile(r"<([A-Za-z][A-Za-z0-9+.-]{1,31}):")
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):")
_SAFE_SCHEMES = frozenset({"http", "https", "mailto", "ftp", "tel"})


def _is_unsafe(link: re.Match[str]) -> bool:
    """Return whether a link, as browsers read it, leads anywhere but the web."""
    target = html.unescape(re.sub(r"\\([^\w\s])", r"\1", link["target"]))
    # Browsers ignore blanks and control characters.
    scheme = _SCHEME.match("".join(char for char in target if char > " " and char.isprintable()).lower().lstrip("<"))
    return scheme is not None and scheme[1] not in _SAFE_SCHEMES and len(link["before"]) % 2 == 0
