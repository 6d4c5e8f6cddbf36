"""Whatever is printed, a GFM renderer shows it, and nothing of it is markup."""

import html
import re

import cmarkgfm
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kopub.documents.markdown import document_markdown
from kopub.documents.structure import structure_document
from kopub.recognition.regions import RegionText
from kopub.texts.markdown import DOTS, page_markdown
from kopub.texts.markup import printable
from tests.support.sources.documents import Printed, document

SIGNS = st.text(r"가a1 .,-+*_~`$#>|=:[]()!\&;<>/x^{}" + "\n\t" * 2, max_size=40)
PIECES = st.sampled_from([
    "3~5일", "~", "__init__", "*표", r"C:\temp\*.txt", "2024. 3. 5.", "1) ", "+ 더하기", "- ", "# ", "[담당자](비공개)",
    "![p](http://evil/x.png)", "[^1]", "[^1]: ", "[a]: javascript:x", "<b>", "<http://a.b>", "&copy;", "$a$ and $b$",
    "---", "===", "|a|b|", "|-|-|", "``", "[ ] ", "> ", "\\", "**", "\n", " ", "가", "   ", "x" * 9, "www.a.kr",
    "\u202e", "\x1b", "• ", "□ ", "※ ",
])  # fmt: skip
PRINTED = st.one_of(SIGNS, st.lists(PIECES, max_size=12).map("".join)).filter(
    lambda text: "```" not in text and not re.search(r"\$.*(\\[A-Za-z]|\^|_\{).*\$", text)
)
"""Whatever may be printed, without what a reader marks as code or a formula."""


def rendered(markdown: str) -> str:
    return cmarkgfm.github_flavored_markdown_to_html(markdown)


def shown(markdown: str) -> str:
    """Return what a GFM renderer shows of a text."""
    return "".join(html.unescape(re.sub(r"<[^>]*>", "", rendered(markdown))).split())


def letters(text: str) -> str:
    """Return a printed text without blanks and the bullets that a renderer draws itself."""
    return "".join(re.sub(r"(?m)^[ \t]*[•·‧∙ㆍ–-][ \t]+(?=\S)", "", printable(text)).split())


@settings(max_examples=600)
@given(PRINTED)
@example("a\n:-")
@example("1. 가\n---")
@example("- a\n2. b")
def test_a_page_is_shown_as_it_was_read(text: str) -> None:
    assert shown(page_markdown([RegionText(0, "text", text)], ())) == letters(text)


@settings(max_examples=300)
@given(st.sampled_from(["text", "paragraph_title", "footnote", "figure_title"]), st.lists(PRINTED, max_size=3))
def test_a_document_is_shown_as_it_was_read(label: str, texts: list[str]) -> None:
    made = document([Printed(label, text) for text in texts])
    blocks = structure_document(made).blocks
    # A renderer draws dots, and the numbers of its own lists.
    drawn = {block.sign for block in blocks if block.sign in DOTS or re.fullmatch(r"[0-9]+[.)]", block.sign)}
    read = "".join((block.sign if block.sign not in drawn else "") + block.text for block in blocks)
    assert shown(document_markdown(made, blocks)) == "".join(read.split())


@pytest.mark.parametrize(
    ("printed", "written"),
    [
        ("3~5일이고 7~9일", r"3\~5일이고 7~9일"),
        ("file_name_v2와 __init__", r"file_name_v2와 \_\_init__"),
        ("2024. 3. 5. 접수", r"2024\. 3. 5. 접수"),
        ("+ 더하기", r"\+ 더하기"),
        ("[담당자](비공개)", r"[담당자\](비공개)"),
        (r"C:\temp\*.txt", r"C:\temp\\*.txt"),
        ("$a$ and $1$", r"$a$ and \$1$"),
        ("a * b * c, x*y, 5 < 6, R&D, 3~5, $5", "a * b * c, x*y, 5 < 6, R&D, 3~5, $5"),
    ],
)
def test_few_escapes_are_needed(printed: str, written: str) -> None:
    assert page_markdown([RegionText(0, "text", printed)], ()) == written
