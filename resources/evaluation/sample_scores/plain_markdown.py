"""The text of markdown without its markup. Pure; markdown-it and Beautiful Soup."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it import MarkdownIt
    from markdown_it.token import Token


def plain_text(markdown: str) -> str:
    """The text of a page's markdown, blocks a line apart; pictures and HTML tags are left out, formulas stay."""
    return "\n".join(part for part in map(str.strip, _blocks(_parser().parse(markdown))) if part)


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": True}).enable("table")


def _blocks(tokens: "list[Token]") -> "Iterator[str]":
    for token in tokens:
        if token.type == "inline":
            yield "".join(_inline(child) for child in token.children or ())
        elif token.type in ("code_block", "fence"):
            yield token.content
        elif token.type == "html_block":
            yield _without_tags(token.content)


def _inline(token: "Token") -> str:
    if token.type in ("text", "code_inline"):
        return token.content
    return "\n" if token.type in ("softbreak", "hardbreak") else ""


def _without_tags(html: str) -> str:
    from bs4 import BeautifulSoup

    return BeautifulSoup(html, "html.parser").get_text(" ")
