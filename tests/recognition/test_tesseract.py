"""Reading with Tesseract: words of two languages, tables by cells, and regions that fail."""

import io
import time
import unicodedata
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageFont
from rapidfuzz.distance import Levenshtein

from kopub.boxes import Box
from kopub.config.settings import Settings
from kopub.errors import ConfigError, EngineError
from kopub.folders import SAMPLES
from kopub.layout.cpu.engine import CpuLayout
from kopub.layout.grid import RuledCell, table_html
from kopub.layout.lines import find_rules
from kopub.layout.open_tables import open_cells
from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition.print_reader import OcrWord, PrintedText, PrintReader, find_cells, find_rows
from kopub.recognition.regions import PageReading, RegionText
from kopub.recognition.tesseract import figure_model, reader
from kopub.recognition.tesseract.leaders import find_leaders
from kopub.recognition.tesseract.recognizer import TesseractRecognizer, data_files, install, scripts_of, tessdata_folder
from kopub.recognition.tesseract.words import (
    english_is_better,
    is_latin_word,
    join_words,
    run_span,
    uncertain_runs,
    unsure_words,
)
from kopub.states import State
from kopub.texts.markdown import page_text
from kopub.texts.text_quality import DOUBTFUL, doubts, total
from tests.support.cpu_engines import CPU
from tests.support.sample_home import sample
from tests.support.sources.drawn import PROSE, Sheet

FONT = Path("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc")
needs_data = pytest.mark.skipif(None in data_files().values(), reason=f"no Tesseract data: {install()}")
needs_font = pytest.mark.skipif(not FONT.exists(), reason=f"no {FONT}: apt-get install fonts-noto-cjk")


def region(index: int, box: tuple[float, float, float, float], label: str = "text", task: Task = Task.TEXT) -> Region:
    return Region(index, label, task, 1.0, box)


def read(sheet: Sheet, *regions: Region) -> PageReading:
    (reading,) = TesseractRecognizer(threads=1).read([(sheet.page(), regions)])
    return reading


def words(*parts: tuple[str, float]) -> list[OcrWord]:
    """Return a line's words, 40 pixels a letter; a leading blank means space before."""
    line: list[OcrWord] = []
    x = 0
    for text, confidence in parts:
        x += 20 * text.startswith(" ")
        letters = text.strip()
        line.append(OcrWord(letters, confidence, (x, 0, x + 40 * len(letters), 40), text.startswith(" ")))
        x += 40 * len(letters)
    return line


@needs_data
def test_lines_are_read_as_printed() -> None:
    sheet = Sheet()
    sheet.text(100, 100, "Every page ends in one state,", 40)
    sheet.text(100, 170, "and 1,024 pages in 1,024 states.", 40)
    reading = read(sheet, region(0, (90.0, 90.0, 900.0, 230.0)))
    assert reading.state is State.OK
    assert reading.regions[0].content == "Every page ends in one state,\nand 1,024 pages in 1,024 states."


@needs_data
def test_lines_beside_each_other_that_are_not_level_are_read_one_by_one() -> None:
    sheet = Sheet()
    sheet.text(100, 119, "Lucy Park", 30)
    sheet.text(700, 100, "Jungang-ro 338, Gyeonggi", 30)
    sheet.text(700, 135, "Sanghyeon-dong, Suji-gu", 30)
    reading = read(sheet, region(0, (90.0, 90.0, 1200.0, 180.0)))
    assert reading.regions[0].content == "Lucy Park\nJungang-ro 338, Gyeonggi\nSanghyeon-dong, Suji-gu"


@needs_data
def test_a_ruled_table_becomes_html_with_its_cells() -> None:
    sheet = Sheet()
    sheet.grid([100, 400, 700], [100, 180, 260, 340])
    sheet.draw.rectangle((398, 104, 402, 176), fill=255)
    cells = [(120, 115, "Machines"), (120, 195, "Debian"), (420, 195, "amd64"), (120, 275, "Fedora"), (420, 275, "Q&A")]
    for x, y, text in cells:
        sheet.text(x, y, text, 40)
    reading = read(sheet, region(0, (95.0, 95.0, 705.0, 345.0), "table", Task.TABLE))
    assert reading.regions[0].content == (
        '<table><tr><td colspan="2">Machines</td></tr><tr><td>Debian</td><td>amd64</td></tr>'
        "<tr><td>Fedora</td><td>Q&amp;A</td></tr></table>"
    )


