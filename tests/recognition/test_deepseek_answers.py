"""Cleaning DeepSeek-OCR's answers removes what it adds to the print and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopub.layout.regions import Task
from kopub.recognition.tables import count_placeholders
from kopub.recognition.vlm.client.answers import tidy
from kopub.recognition.vlm.client.deepseek import clean


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("Free OCR.\n본문", "본문"),
        ("<image>\n<|grounding|>Convert the document to markdown.\n본문", "본문"),
        ("본문에 Free OCR. 이라 쓴다", "본문에 Free OCR. 이라 쓴다"),
        ("Free OCR. 은 무료다", "Free OCR. 은 무료다"),
        ("본문<｜end▁of▁sentence｜>", "본문"),
        ("<|User|>본문<｜▁pad▁｜><｜▁pad▁｜>", "본문"),
        ("＜｜ref｜＞text＜｜/ref｜＞＜｜det｜＞[[1, 2, 3, 4]]＜｜/det｜＞\n본문", "본문"),
        ("⟨ψ<|x|>ψ⟩", "⟨ψ<|x|>ψ⟩"),
        ("text[[12, 34, 567, 890]]\n본문", "본문"),
        ("[[12, 34, 567, 890]] 본문", "본문"),
        ("sub_title[[1, 2, 3, 4]]\n## 제목\n\ntext[[1, 2, 3, 4]]\n본문", "## 제목\n\n본문"),
        ("행렬 A[[1, 2, 3, 4]]", "행렬 A[[1, 2, 3, 4]]"),
        ("<center>그림 1</center>", "그림 1"),
        ("앞\n\\begin{tikzpicture}\\draw (0,0) -- (1,1);\\end{tikzpicture}\n뒤", "앞\n\n뒤"),
        ("앞 \\begin{tikzpicture}\\draw (0,0) -- ", "앞"),
        ("앞 \\[\\begin{array}{ccc} & & \\\\ \\hline & & \\end{array}\\]", "앞"),
        ("\\[\\begin{array}{cc} a & 1 \\end{array}\\]", "\\[\\begin{array}{cc} a & 1 \\end{array}\\]"),
        ("\\[\\begin{array}{c} - \\end{array}\\]", "\\[\\begin{array}{c} - \\end{array}\\]"),
        ("```\n\\begin{tikzpicture}\n<center>\n```", "```\n\\begin{tikzpicture}\n<center>\n```"),
    ],
)
def test_texts(written: str, printed: str):
    assert clean(written, Task.TEXT) == printed
    assert clean(printed, Task.TEXT) == printed


def table(*cells: str) -> str:
    return f"<table><tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr></table>"


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        (table("서울", "None", "N/A", "null", "NA", "12"), table("서울", "", "", "", "", "12")),
        # Korean statistics print these for none, zero and unknown.
        (table("서울", "-", "·", "…", "–"), table("서울", "-", "·", "…", "–")),
        # The page has Latin letters, so it may have printed the words too.
        (table("Field", "None"), table("Field", "None")),
        (table("없음", "None of these"), table("없음", "None of these")),
        (table("", " ", "&nbsp;"), ""),
        (table("None", "null"), ""),
        (
            "| 가 | 나 |\n|---|---|\n| 1 | None |",
            "<table><tr><th>가</th><th>나</th></tr><tr><td>1</td><td></td></tr></table>",
        ),
    ],
)
def test_tables(written: str, printed: str):
    cleaned = clean(written, Task.TABLE)
    assert tidy(cleaned, Task.TABLE) == printed
    assert clean(cleaned, Task.TABLE) == cleaned


@pytest.mark.timeout(30)
@pytest.mark.parametrize("run", ["\n", "-"])
def test_a_table_with_a_sign_without_end_is_judged_at_once(run: str):
    written = f"| 가 |\n{100_000 * run}나"
    assert clean(written, Task.TABLE) == written


def test_placeholders_are_counted():
    assert count_placeholders(table("서울", "None", "n/a", "-", "Nonesuch")) == 2
    assert count_placeholders("None") == 0


WORDS = ["<|ref|>", "<|/ref|>", "<center>", "text[[1, 2, 3, 4]]", "\\begin{tikzpicture}", "\\end{tikzpicture}", "```\n"]
WORDS += ["<table><tr><td>", "</td></tr></table>", "None", "| 가 |\n|---|\n", "Free OCR.\n", "\n", "<｜▁pad▁｜>"]


@given(st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=4))).map("".join), st.sampled_from(list(Task)))
def test_any_answer_is_cleaned_once_and_for_all(written: str, task: Task):
    cleaned = clean(written, task)
    assert clean(cleaned, task) == cleaned
