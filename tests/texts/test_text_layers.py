"""Text layers: soundness, the text of a region, and the distance from a reading."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kopub.boxes import Box
from kopub.errors import SourceError
from kopub.layout.regions import Region, Task
from kopub.pages.documents.text_layer import NO_MARK, Mark, StoredLayers, TextLayer, Word, layer_id
from kopub.pages.nameless import nameless
from kopub.recognition.regions import RegionText, TextOrigin, skipped
from kopub.states import State
from kopub.texts.extracted_text import compare, extract_texts
from kopub.texts.layer_lines import lines_of, text_of
from kopub.texts.layer_soundness import unsound

WIDTH, HEIGHT, CELL = 1000, 1400, 10
PROSE = (
    "데비안은 자유 운영 체제를 만들려는 사람들의 모임입니다 이 문서는 설치 프로그램을 사용해 데비안을 설치하는 "
    "방법을 다룹니다 하드웨어에 관한 더 자세한 정보에 대한 링크도 제공했습니다 설치하기 전에 먼저 준비해야 할 "
    "일들을 이 장에서 설명합니다"
)
ENGLISH = (
    "the reader is given the page and all of its regions before any text that stands within them is read at once; what "
    "cannot be read from the picture keeps its place among the others with a sentence about the failure, which nobody "
    "should overlook when several thousand documents arrive every night"
)


def line(text: str, x: int = 100, y: int = 100, size: int = 20, marks: Mark = NO_MARK) -> list[Word]:
    """Return a line's words as PDFium gives them, characters half as wide as high."""
    words, at = [], x
    for first, word in enumerate(text.split()):
        end = at + len(word) * size // 2
        words.append(Word(word, Box(at, y, end, y + size), marks | (NO_MARK if first else Mark.LINE)))
        at = end + size // 2
    return words


