"""GLM-OCR's markup becomes a page's markdown and plain text without losing a letter.

Answers marked as official are regions of the example results of zai-org/GLM-OCR (`examples/result`, Apache-2.0).
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopub.layout.regions import Task
from kopub.recognition.content import fence_code, strip_fences
from kopub.recognition.regions import RegionText
from kopub.recognition.vlm.client.answers import find_defect, tidy
from kopub.recognition.vlm.client.glm import clean
from kopub.texts.markdown import page_markdown, page_text

LABELS = {Task.TEXT: "text", Task.TABLE: "table", Task.FORMULA: "display_formula"}


def shown(answer: str, task: Task = Task.TEXT, label: str | None = None) -> tuple[str, str]:
    """Return the markdown and the plain text of a page whose only region has `answer`."""
    region = RegionText(0, label or LABELS[task], tidy(clean(answer, task), task))
    return page_markdown([region], ()), page_text([region])


def test_code_is_code() -> None:
    official = "```html\n\n<local-jndi-name>AddressHomeLocal</local-jndi-name>\n\n```"
    markdown, text = shown(official)
    assert markdown == "```html\n<local-jndi-name>AddressHomeLocal</local-jndi-name>\n```"
    assert text == "<local-jndi-name>AddressHomeLocal</local-jndi-name>"


def test_a_fence_that_is_left_open_is_closed() -> None:
    assert shown("예:\n```sh\n# kopub index\n<br>") == (
        "예:\n```sh\n# kopub index\n<br>\n```",
        "예:\n# kopub index\n<br>",
    )


def test_text_around_code_is_text() -> None:
    markdown, text = shown("<b>를 쓴다.\n```\na < b\n```\n끝")
    assert markdown == "&lt;b>를 쓴다.\n```\na < b\n```\n끝"
    assert text == "<b>를 쓴다.\na < b\n끝"


def test_code_with_fences_in_it_ends_where_it_ended() -> None:
    code = "```\nx\n```"
    assert strip_fences(fence_code(code)) == code
    assert shown(f"````\n{code}\n````")[1] == code


@pytest.mark.parametrize("language", ["markdown", "md", "text"])
def test_a_fence_around_the_whole_of_a_text_is_no_code(language: str) -> None:
    assert shown(f"```{language}\n# 제목\n```", label="paragraph_title") == ("## 제목", "제목")
    assert shown(f"```{language}\n본문 <b>") == ("본문 &lt;b>", "본문 <b>")


def test_tags_between_backticks_are_shown_as_printed() -> None:
    official = "the tag is `<local-jndi-name>` rather than `<jndi-name>`."
    said = r"the tag is \`&lt;local-jndi-name>\` rather than \`&lt;jndi-name>`."
    assert shown(official) == (said, official)


def test_centred_text_is_text() -> None:
    official = (
        '<div align="center">\n\nFigure 3: Comparison of pass@k performance on a subset of MathVista consisting of '
        "non-multiple choice questions.\n\n</div>"
    )
    caption = official.split("\n\n")[1]
    assert shown(official) == (caption, caption)
    assert shown('<div align="center">\n열려 있다') == ("열려 있다", "열려 있다")
    assert shown("인쇄된 </div>")[1] == "인쇄된 </div>"


def test_a_heading_is_one_once() -> None:
    official = (
        '<div align="center">\n\n# GLM-4.5V and GLM-4.1V-Thinking: Towards Versatile Multimodal Reasoning with '
        "Scalable Reinforcement Learning\n\n</div>"
    )
    title = official.split("\n\n")[1].removeprefix("# ")
    assert shown(official, label="doc_title") == (f"# {title}", title)
    assert shown("## 3.1 Pre-training Data", label="paragraph_title") == (
        "## 3.1 Pre-training Data",
        "3.1 Pre-training Data",
    )
    assert shown("## Abstract") == ("Abstract", "Abstract")


@pytest.mark.parametrize("printed", ["#1 항목", "# apt update\n# apt install kopub", "C# 언어", "#태그"])
def test_a_number_sign_that_is_printed_stays(printed: str) -> None:
    assert shown(printed)[1] == printed


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        (
            "the position embedding table $ P_{\\mathrm{orig}} $ using $ \\mathcal{I}_{\\mathrm{bicubic}} $ to",
            "the position embedding table $P_{\\mathrm{orig}}$ using $\\mathcal{I}_{\\mathrm{bicubic}}$ to",
        ),
        ("값 $ x $는", "값 $x$는"),
        ("$ 5 and $ 6 or $ 7", "$ 5 and $ 6 or $ 7"),
        ("$x$ and $ y = 1 $", "$x$ and $y = 1$"),
        ("US$ 10 billion to US$ 12", "US$ 10 billion to US$ 12"),
    ],
)
def test_formulas_within_a_line_have_no_blanks_and_money_is_money(answer: str, content: str) -> None:
    assert shown(answer) == (content, content)


@pytest.mark.parametrize(
    "answer",
    [
        "```html\n<table><tr><td>값</td></tr></table>\n```",
        "```html\n<table><tr><td>값</td></tr></table>",
        "```\n<!DOCTYPE html>\n<html><body><table><tr><td>값</td></tr></table></body></html>\n```",
    ],
)
def test_a_fence_around_a_table_is_not_its_caption(answer: str) -> None:
    assert shown(answer, Task.TABLE) == ("<table><tr><td>값</td></tr></table>", "값")


def test_a_caption_is_one_in_a_fence_too() -> None:
    table = "<table><caption>표 1</caption><tr><td>값</td></tr></table>"
    assert shown(f"```html\n{table}\n```", Task.TABLE)[0] == table
    assert (
        shown(f'<div align="center">\n표 1\n</div>\n{table.replace("<caption>표 1</caption>", "")}', Task.TABLE)[0]
        == table
    )


@pytest.mark.parametrize(
    "answer", ["```latex\nE = mc^2\n```", "$ E = mc^2 $", "$$\nE = mc^2\n$$", "```\n\\[E = mc^2\\]"]
)
def test_a_formula_has_neither_fences_nor_delimiters(answer: str) -> None:
    assert shown(answer, Task.FORMULA) == ("$$\nE = mc^2\n$$", "E = mc^2")


WORDS = st.text(st.sampled_from("가나다라abcXYZ019 .,<>&#$*`-/\n\\_^{}="), max_size=30)
MARKS = st.sampled_from(
    [
        "```",
        "```html",
        "\n```\n",
        "````",
        '<div align="center">',
        "</div>",
        "\n\n# ",
        "## ",
        "$ ",
        " $",
        "~~~",
        "<table>",
    ]
)


@given(st.lists(st.one_of(WORDS, MARKS), max_size=12), st.sampled_from(list(Task)[:3]))
def test_cleaning_is_final(parts: list[str], task: Task) -> None:
    once = clean("".join(parts), task)
    assert clean(once, task) == once


PASSAGES = st.lists(st.tuples(st.sampled_from(["text", "code", "centred", "heading", "formula"]), WORDS), max_size=6)


@given(PASSAGES, st.booleans())
def test_no_letter_outside_of_marks_is_lost(passages: list[tuple[str, str]], cut: bool) -> None:
    marked = {
        "text": "{}",
        "code": "```py\n{}\n```",
        "centred": '<div align="center">\n\n{}\n\n</div>',
        "heading": "## {}",
        "formula": "$ {} $",
    }
    printed = [(kind, words.replace("`", "")) for kind, words in passages]
    answer = "\n\n".join(marked[kind].format(words) for kind, words in printed)
    if cut and printed and printed[-1][0] == "code":
        answer = answer.removesuffix("\n```")
    letters = [char for _, words in printed for char in words if char.isalnum()]
    markdown, text = shown(answer)
    assert [char for char in text if char.isalnum()] == letters
    entities = markdown.replace("&lt;", "<")
    assert sorted(char for char in entities if char.isalnum() and char not in "py") == sorted(letters)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("start", ["합계 $", "합계"])
@pytest.mark.parametrize("blank", [" ", "\n"])
def test_an_answer_with_blanks_without_end_is_judged_at_once(start: str, blank: str) -> None:
    cleaned = clean(f"{start}{100_000 * blank}원", Task.TEXT)
    assert cleaned.split() == [*start.split(), "원"]
    assert find_defect(cleaned, "stop", Task.TEXT, {"HANGUL"}) is not None
