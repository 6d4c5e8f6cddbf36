"""Fenced blocks, links, anchors and inline code of the documentation's pages."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from kopub.config.settings import ROOT

PAGES = sorted([*ROOT.glob("*.md"), ROOT / "samples" / "README.md", *(ROOT / "docs").rglob("*.md")])


@dataclass(frozen=True)
class Block:
    """A fenced block, with the HTML comment before it.

    `<!-- not run: REASON -->` keeps it from being run, `<!-- new home -->` runs it in an empty home, `<!-- served -->`
    leaves it running until the page ends, `<!-- exit status 1 -->` is the exit status of its commands, and
    `<!-- output -->` marks the output of the block before it.
    """

    page: Path
    line: int
    language: str
    text: str
    mark: str

    @property
    def not_run(self) -> str:
        """Return why the block is not run, or an empty text."""
        return self.mark.removeprefix("not run:").strip() if self.mark.startswith("not run:") else ""

    @property
    def status(self) -> int:
        """Return the expected exit status of its commands."""
        return int(self.mark.removeprefix("exit status ")) if self.mark.startswith("exit status ") else 0

    def __str__(self) -> str:
        return f"{self.page.name}, line {self.line}"


@cache
def _parsed(text: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(text)


def tokens(page: Path) -> list[Token]:
    return _parsed(page.read_text("utf-8"))


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    mark = ""
    for token in tokens(page):
        if token.type == "fence" and token.map:
            found.append(Block(page, token.map[0] + 1, token.info.strip(), token.content, mark))
        comment = re.fullmatch(r"<!--(.*?)-->\s*", token.content, re.DOTALL) if token.type == "html_block" else None
        mark = comment[1].strip() if comment else ""
    return found


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and images."""
    inline = [child for token in tokens(page) for child in token.children or []]
    return [str(child.attrs.get("href") or child.attrs.get("src")) for child in inline if child.type in _LEADING]


def inline_code(page: Path) -> list[str]:
    return [child.content for token in tokens(page) for child in token.children or [] if child.type == "code_inline"]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    every = tokens(page)
    headings = [every[at + 1].content for at, token in enumerate(every) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


_LEADING = ("link_open", "image")