def layer(*lines: list[Word], outside: int = 0, bare: tuple[slice, slice] | None = None) -> TextLayer:
    squares = np.zeros((HEIGHT // CELL, WIDTH // CELL), bool)
    if bare is not None:
        squares[bare] = True
    return TextLayer(WIDTH, HEIGHT, tuple(word for words in lines for word in words), outside, CELL, squares)


def read(words: Sequence[Word]) -> str:
    return text_of(lines_of(words))


def region(index: int, x1: int, y1: int, x2: int, y2: int, label: str = "text", task: Task = Task.TEXT) -> Region:
    return Region(index, label, task, 1.0, (x1, y1, x2, y2))


# Lines


def test_lines_are_as_printed_with_korean_spacing():
    assert read([*line("이 문서는 설치"), *line("방법을 다룹니다.", y=130)]) == "이 문서는 설치\n방법을 다룹니다."


def test_a_divided_word_stands_whole_on_its_first_line():
    divided = [*line("a micro"), *line("kernel and more", y=130)]
    divided[1] = Word("micro", divided[1].box, divided[1].marks | Mark.HYPHEN)
    assert read(divided) == "a microkernel\nand more"
    assert read(divided[:2]) == "a micro-"
    names = [*line("GNU", marks=Mark.HYPHEN), *line("Linux and 2024", y=130)]
    assert read(names) == "GNU-Linux\nand 2024"


def test_ligatures_jamo_and_bullets_of_symbol_fonts():
    assert read(line("o\ufb03ce \u1112\u1161\u11ab\u1100\u1173\u11af co\u00adop")) == "office 한글 coop"
    assert read([*line("\uf0b7 첫째"), *line("\uf0a7 둘째", y=130)]) == "• 첫째\n• 둘째"


def test_lines_that_the_pdf_has_in_another_order_are_read_from_the_top():
    assert read([*line("third", y=160), *line("first"), *line("second", y=130)]) == "first\nsecond\nthird"
    assert read([*line("right", x=300), *line("left")]) == "left right"


def test_writing_from_right_to_left_is_read_so_and_words_of_other_letters_in_it_are_not():
    assert read(line("20300 ملی استاندارد شماره")) == "شماره استاندارد ملی 20300"
    assert read(line("پذيرش کاالی New York بازار 1403")) == "1403 بازار New York کاالی پذيرش"
    assert read(line("a line with شماره in it")) == "a line with شماره in it"


def test_signs_of_another_font_that_are_drawn_after_their_row_stand_in_its_gaps():
    row = [*line("피해액이 조원에"), Word("이르며", Box(260, 100, 290, 120))]
    row[1] = Word("조원에", Box(200, 100, 240, 120))
    after = [Word("1.3", Box(160, 104, 190, 120), Mark.LINE), Word(",", Box(243, 118, 247, 124), Mark.LINE)]
    assert read([*row, *line("다음 줄", y=130), *after]) == "피해액이 1.3 조원에 , 이르며\n다음 줄"


def test_a_run_of_dots_is_one_sign():
    assert read(line("제1장 총칙 ········ 3")) == "제1장 총칙 … 3"
    assert read(line("그러나.... 말없음표")) == "그러나.... 말없음표"


def test_two_columns_in_one_region_stay_in_the_order_of_the_pdf():
    left, right = [*line("left 1"), *line("left 2", y=130)], [*line("right 1", x=500), *line("right 2", x=500, y=130)]
    assert read([*left, *right]) == "left 1\nleft 2\nright 1\nright 2"


def test_turned_lines_are_read_along_their_direction():
    up = [Word(text, Box(x, y - 60, x + 20, y), Mark.UP) for text, x, y in (("one", 100, 500), ("two", 100, 420),
                                                                       ("next", 140, 500))]  # fmt: skip
    assert read(up) == "one two\nnext"
    down = [Word(text, Box(x, y, x + 20, y + 60), Mark.DOWN) for text, x, y in (("one", 140, 100), ("two", 140, 180),
                                                                           ("next", 100, 100))]  # fmt: skip
    assert read(down) == "one two\nnext"


def test_vertical_writing_runs_down_and_its_columns_from_right_to_left():
    columns = [("세로쓰기", 300), ("다음 줄", 260)]
    words = [
        Word(char, Box(x, 100 + 22 * at, x + 20, 120 + 22 * at), Mark.LINE)
        for text, x in columns
        for at, char in enumerate(text)
        if char != " "
    ]
    assert read(words) == "세로쓰기\n다음 줄"


@given(
    st.lists(
        st.tuples(
            st.text("가나abc", min_size=1, max_size=4),
            st.integers(0, 900),
            st.integers(0, 1300),
            st.integers(0, 60),
            st.integers(0, 60),
            st.sampled_from([NO_MARK, Mark.LINE, Mark.DOWN, Mark.UP, Mark.HYPHEN]),
        ),
        max_size=12,
    )
)
def test_no_letter_is_lost_wherever_words_stand(found: list[tuple[str, int, int, int, int, Mark]]):
    words = [Word(text, Box(x, y, x + wide, y + high), marks) for text, x, y, wide, high, marks in found]
    assert sorted("".join(read(words).replace("-", "").split())) == sorted("".join(word.text for word in words))


# Soundness


@pytest.mark.parametrize("text", [PROSE, ENGLISH, "제 1 장", "12.5 % 3,400 ( 7 )", f"{PROSE} {ENGLISH}"])
def test_what_is_printed_is_believed(text: str):
    assert unsound(layer(line(text))) is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (line("".join(chr(0xE000 + ord(char) % 256) if char != " " else char for char in PROSE)), "have no meaning"),
        (line("\ufffd\ufffd\ufffd \ufffd\ufffd a"), "have no meaning"),
        (line("\x01\x02\x03 \x05\x06 \x07"), "have no meaning"),
        (line("(cid:12)(cid:13) (cid:14) (cid:99)"), "have no meaning"),
        (line(PROSE, marks=Mark.UNMAPPED), "have no meaning"),
        (line(PROSE, marks=Mark.NO_INK | Mark.INVISIBLE), "nothing is printed"),
        (line(PROSE, marks=Mark.INVISIBLE), "the reading of another program"),
        (line(PROSE.encode().decode("latin-1", "replace").replace("\x80", "")), "no meaning|accents|are broken"),
        (line("".join(chr((ord(char) - 0xAC00 + 5431) % 11172 + 0xAC00) if char >= "가" else " " for char in PROSE)),
         "in no Korean word|common"),
        (line("".join(chr((ord(char) - 97 + 11) % 26 + 97) if char.isalpha() else char for char in ENGLISH)),
         "of its Latin letters are common"),
    ],
)  # fmt: skip
def test_garbage_is_not_believed_and_says_why(words: list[Word], says: str):
    assert re.search(says, unsound(layer(words)) or "")


