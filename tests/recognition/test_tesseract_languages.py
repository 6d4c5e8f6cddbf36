"""Pages in other languages than Korean: what reads them, what is missing, and which scripts look right."""

from pathlib import Path

import pytest
from PIL import ImageFont

from resources.config.settings import Settings
from resources.errors import ConfigError
from resources.layout.regions import Region, Task
from resources.recognition.tesseract.recognizer import TesseractRecognizer
from resources.recognition.tesseract.tessdata import data_files, install, scripts_of
from resources.texts.text_quality import DOUBTFUL, doubts, total
from tests.support.sources.drawn import Sheet

FONT = Path("/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc")
JAPANESE = "すべてのページは一つの状態で終わります。東京の図書館で資料を調べました。"
KOREAN = "화면 밝기를 조절하려면 시스템 메뉴를 누르고 막대를 원하는 자리로 끕니다."
needs_english = pytest.mark.skipif(
    None in data_files(["eng"]).values(), reason=f"no English data for Tesseract: {install(['eng'])}"
)
needs_japanese = pytest.mark.skipif(
    None in data_files(["jpn"]).values(), reason=f"no Japanese data for Tesseract: {install(['jpn'])}"
)
needs_font = pytest.mark.skipif(not FONT.exists(), reason=f"no {FONT}: apt-get install fonts-noto-cjk")


def read(sheet: Sheet, *languages: str) -> str:
    region = Region(0, "text", Task.TEXT, 1.0, (90.0, 90.0, 1200.0, 230.0))
    engine = TesseractRecognizer(languages=list(languages), threads=1)
    (reading,) = engine.read([(sheet.page(), [region])])
    return reading.regions[0].content


@needs_english
def test_an_english_page_needs_english_data_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (english,) = data_files(["eng"]).values()
    assert english is not None
    (tmp_path / "eng.traineddata").symlink_to(english)
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    sheet = Sheet()
    sheet.text(100, 100, "Every page ends in one state,", 40)
    sheet.text(100, 170, "and 1,024 pages in 1,024 states.", 40)
    assert read(sheet, "eng") == "Every page ends in one state,\nand 1,024 pages in 1,024 states."
    assert TesseractRecognizer(languages=["eng"]).lacks() == []
    assert set(TesseractRecognizer(languages=["eng"]).weights()) == {"tesserocr", "eng"}


@needs_japanese
@needs_font
def test_a_japanese_line_is_read():
    sheet = Sheet()
    sheet.draw.text((100, 120), JAPANESE[:20], 0, ImageFont.truetype(str(FONT), 40))
    assert read(sheet, "jpn") == JAPANESE[:20]


@pytest.mark.parametrize(
    ("languages", "packages"),
    [(["jpn"], "tesseract-ocr-jpn"), (["chi_sim", "eng"], "tesseract-ocr-chi-sim tesseract-ocr-eng")],
)
def test_the_package_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, languages: list[str], packages: str
):
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    (line,) = TesseractRecognizer(languages=languages).lacks()
    assert line.startswith(f"Tesseract has no {' and '.join(languages)} data: apt-get install {packages} (Debian")


def test_a_name_that_is_near_one_is_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    (line,) = TesseractRecognizer(languages=["jpm"]).lacks()
    assert line.startswith("Tesseract has no jpm data; did you mean jpn?: apt-get install")


@pytest.mark.parametrize(
    ("languages", "line"), [(["../x"], "no name of Tesseract's data"), ([], "recognition.languages")]
)
def test_what_is_no_language_is_one_line(tmp_path: Path, languages: list[str], line: str):
    profile = {
        "layout": {"engine": "cpu"},
        "recognition": {"engine": "tesseract", "languages": languages},
        "embedding": {"engine": "hashed"},
    }
    with pytest.raises(ConfigError, match=line):
        Settings.of(tmp_path, profile)


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