@needs_data
def test_a_table_without_upright_rules_is_found_and_read_cell_by_cell() -> None:
    sheet = Sheet()
    sheet.paragraph(150, 300, 940, 4)
    rows = [("Road", "1,204", "35.2", "open"), ("Bridge", "88,310", "7.9", "late"), ("School", "640", "81.5", "open")]
    for at, row in enumerate(rows):
        # A band behind every other row keeps nothing apart.
        sheet.draw.rectangle((150, 600 + 60 * at, 950, 640 + 60 * at), fill=238 if at % 2 else 255)
        for x, cell in zip((160, 400, 600, 800), row, strict=True):
            sheet.text(x, 606 + 60 * at, cell, 26)
    sheet.paragraph(150, 900, 940, 4)
    (layout,) = CpuLayout(threads=1).detect([sheet.page()])
    assert [each.label for each in layout.regions] == ["text", "table", "text"]
    table = read(sheet, *layout.regions).regions[1].content
    assert table == table_html(
        [RuledCell(row, column, 1, 1, Box(0, 0, 1, 1)) for row in range(3) for column in range(4)],
        [cell for row in rows for cell in row],
    )


def open_table(sheet: Sheet, top: int, *rows: Sequence[str], at: Sequence[int] = (160, 500, 800)) -> RegionText:
    """Draw rows without rules, and return the reading of the table that they are."""
    for number, row in enumerate(rows):
        for x, cell in zip(at, row, strict=True):
            sheet.text(x, top + 50 * number, cell, 26)
    (layout,) = CpuLayout(threads=1).detect([sheet.page()])
    [table] = [each for each in read(sheet, *layout.regions).regions if each.native_label == "table"]
    return table


@needs_data
def test_one_row_below_the_heading_of_a_table_is_its_rest_from_the_page_before() -> None:
    sheet = Sheet()
    sheet.draw.line((150, 137, 1000, 137), 0, 3)
    rows = ("Work", "Cost", "Change"), ("Road repair", "1,204", "-")
    table = open_table(sheet, 100, *rows)
    cells = [RuledCell(row, column, 1, 1, Box(0, 0, 1, 1)) for row in range(2) for column in range(3)]
    # A dash alone is read, too.
    assert table.content == table_html(cells, [*rows[0], *rows[1]])
    assert table.reason is None


@needs_data
def test_figures_unlike_their_column_and_of_columns_that_may_be_one_are_doubted() -> None:
    rows = [("Road", "1,204", "12"), ("Bridge", "8,310", "45"), ("School", "1.309", "33"), ("Park", "6115", "21")]
    odd = open_table(Sheet(), 300, ("Work", "Cost", "Number"), *rows)
    assert str(odd.reason) == "figures are read in two ways: 1.309 or 1,309; 6115 or 6,115"
    near = open_table(Sheet(), 300, ("Work", "Cost", "", ""), *[(*row, "96") for row in rows], at=(160, 500, 900, 945))
    assert near.reason is not None
    assert "45 96 or 45; 96" in str(near.reason)


@needs_data
@needs_font
def test_units_that_the_column_has_nowhere_else_are_doubted() -> None:
    sheet = Sheet()
    shares = ["Share", "12.5%", "33.1%", "84.2구", "71.9%", "40.6%", "15", "8.4%"]
    for at, share in enumerate(shares):
        for x, cell in ((160, "Road"), (500, "27대" if at == 5 else f"{at}2명"), (800, share)):
            sheet.draw.text((x, 300 + 60 * at), cell, 0, ImageFont.truetype(str(FONT), 26))
    (layout,) = CpuLayout(threads=1).detect([sheet.page()])
    ways = "27대 or 27명; 84.2구 or 84.2%; 15 or 15%"
    assert str(read(sheet, *layout.regions).regions[0].reason) == f"figures are read in two ways: {ways}"


