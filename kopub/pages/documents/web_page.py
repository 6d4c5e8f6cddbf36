"""The text of an HTML file whose charset may be declared, wrong or missing."""

import codecs
import re
from contextlib import suppress

from bs4 import BeautifulSoup
from bs4.dammit import EncodingDetector, UnicodeDammit
from soupsieve import SelectorSyntaxError

_WIDER = {"euc_kr": "cp949", "shift_jis": "cp932", "gb2312": "gb18030", "iso8859-1": "cp1252"}
"""Charsets that browsers read as a larger one."""
_UNPRINTED = (
    *("head", "title", "script", "style", "template", "noscript", "iframe", "object", "svg", "math", "audio", "video"),
    *("select", "textarea", "button", "datalist"),
)
"""Elements whose text is not printed, or depends on the program."""
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
"""A selector and what a style declares of it."""
_HIDDEN = re.compile(r"display:\s*none|visibility:\s*hidden", re.IGNORECASE)


def decoded(page: bytes) -> str:
    """Return the text of a page.

    A byte order mark decides, then valid UTF-8, since other charsets are hardly ever so by chance, then what the page
    declares. A page that declares nothing is tried as EUC-KR, before a charset is guessed by its letters.
    """
    bare, marked = EncodingDetector.strip_byte_order_mark(page)
    declared = EncodingDetector.find_declared_encoding(bare, is_html=True)
    try:
        name = codecs.lookup(declared or "").name
        own = _WIDER.get(name, name)
    except LookupError:
        own = "euc_kr"
    tried = [marked] if marked else ["utf-8", own]
    return UnicodeDammit(bare, tried, is_html=True).unicode_markup or bare.decode("cp1252", "replace")


def shown(page: bytes) -> bytes:
    """Return a page without what it hides, in ASCII, which no charset changes."""
    return str(_without_hidden(page)).encode("ascii", "xmlcharrefreplace")


def printed(page: bytes) -> bytes:
    """Return a page in UTF-8 without what it hides, and without its controls."""
    soup = _without_hidden(page)
    for element in soup.find_all([*_UNPRINTED]):
        element.decompose()
    return str(soup).encode()


def _without_hidden(page: bytes) -> BeautifulSoup:
    soup = BeautifulSoup(decoded(page), "lxml")
    hidden = soup.find_all(hidden=True) + soup.find_all(style=_HIDDEN)
    for style in soup.find_all("style"):
        rules = style.get_text()
        # A rule within another may be about the screen alone.
        for selector, declared in _RULE.findall(rules) if "@" not in rules else ():
            with suppress(SelectorSyntaxError):
                hidden += soup.select(selector) if _HIDDEN.search(declared) else []
    for element in hidden:
        element.decompose()
    return soup