@pytest.mark.parametrize(
    "text",
    [
        "русские буквы на этой странице",
        "東京都は日本の首都であり世界でも有数の大都市として知られている人口は千四百万人",
        "中华人民共和国位于亚洲东部是世界上历史最悠久的国家之一首都北京",
    ],
)
def test_a_script_that_the_reader_lacks_speaks_for_a_layer(text: str):
    assert unsound(layer(line(text))) is None


def test_characters_of_a_wrong_map_are_not_those_of_a_language():
    drawn = "".join(chr(0x4E00 + 2087 * at % 20_900) for at in range(40))
    assert unsound(layer(line(drawn))) == (
        "only 32% of its Chinese characters are common ones, as of a wrong Unicode map"
    )


def test_text_that_lies_beyond_the_sheet_speaks_against_a_layer():
    assert unsound(layer(line("a few words"), outside=3)) == "25% of its characters lie outside of the page"
    assert unsound(layer(outside=30)) == "all of its text lies outside of the page"


def test_a_few_bullets_of_a_symbol_font_do_not_speak_against_a_layer():
    assert unsound(layer(line(f"\ue001 {PROSE} \ue002"))) is None
    assert unsound(layer(line("제목 " * 20), line("\ue001\ue002\ue003 \ue004", y=200))) is None


def test_one_odd_font_costs_only_its_characters_and_hidden_words_only_themselves():
    odd = line(f"정산한 금액 {nameless(0x33D6)}88.1{nameless(0x33D7)} 이다", y=200)
    cut = line("잘린 말", y=300, marks=Mark.NO_INK)
    page = layer(line(PROSE), odd, [*line("보이는 말", y=300), *cut])
    found = extract_texts(page, [region(at, 0, 90 + 100 * at, 50 * WIDTH, 130 + 100 * at) for at in range(4)])
    assert found.texts == {0: PROSE, 2: "보이는 말"}
    assert found.parts == {1: f"정산한 금액 {nameless(0x33D6)}88.1{nameless(0x33D7)} 이다", 3: ""}


# Regions


def test_each_word_goes_to_the_smallest_region_around_it():
    page = layer(line("outer words"), line("inner", x=300, y=300), line("elsewhere", x=700, y=900))
    regions = [region(0, 0, 0, 600, 600), region(1, 280, 280, 500, 340)]
    assert extract_texts(page, regions).texts == {0: "outer words", 1: "inner"}


def test_only_text_is_taken_and_only_where_the_words_are_all_that_is_printed():
    rows = {name: line(f"{name} of a page", y=100 * at) for at, name in enumerate(("text", "table", "formula", "half"))}
    page = layer(*rows.values(), line("a sum ∑ of signs", y=400), line("seal", y=500), line("\ue001a \ue002", y=600),
                 bare=(slice(32, 38), slice(10, 40)))  # fmt: skip
    tasks = {1: ("table", Task.TABLE), 2: ("display_formula", Task.FORMULA), 5: ("seal", Task.TEXT)}
    regions = [region(at, 50, 100 * at - 5, 950, 100 * at + 90, *tasks.get(at, ("text", Task.TEXT))) for at in range(8)]
    assert extract_texts(page, regions).texts == {0: "text of a page"}


def test_nothing_is_taken_of_an_unsound_layer_though_each_of_its_words_looks_sound():
    mapped_wrongly = "".join(chr((ord(char) - 97 + 11) % 26 + 97) if char.isalpha() else char for char in ENGLISH)
    for text, texts in ((ENGLISH, {0: ENGLISH}), (mapped_wrongly, {})):
        assert extract_texts(layer(line(text)), [region(0, 0, 0, 50 * WIDTH, HEIGHT)]).texts == texts