def test_a_unit_that_the_reader_is_unsure_of_and_its_column_has_nowhere_else_is_doubted() -> None:
    cells = [("Work", 95), ("Number", 95), ("Road", 95), ("12명", 80), ("Park", 95), ("954명", 95)]
    readings = iter([*cells, ("Bus", 95), ("131컨", 80), ("Lake", 95), ("6건", 95)])

    class Scripted(PrintReader):
        name, unsure = "scripted", 60.0

        def close(self) -> None: ...

        def block(self, gray: np.ndarray) -> PrintedText:
            text, confidence = next(readings)
            return PrintedText(text, [OcrWord(text, confidence, (0, 0, 9, 9), False)])

    sheet = Sheet()
    sheet.grid([100, 400, 700], [100, 180, 260, 340, 420, 500])
    table = Scripted().table(sheet.page().image[95:505, 95:705, 0], 1)
    assert table.doubted == ["131컨 or 131명"]


def test_rules_are_found_in_a_tinted_heading_and_letters_are_none() -> None:
    contrast = np.zeros((300, 400), np.uint8)
    contrast[20:70, 20:380] = 30
    for x in (20, 200, 379):
        contrast[20:280, x - 1 : x + 1] = 180
    # A row of blurred letters, and a stroke that the edge cuts off.
    contrast[150:152, 40:160] = np.where(np.arange(120) % 12 < 9, 160, 14)
    contrast[0:24, 300:302] = 180
    rules = find_rules(contrast, 20)
    assert [(rule.x1, rule.y2) for rule in rules.vertical] == [(19, 281), (199, 281), (378, 281)]
    assert rules.horizontal == ()


def test_a_dotted_leader_is_counted_and_not_read() -> None:
    sheet = Sheet()
    sheet.text(100, 100, "Contents", 40)
    for dot in range(20):
        sheet.draw.ellipse((320 + 20 * dot, 135, 325 + 20 * dot, 140), fill=0)
    sheet.text(760, 100, "17", 40)
    reading = read(sheet, region(0, (90.0, 90.0, 900.0, 160.0)))
    assert reading.regions[0].content == f"Contents {' '.join('.' * 20)} 17"


@needs_data
def test_a_row_of_dots_alone_stays_between_its_neighbours() -> None:
    sheet = Sheet()
    sheet.text(100, 100, "Name of person", 40)
    for dot in range(20):
        sheet.draw.ellipse((120 + 20 * dot, 205, 125 + 20 * dot, 210), fill=0)
    sheet.text(100, 250, "Date of birth", 40)
    reading = read(sheet, region(0, (90.0, 90.0, 900.0, 310.0)))
    assert reading.regions[0].content == f"Name of person\n{' '.join('.' * 20)}\nDate of birth"


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize(("page_id", "most"), [("install.ko_98", 0.05), ("faq-basic_1", 0.05), ("lshort-ko_57", 0.12)])
def test_a_korean_page_with_english_words(page_id: str, most: float) -> None:
    page = Page(*sample(page_id))
    (layout,) = CpuLayout(threads=1).detect([page])
    (reading,) = TesseractRecognizer(threads=1).read([(page, layout.regions)])
    text, truth = (
        "".join(unicodedata.normalize("NFC", t).split()) for t in (page_text(reading.regions), printed(page_id))
    )
    assert [text.index for text in reading.regions] == [region.index for region in layout.regions]
    assert Levenshtein.distance(text, truth) / len(truth) <= most


def printed(page_id: str) -> str:
    """Return the text of a page as its corpus has it: the gold also has what no reader without formulas can read."""
    files = (pa.ipc.open_stream(pa.memory_map(str(path))).read_all() for path in (SAMPLES / "corpus").glob("*.arrow"))
    return next(row["text"] for file in files for row in file.to_pylist() if row["id"] == page_id)


@needs_data
def test_a_word_does_not_reach_into_other_lines() -> None:
    """Otherwise the crop read again in English holds two lines, and Tesseract reads neither."""
    page = np.asarray(Image.open(io.BytesIO(sample("lshort-ko_57")[1])).convert("L"))
    paragraph = page[2960:3086, 354:1890]
    (korean, _) = data_files().values()
    assert korean is not None
    engines = reader.Reader(str(korean.parent))
    rows = find_rows(paragraph)
    for word in engines.block(paragraph).words:
        assert len([row for row in rows if word.box[1] < row.y2 and word.box[3] > row.y1]) == 1
    engines.close()


