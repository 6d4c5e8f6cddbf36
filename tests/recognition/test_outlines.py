"""Regions with an outline: what lies in the box and outside of the outline is not read."""

import numpy as np
import pytest

from kopub_assets.ocr_results import OcrResults
from resources.layout.regions import Region, Task
from resources.recognition.crops import region_pixels
from resources.recognition.tesseract.recognizer import TesseractRecognizer
from resources.recognition.tesseract.tessdata import data_files, install
from tests.support.harness import Platform
from tests.support.sources.corpora import pages
from tests.support.sources.drawn import Sheet

needs_data = pytest.mark.skipif(None in data_files().values(), reason=f"no Tesseract data: {install()}")
BOX = (80.0, 80.0, 1100.0, 400.0)
ANGLE = ((80.0, 80.0), (1100.0, 80.0), (1100.0, 180.0), (560.0, 180.0), (560.0, 400.0), (80.0, 400.0))
"""A column with a heading over two: the second column is in the box, and another region's."""


def region(polygon: tuple[tuple[float, float], ...] | None) -> Region:
    return Region(0, "text", Task.TEXT, 1.0, BOX, polygon)


@needs_data
@pytest.mark.parametrize(("polygon", "sees_both"), [(None, True), (ANGLE, False)])
def test_a_region_is_read_without_what_its_outline_leaves_out(polygon, sees_both: bool):
    sheet = Sheet()
    sheet.text(100, 100, "One heading over two columns of a page", 44)
    sheet.text(100, 250, "first column", 44)
    sheet.text(650, 250, "second column", 44)
    (reading,) = TesseractRecognizer(threads=1).read([(sheet.page(), [region(polygon)])])
    content = reading.regions[0].content
    assert "heading" in content
    assert "first column" in content
    assert ("second" in content) is sees_both


@pytest.mark.parametrize("shape", [(500, 1200), (500, 1200, 3)])
def test_pixels_outside_of_an_outline_are_paper(shape: tuple[int, ...]):
    page = np.full(shape, 230, np.uint8)
    page[240:300, 650:900] = 10
    cut = region_pixels(page, region(ANGLE))
    assert (cut == 230).all()
    assert (page == 10).any()
    whole = region_pixels(page, region(((80.0, 80.0), (1100.0, 80.0), (1100.0, 400.0), (80.0, 400.0))))
    assert np.shares_memory(whole, page)


def test_an_outline_cuts_no_letter_that_its_coarse_grid_touches():
    page = np.full((2000, 1400), 255, np.uint8)
    page[80:400, 551:569] = 0
    kept = region_pixels(page, region(ANGLE))
    assert (kept[110:, 551 - 80 : 569 - 80] == 0).all()


def test_only_layouts_with_outlines_have_the_step_in_their_recipe(tmp_path):
    resources = Platform.of(tmp_path, [pages("a_1")]).resources()
    before = OcrResults(resources)
    assert "outlines" not in before.made_with

    class Outlined:
        polygons = True

    outlined = OcrResults({**resources, "layout": Outlined()})
    assert outlined.own_recipe != before.own_recipe
    assert "outlines" in outlined.made_with