def test_a_line_of_the_body_one_of_another_size_and_the_one_with_most_digits_are_samples():
    lines = ["Installation guide", "a sentence of the body as long as any", "and one more", "12 300 450 won in 2024"]
    lines.append("c12 such that 1vul(x345 + s6789) = 1vul(x2345) of a formula and as long as two")
    page = layer(*(line(text, y=100 + 60 * at, size=40 if at == 0 else 20) for at, text in enumerate(lines)))
    found = extract_texts(page, [region(0, 0, 0, WIDTH, HEIGHT)], frozenset({"LATIN", "HANGUL"}))
    assert [sample.text for sample in found.samples] == [lines[1], lines[0], lines[3]]
    assert found.samples[0].box == (95, 155, page.words[10].box[2] + 5, 185)


@pytest.mark.parametrize(
    "words",
    [
        line("ελληνικά γράμματα"),
        line("( ) [ ] { } = = a"),
        line("a word", marks=Mark.UP),
        line("up to 1 ⁄4 inch"),
        [*line("مدارک ارائه تاريخ"), *line("1403/09/19", y=130)],
        [*line("one"), *line("two", x=400), *line("three", x=700)],
    ],
)
def test_what_the_reader_may_not_read_is_no_sample(words: list[Word]):
    found = extract_texts(layer(words), [region(0, 0, 0, WIDTH, HEIGHT)], frozenset({"LATIN", "GREEK"}))
    assert found.texts
    assert not found.samples


def test_rules_around_a_text_are_no_print_beside_it():
    page = replace(layer(line("a footer"), bare=(slice(9, 10), slice(0, 90))), rules=(Box(0, 90, 900, 99),))
    assert extract_texts(page, [region(0, 0, 80, WIDTH, 130)]).texts == {0: "a footer"}


def test_code_keeps_its_indents():
    page = layer(line("def one():"), line("return 1", x=140, y=130), line("apt", y=160, marks=Mark.HYPHEN))
    assert extract_texts(page, [region(0, 0, 0, 600, 600, "algorithm")]).texts == {
        0: "```\ndef one():\n    return 1\napt-\n```"
    }


# Comparison

BOXES = [(0, 90, 1000, 125), (0, 190, 1000, 225)]


def readings(*contents: str, label: str = "text") -> list[RegionText]:
    return [RegionText(index, label, content) for index, content in enumerate(contents)]


def test_a_reading_that_is_the_layer_has_no_distance_whatever_its_blanks_and_marks():
    page = layer(line("first words that were printed"), line("second line", y=200))
    found = compare(page, readings("**First** words,that were printed".lower(), "second\nline"), BOXES)
    assert (found.distance, found.outside, [doubt for doubt in found.doubts() if doubt.weight]) == (0.0, 0.0, [])


def test_the_distance_is_edits_to_the_longer_text_region_by_region():
    page = layer(line("abcdefghij klmnopqrst"), line("abcdefghij klmnopqrst", y=200))
    found = compare(page, readings("abcdefghij klmnopqrst", "abcdefghij klmnoXYZst"), BOXES)
    assert found.distance == pytest.approx(3 / 40)
    far = compare(page, readings("abcdefghij klmnopqrst", "something else that is read"), BOXES)
    assert any(doubt.weight == 1.0 and "differ from the text layer" in doubt.says for doubt in far.doubts())


def test_cells_of_a_table_may_stand_in_another_order_and_a_wrong_digit_counts():
    page = layer(line("1234 5678 9012 3456 7890 1234"))
    rows = ("<td>{}</td><td>5678</td>", "<td>9012</td><td>7890</td>", "<td>3456</td><td>1234</td>")
    html = f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
    assert compare(page, readings(html.format("1234"), label="table"), BOXES[:1]).distance == 0
    assert compare(page, readings(html.format("1235"), label="table"), BOXES[:1]).distance == pytest.approx(1 / 24)