@needs_data
def test_pictures_are_cut_out_and_not_read() -> None:
    sheet = Sheet()
    sheet.picture(100, 100, 300, 200)
    reading = read(
        sheet,
        region(3, (99.5, 100.0, 400.2, 300.0), "image", Task.SKIP),
        region(4, (0.0, 0.0, 9.0, 9.0), "header", Task.ABANDON),
    )
    (crop,) = reading.crops
    assert (crop.path, crop.label, crop.bbox) == ("crops/page_3.jpg", "image", (99.5, 100.0, 400.2, 300.0))
    with Image.open(io.BytesIO(crop.data)) as picture:
        assert (picture.format, picture.size) == ("JPEG", (302, 200))
        assert np.abs(np.asarray(picture.convert("L"), float)[100, 150] - sheet.image.getpixel((249, 200))) < 6
    assert [(text.content, text.finish_reason) for text in reading.regions] == [("", "skipped")] * 2


@needs_data
@pytest.mark.parametrize("turned", [False, True])
def test_a_page_that_tesseract_is_unsure_of_says_so(turned: bool) -> None:
    sheet = Sheet()
    sheet.paragraph(100, 100, 900, 6, 40)
    if turned:
        sheet.image = sheet.image.rotate(180)
    (layout,) = CpuLayout(threads=1).detect([sheet.page()])
    (text,) = read(sheet, *layout.regions).regions
    assert text.state is State.OK
    assert bool(text.reason) is turned
    assert ("% sure of these words" in (text.reason or "")) is turned


@needs_data
def test_a_region_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: reader.Reader, gray: np.ndarray, scale: float) -> str:
        raise RuntimeError("Tesseract refused the image")

    monkeypatch.setattr(reader.Reader, "table", refuse)
    sheet = Sheet()
    sheet.text(100, 100, "Still here", 40)
    table, text = region(0, (0.0, 300.0, 99.0, 400.0), "table", Task.TABLE), region(1, (90.0, 90.0, 500.0, 160.0))
    reading = read(sheet, table, text)
    assert reading.state is State.PARTIAL
    assert reading.reason == "1 of 2 regions failed; region 0 (table): Tesseract refused the image"
    assert [text.state for text in reading.regions] == [State.FAILED, State.OK]
    assert reading.regions[1].content == "Still here"


@needs_data
def test_a_page_that_takes_too_long_fails_and_the_next_is_read() -> None:
    sheet = Sheet()
    sheet.text(100, 100, "Still here", 40)
    box = region(0, (90.0, 90.0, 500.0, 160.0))
    for seconds, state in ((1e-6, State.FAILED), (60, State.OK)):
        (reading,) = TesseractRecognizer(threads=1, page_seconds=seconds).read([(sheet.page(), [box])])
        assert reading.state is state
        assert ("recognition.page_seconds" in (reading.reason or "")) is (state is State.FAILED)


@needs_data
def test_the_limit_of_a_page_counts_the_time_of_the_processor_and_not_of_a_busy_machine() -> None:
    sheet = Sheet()
    sheet.text(100, 100, "Still here", 40)
    slow = reader.Reader(tessdata_folder())
    slow.limit(1.0)
    time.sleep(1.1)
    assert slow.block(np.asarray(sheet.image)[90:160, 90:500]).text == "Still here"
    slow.close()


@needs_data
def test_a_page_that_cannot_be_decoded_is_quarantined_and_the_others_come_out() -> None:
    sheet = Sheet()
    sheet.text(100, 100, "Still here", 40)
    box = region(0, (90.0, 90.0, 500.0, 160.0))
    pages: Sequence[tuple[Page, list[Region]]] = [(Page("bad", b"no image"), [box]), (sheet.page("good"), [box])]
    found = {reading.page_id: reading for reading in TesseractRecognizer(threads=2).read(pages)}
    assert {page_id: reading.state for page_id, reading in found.items()} == {
        "bad": State.QUARANTINED,
        "good": State.OK,
    }
    assert found["good"].regions[0].content == "Still here"


