"""The second reader of figures: signs come from it, and a doubt names digits that differ."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from kopub.recognition.print_reader import OcrWord
from kopub.recognition.tesseract import figure_model, figures
from kopub.recognition.tesseract.figures import SecondReading, figure_runs, with_figure
from kopub.recognition.tesseract.reader import Reader
from kopub.recognition.tesseract.recognizer import TesseractRecognizer, tessdata_folder


def line(*texts: str) -> list[OcrWord]:
    return [OcrWord(text, 90, (20 * at, 0, 20 * at + 18, 30), False) for at, text in enumerate(texts)]


def second(first: str, text: str, certainty: float = 0.95) -> tuple[str, str | None]:
    words = line(*first.split())
    read, doubt = with_figure(words, (0, len(words)), SecondReading(text, [certainty] * len(text)))
    return "".join(word.text for word in read), doubt


def test_signs_are_those_of_the_second_reader_and_digits_that_differ_are_doubted():
    assert second("A48,163", "△48,163") == ("△48,163", None)
    assert second("448,163", "△48,163") == ("△48,163", None)
    assert second("70,777", "10,777") == ("10,777", "70,777 or 10,777")
    # A sign that is less sure than digits is believed where both know these, and no other reading.
    assert second("48,163", "△48,163", 0.5) == ("△48,163", None)
    assert second("48,163", "△48,168", 0.5) == ("48,163", None)
    assert second("USB3", "USB3") == ("USB3", None)
    # What both readers read alike is not read a third time.
    [word], _ = with_figure(line("7,579"), (0, 1), SecondReading("7,579", [0.7] * 5))
    assert word.confirmed
    assert second("/3834,025", "△834,025") == ("△834,025", None)
    # Without a sign, a digit more is no sign that was misread.
    assert second("448,163", "48,163") == ("48,163", "448,163 or 48,163")


def test_square_metres_are_known_by_their_raised_2_and_other_units_stay():
    assert second("76,9240", "76,924m2") == ("76,924㎡", None)
    assert second("76,924구 ", "76,924m3") == ("76,924㎥", None)
    assert second("76,924m", "76,924m") == ("76,924m", None)
    picture = np.full((40, 90), 255, np.uint8)
    picture[5:35, 10:30] = picture[15:35, 40:60] = 0
    assert not figures.has_raised_unit(picture)
    picture[5:15, 55:60] = 0
    assert figures.has_raised_unit(picture)
    assert second("84,239구", "84,239m2", 0.6) == ("84,239㎡", None), "both readers know these digits"
    assert second("348 건", "348") == ("348건", None)
    # Groups of digits have three.
    assert second("12,777", "12,7772") == ("12,777", None)


def test_a_sign_is_read_though_only_english_knows_the_digits():
    unsure = SecondReading("▲927,371", [0.99, *[1.0] * 5, 0.68, 1.0])
    assert with_figure(line("솔", "9027.371"), (0, 2), unsure) == (line("솔", "9027.371"), None)
    for english in ("927,371", "4927,371"):
        [word], doubt = figures.settle(line(english), unsure)
        assert (word.text, doubt) == ("▲927,371", None)


def test_a_word_whose_letters_look_like_figures_is_the_second_readers():
    def settled(first: str, text: str, certainty: float = 0.98) -> tuple[str, str | None]:
        read, doubt = figures.settle(line(first), SecondReading(text, [certainty] * len(text)))
        return "".join(word.text for word in read), doubt

    assert settled("1386", "i386") == ("i386", None)
    assert settled("1386", "i386", 0.9) == ("1386", "1386 or i386")
    assert settled("1,386", "1,88G") == ("1,386", "1,386 or 1,88G")
    assert settled("10", "1O") == ("10", "10 or 1O"), "a figure does not become a word"
    assert settled("제2장", "7", 0.6) == ("제2장", None), "an unsure reading is no second opinion"


def test_hangul_stays_outside_of_what_is_read_again():
    assert figure_runs(line("총", "사업비", "는", "1,738", "명")) == [(3, 4)]
    assert figure_runs(line("소", "48,163")) == [(0, 2)]
    assert figure_runs(line("가로등", "정비")) == []
    assert figure_runs(line("7=4+3")) == figure_runs(line("1+2")) == []
    # 88 was read as syllables that Tesseract itself does not believe.
    assert figure_runs([OcrWord("두터", 12, (0, 0, 40, 30), False)]) == [(0, 1)]


def test_tables_read_without_the_model_are_not_called_equal(monkeypatch: pytest.MonkeyPatch):
    engine = TesseractRecognizer()
    monkeypatch.setattr(figure_model, "model", lambda: None)
    # Nothing is read again for want of it, and all is once it is there.
    assert engine.weights().keys() == {"tesserocr", "kor", "eng"}
    [advice] = engine.advises()
    assert advice.endswith(": pip install 'kopub[figures]'")


def test_a_printed_sign_is_read(tmp_path: Path):
    if figure_model.model() is None:
        pytest.skip("the extra figures is not installed")
    import cv2

    page = np.full((80, 500), 255, np.uint8)
    cv2.putText(page, "48,163", (140, 55), cv2.FONT_HERSHEY_SIMPLEX, 1.2, 0, 2, cv2.LINE_AA)
    cv2.polylines(page, [np.array([[98, 56], [118, 24], [138, 56]], np.int32)], True, 0, 2, cv2.LINE_AA)
    reader = Reader(tessdata_folder())
    assert reader.block(page).text == "△48,163"
    reader.close()


FORKED = """
import os, signal, sys
import numpy as np
from kopub.recognition.tesseract import figure_model
figure_model.FigureModel(figure_model.model()).read(np.full((40, 90), 255, np.uint8))
child = os.fork()
if child == 0:
    signal.alarm(5)
    sys.exit(0)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_process_forked_after_a_reading_ends():
    if figure_model.model() is None:
        pytest.skip("the extra figures is not installed")
    subprocess.run([sys.executable, "-c", FORKED], check=True)