def test_what_was_not_read_or_the_layer_does_not_hold_is_not_compared():
    page = layer(line("a line of enough letters and more"), bare=(slice(19, 23), slice(0, 100)))
    read = [
        RegionText(0, "text", "", State.FAILED, "no answer"),
        RegionText(1, "text", "read from a part that is a picture"),
    ]
    assert compare(page, read, BOXES).distance is None
    assert compare(page, [skipped(0, "header")], BOXES[:1]).distance is None


def test_text_that_lies_in_no_region_is_told():
    page = layer(line("a line of enough letters and more"), line("and a line in no region at all", y=600))
    found = compare(page, readings("a line of enough letters and more"), BOXES[:1])
    assert found.outside == pytest.approx(0.46, abs=0.03)
    assert any("in no region" in doubt.says and doubt.weight > 0.5 for doubt in found.doubts())


def test_numbers_that_differ_are_named():
    words = layer(line("△48,163 70,777 12.5 (3)"))
    whole = [(90, 90, 900, 130)]
    assert not compare(words, [RegionText(0, "table", "△48,163 70,777 12.5 (3)")], whole).numbers.lost
    found = compare(words, [RegionText(0, "table", "A48,163 10,777 12.5 (3)")], whole)
    assert [doubt.says for doubt in found.doubts() if "numbers" in doubt.says] == [
        "numbers or signs of the text layer of its PDF did not come out: △48,163, 70,777",
        "numbers or signs came out that the text layer of its PDF does not have: 48,163, 10,777",
    ]


def test_a_number_that_came_out_nowhere_on_the_page_is_named_wherever_it_stands():
    page = layer(line("a line of enough letters"), line("in a picture 48,163", y=300), line("beside it 1.5 77", y=600))
    boxes = [*BOXES[:1], (90, 290, 900, 330)]
    read = [*readings("a line of enough letters"), skipped(1, "image")]
    [lost] = compare(page, read, boxes).numbers.doubts()
    assert lost.says.endswith("did not come out: 1.5, 77, 48,163")
    elsewhere = replace(read[0], content="a line of enough letters 48,163 77 1.5")
    assert not compare(page, [elsewhere, read[1]], boxes).numbers.lost


def test_numbers_read_where_a_page_of_letters_has_none_are_guesses():
    page = layer(line("a line of enough letters and more of them"))
    read = [*readings("a line of enough letters and more of them", "1누니 K"), skipped(2, "image")]
    boxes = [*BOXES, (90, 290, 900, 330)]
    [guess] = compare(page, read, boxes).numbers.doubts()
    assert guess.says.endswith("does not have: 1")
    read[1] = replace(read[1], origin=TextOrigin.PERSON)
    assert not list(compare(page, read, boxes).numbers.doubts())
    stamp = layer(line("전자문서 접수 2024"))
    scan = readings("전자문서 접수 2024", "a page of 12 lines whose picture was scanned")
    assert not list(compare(stamp, scan, BOXES).numbers.doubts())


def test_signs_that_stand_alone_are_compared_too():
    words, whole = layer(line("주차장 ○ △ 5건")), [(90, 90, 900, 130)]
    assert not list(compare(words, [RegionText(0, "table", "주차장 ○ △ 5건")], whole).numbers.doubts())
    [lost] = compare(words, [RegionText(0, "table", "주차장 O A 5건")], whole).numbers.doubts()
    assert lost.says.endswith("did not come out: ○, △")


def test_the_layer_of_another_page_than_was_drawn_is_refused():
    drawn, other = (layer(line(text)).to_json() for text in ("drawn", "other"))
    layers = StoredLayers("a.arrow", "shard_00", [drawn])
    found = layers.layer("a_1", 0, layer_id(drawn))
    assert found is not None
    assert read(found.words) == "drawn"
    with pytest.raises(
        SourceError, match=r"^a.arrow: row 0 does not hold the text layer that raw_pages saw of 'a_1': "
    ):
        layers.layer("a_1", 0, layer_id(other))