def test_missing_data_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    recognizer = TesseractRecognizer()
    assert recognizer.weights()["kor"] == recognizer.weights()["eng"] == "missing"
    with pytest.raises(EngineError, match="no kor, eng data: apt-get install tesseract-ocr-kor tesseract-ocr-eng"):
        next(recognizer.read([]))
    (tmp_path / "tessdata").mkdir()
    (tmp_path / "tessdata" / "kor.traineddata").write_bytes(b"data")
    assert recognizer.weights()["kor"] != "missing"
    with pytest.raises(EngineError, match="no eng data"):
        next(recognizer.read([]))


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ((("데비안", 97), (" 641", 55), ("/", 90), ("리눅스", 93), (" 년", 91)), [(1, 3)]),
        ((("8109", 88), (" 설정", 93), (" 2024", 93), ("년", 91), (" ㆍ", 93)), [(0, 1), (2, 3)]),
        ((("6001", 20), ("를", 10), (" 시작", 93)), [(0, 1)]),
        ((("6001", 20), ("다", 10), (" 시작", 93)), [(0, 2)]),
        ((("17015", 30), (" 18", 93), (" 2", 90), (" 07001", 10), (" 입니다", 97)), [(0, 4)]),
        ((("41", 40), ("타", 65), ("2", 90)), [(0, 3)]),
        ((("41", 40), ("타", 95), ("2", 90)), [(0, 1), (2, 3)]),
        ((("641", 30), (" . . .", 100), (" 17", 90)), [(0, 1), (2, 3)]),
    ],
    ids=[
        "digits for Latin but not Hangul",
        "a sure number by itself",
        "without a particle that is glued to it",
        "with a syllable that is no particle",
        "a number between Latin words",
        "with an unsure syllable inside it",
        "without a sure syllable inside it",
        "no leader",
    ],
)
def test_what_may_be_latin_read_as_digits_is_doubted(
    line: Sequence[tuple[str, float]], runs: list[tuple[int, int]]
) -> None:
    assert uncertain_runs(words(*line)) == runs


@pytest.mark.parametrize(
    ("line", "unsure"),
    [
        ((("지", 56), ("18", 17), ("입", 92), ("니다.", 97)), [(0, 2)]),
        ((("에", 39), ("키", 67), ("09", 92), (" 를", 97)), [(0, 3)]),
        ((("애", 84), ("42565005", 0), (" 및", 93)), [(0, 2)]),
        ((("설정", 93), (" 아", 48)), [(1, 2)]),
        ((("데이", 93), ("터", 60)), []),
        ((("저음", 53), (" 으로", 97)), []),
        ((("제", 93), ("12", 50), ("조", 93)), []),
    ],
)
def test_what_has_unsure_hangul_may_be_latin_as_a_whole(
    line: Sequence[tuple[str, float]], unsure: list[tuple[int, int]]
) -> None:
    assert unsure_words(words(*line)) == unsure


def test_only_sure_latin_replaces_hangul() -> None:
    korean = words(("지", 56), ("18", 17))
    assert is_latin_word(korean, words(("NTFS", 95)))
    assert not is_latin_word(korean, words(("NTFS", 90)))
    assert not is_latin_word(korean, words(("fontspec", 97), (" 4", 60)))
    assert not is_latin_word(korean, words(("=", 96)))
    assert not is_latin_word(korean, words())


@pytest.mark.parametrize(
    ("korean", "english", "believed"),
    [
        (("058", 70), ("USB", 92), True),
        (("ㅠ6", 84), ("x", 5), False),
        (("0ㅠ", 20), ("|?", 5), True),
        (("폴", 10), ("=", 92), False),
        (("폴더", 10), ("Zc", 30), False),
        (("뺘", 10), ("Latin", 92), True),
        (("058", 70), ("", 0), False),
        (("8109", 88), ("BIOS", 97), True),
        (("2009", 93), ("2oo9", 92), False),
        (("0", 85), ("go", 90), False),
        (("2024", 93), ("2024", 97), False),
    ],
)
def test_english_is_believed_where_korean_has_no_hangul(
    korean: tuple[str, float], english: tuple[str, float], believed: bool
) -> None:
    assert english_is_better(words(korean), words(english) if english[0] else []) is believed


def test_the_end_of_a_run_is_counted_off_in_syllables() -> None:
    # The engine's box of "1100" reaches into the two syllables that are glued to it.
    line = [
        *words(("시스템", 97)),
        OcrWord("1100", 30, (140, 0, 290, 40), True),
        OcrWord("에서", 93, (270, 0, 330, 40), False),
    ]
    assert run_span(line, (1, 2), [(0, 0), (120, 140), (246, 250), (330, 400)]) == (140, 246)


def test_words_are_joined_with_the_blanks_that_were_printed() -> None:
    assert join_words(words(("설", 90), ("치", 90), (" USB", 90), ("를", 90))) == "설치 USB를"


def test_rows_of_a_block_keep_their_dots_and_accents() -> None:
    block = np.full((200, 300), 255, np.uint8)
    for top in (20, 80, 140):
        block[top : top + 30, 40:240] = 0
        block[top - 6 : top - 2, 60:64] = 0
    assert [(row.x1, row.y1, row.x2, row.y2) for row in find_rows(block)] == [
        (40, top - 6, 240, top + 30) for top in (20, 80, 140)
    ]


def test_the_parts_of_a_lone_syllable_are_one_row() -> None:
    block = np.full((80, 80), 255, np.uint8)
    for top, height in ((20, 16), (39, 4), (46, 12)):
        block[top : top + height, 20:56] = 0
    assert find_rows(block) == [(20, 20, 56, 58)]


def test_narrow_lines_stay_apart() -> None:
    block = np.full((200, 120), 255, np.uint8)
    for top in (20, 80, 140):
        block[top : top + 40, 20:100] = 0
    assert [row.y1 for row in find_rows(block)] == [20, 80, 140]


def test_a_bullet_is_one_whatever_was_read_for_it() -> None:
    assert join_words(words(("ㆍ", 60), (" 항목", 90))) == "• 항목"
    assert join_words(words(("가", 90), ("ㆍ", 60), ("나", 90))) == "가ㆍ나"


def test_an_ellipsis_is_no_leader() -> None:
    block = np.full((40, 400), 255, np.uint8)
    for dot in range(3):
        block[30:35, 20 * dot + 10 : 20 * dot + 15] = 0
    assert find_leaders(block) == []


def test_cells_span_where_rules_are_missing_and_empty_cells_stay() -> None:
    sheet = Sheet(620, 320)
    sheet.grid([10, 210, 410, 610], [10, 110, 210, 310])
    sheet.draw.rectangle((14, 106, 206, 114), fill=255)
    cells = find_cells(np.asarray(sheet.image, np.uint8), 1.0)
    assert [(c.row, c.column, c.row_span, c.column_span) for c in cells] == [
        (0, 0, 2, 1), (0, 1, 1, 1), (0, 2, 1, 1), (1, 1, 1, 1), (1, 2, 1, 1), (2, 0, 1, 1), (2, 1, 1, 1), (2, 2, 1, 1),
    ]  # fmt: skip
    assert table_html(cells, [*"abcdefg", ""]) == (
        '<table><tr><td rowspan="2">a</td><td>b</td><td>c</td></tr><tr><td>d</td><td>e</td></tr>'
        "<tr><td>f</td><td>g</td><td></td></tr></table>"
    )


def test_prose_is_no_table() -> None:
    sheet = Sheet(1240, 300)
    sheet.text(20, 20, PROSE)
    assert len(find_cells(np.asarray(sheet.image, np.uint8), 1.0)) < 2


def test_two_words_are_one_column_and_a_heading_is_that_of_its_column() -> None:
    ink = np.zeros((300, 700), bool)
    # Words, as (left, right): labels of two words with the same blank, and headings beside their figures.
    rows = [[(0, 60), (190, 220), (232, 260), (420, 470)], *[[(0, 60), (72, 110), (330, 400), (600, 690)]] * 8]
    rows[3] = [(0, 40), (52, 90), (330, 400), (600, 690)]
    for at, row in enumerate(rows):
        for left, right in row:
            ink[30 * at + 5 : 30 * at + 25, left:right] = True
    cells = open_cells(ink, [], 20)
    assert [cell.column for cell in cells] == [0, 1, 2] * 9
    assert (cells[1].box.x1, cells[1].box.x2) == (125, 340)


JAPANESE = "すべてのページは一つの状態で終わります。東京の図書館で資料を調べました。"
KOREAN = "화면 밝기를 조절하려면 시스템 메뉴를 누르고 막대를 원하는 자리로 끕니다."
needs_english = pytest.mark.skipif(
    None in data_files(["eng"]).values(), reason=f"no English data for Tesseract: {install(['eng'])}"
)
needs_japanese = pytest.mark.skipif(
    None in data_files(["jpn"]).values(), reason=f"no Japanese data for Tesseract: {install(['jpn'])}"
)


def read_in(sheet: Sheet, *languages: str) -> str:
    region = Region(0, "text", Task.TEXT, 1.0, (90.0, 90.0, 1200.0, 230.0))
    engine = TesseractRecognizer(languages=list(languages), threads=1)
    (reading,) = engine.read([(sheet.page(), [region])])
    return reading.regions[0].content


@needs_data
@pytest.mark.parametrize("printed", ["OS", "info", "2026", "512", "19.8"])
def test_a_latin_word_is_read_where_the_korean_model_is_sure_of_a_number(printed: str):
    """It reads OS as 05 and info as 1010, with more confidence than real numbers."""
    sheet = Sheet()
    sheet.text(100, 120, printed, 40)
    assert read_in(sheet, "kor", "eng") == printed


@needs_english
def test_an_english_page_needs_english_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (english,) = data_files(["eng"]).values()
    assert english is not None
    (tmp_path / "eng.traineddata").symlink_to(english)
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    sheet = Sheet()
    sheet.text(100, 100, "Every page ends in one state,", 40)
    sheet.text(100, 170, "and 1,024 pages in 1,024 states.", 40)
    assert read_in(sheet, "eng") == "Every page ends in one state,\nand 1,024 pages in 1,024 states."
    assert TesseractRecognizer(languages=["eng"]).lacks() == []
    monkeypatch.setattr(figure_model, "model", lambda: None)
    assert set(TesseractRecognizer(languages=["eng"]).weights()) == {"tesserocr", "eng"}


@needs_japanese
@needs_font
def test_a_japanese_line_is_read():
    sheet = Sheet()
    sheet.draw.text((100, 120), JAPANESE[:20], 0, ImageFont.truetype(str(FONT), 40))
    assert read_in(sheet, "jpn") == JAPANESE[:20]


@pytest.mark.parametrize(
    ("languages", "packages"),
    [(["jpn"], "tesseract-ocr-jpn"), (["chi_sim", "eng"], "tesseract-ocr-chi-sim tesseract-ocr-eng")],
)
def test_the_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, languages: list[str], packages: str
):
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    (line,) = TesseractRecognizer(languages=languages).lacks()
    assert line.startswith(f"Tesseract has no {', '.join(languages)} data: apt-get install {packages} (Debian")


def test_a_name_that_is_near_one_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    (line,) = TesseractRecognizer(languages=["jpm"]).lacks()
    assert line.startswith("Tesseract has no jpm data; did you mean jpn?: apt-get install")


@pytest.mark.parametrize(
    ("languages", "line"), [(["../x"], "no name of Tesseract's data"), ([], "recognition.languages")]
)
def test_what_is_no_language_is_one_line(tmp_path: Path, languages: list[str], line: str):
    profile = CPU | {"recognition": {"engine": "tesseract", "languages": languages}}
    with pytest.raises(ConfigError, match=line):
        Settings.of(tmp_path, profile)


def test_a_script_that_is_not_read_names_its_languages_and_the_data_that_lack():
    said = TesseractRecognizer().remedy("CYRILLIC")
    assert said.startswith("add rus / ukr / bul to recognition.languages")
    assert ("apt-get install tesseract-ocr-rus" in said) is (data_files(["rus"])["rus"] is None)
    assert TesseractRecognizer(languages=["eng"]).remedy("HANGUL") == "add kor to recognition.languages"


def test_the_languages_are_part_of_the_recipe_and_decide_what_looks_right():
    japanese, korean = TesseractRecognizer(languages=["jpn", "eng"]), TesseractRecognizer()
    assert japanese.recipe()["parameters"]["languages"] == ["jpn", "eng"]
    assert "HIRAGANA" in japanese.expected_scripts
    assert korean.expected_scripts == {"HANGUL", "LATIN", "GREEK"}
    for text, scripts, sound in (
        (JAPANESE, korean.expected_scripts, False),
        (JAPANESE, japanese.expected_scripts, True),
        (KOREAN, korean.expected_scripts, True),
        (KOREAN, japanese.expected_scripts, False),
        ("我们在图书馆里查阅了很多资料，然后写了一份报告给老师看。", scripts_of(["chi_sim"]), True),
        ("我们在图书馆里查阅了很多资料，然后写了一份报告给老师看。", korean.expected_scripts, False),
        ("The screen can be made darker in the menu of the system.", scripts_of(["eng"]), True),
    ):
        assert (total(doubts(text, scripts=scripts)) < DOUBTFUL) is sound, (text, scripts)
