"""Page segmentation on the CPU: regions, reading order, and pages without regions."""

from importlib.metadata import version

import numpy as np
import pytest
from PIL import Image, ImageFilter

from kopub.layout.cpu.engine import CpuLayout
from kopub.layout.ink import BLANK_SHARE, even_light, ink_share
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.tesseract.recognizer import TesseractRecognizer, data_files, install
from kopub.states import State
from tests.support.sources.drawn import Sheet


def detect(sheet: Sheet) -> Layout:
    (layout,) = CpuLayout(threads=1).detect([sheet.page()])
    return layout


def labels(layout: Layout) -> list[str]:
    return [region.label for region in layout.regions]


def covers(region: Region, x: int, y: int) -> bool:
    x1, y1, x2, y2 = region.bbox
    return x1 <= x <= x2 and y1 <= y <= y2


def test_title_text_table_and_picture_are_told_apart() -> None:
    sheet = Sheet()
    sheet.text(150, 180, "State of the pages", 56)
    sheet.paragraph(150, 320, 940, 5)
    sheet.grid([150, 500, 850], [600, 660, 720, 780])
    sheet.text(170, 615, "Name")
    sheet.text(520, 615, "Size")
    sheet.picture(150, 900, 600, 300)
    sheet.paragraph(150, 1300, 940, 4)
    layout = detect(sheet)
    assert layout.state is State.OK
    assert labels(layout) == ["doc_title", "text", "table", "image", "text"]
    assert [region.task for region in layout.regions] == [Task.TEXT, Task.TEXT, Task.TABLE, Task.SKIP, Task.TEXT]
    assert [region.index for region in layout.regions] == [0, 1, 2, 3, 4]
    assert layout.regions[2].bbox == pytest.approx((150, 600, 850, 780), abs=6)
    assert layout.regions[3].bbox == pytest.approx((150, 900, 750, 1200), abs=16)


def test_boxes_are_in_pixels_of_the_full_page() -> None:
    sheet = Sheet(2480, 3508)
    sheet.paragraph(300, 700, 1800, 4, 48)
    (region,) = detect(sheet).regions
    x1, y1, x2, y2 = region.bbox
    assert 290 < x1 <= 306
    assert 695 < y1 <= 730
    assert 1700 < x2 <= 2105
    assert 930 < y2 < 990


@pytest.mark.skipif(None in data_files().values(), reason=f"no Tesseract data: {install()}")
def test_a_formula_is_read_as_text_also_when_a_bracket_spans_its_rows() -> None:
    sheet = Sheet()
    for row in range(4):
        sheet.text(140, 100 + 70 * row, "x + 12", 40)
    sheet.draw.line([(120, 95), (105, 95), (105, 365), (120, 365)], 0, 4)
    formula = Region(0, "display_formula", Task.FORMULA, 1.0, (90.0, 85.0, 340.0, 375.0))
    (reading,) = TesseractRecognizer(threads=1).read([(sheet.page(), [formula])])
    assert reading.regions[0].content.count("12") == 4


def test_running_head_and_page_number() -> None:
    sheet = Sheet()
    sheet.text(150, 70, "1.2 What every page is")
    sheet.paragraph(150, 250, 940, 8)
    sheet.text(610, 1650, "12")
    assert labels(detect(sheet)) == ["header", "text", "number"]


def test_columns_are_read_one_after_the_other() -> None:
    sheet = Sheet()
    sheet.text(150, 70, "Running head of the page")
    for y in (250, 700):
        sheet.paragraph(100, y, 480, 9)
        sheet.paragraph(660, y + 12, 480, 9)
    sheet.text(610, 1650, "12")
    regions = detect(sheet).regions
    centres = [(180, 85), (120, 300), (120, 750), (680, 300), (680, 750)]
    order = [next(region.index for region in regions if covers(region, x, y)) for x, y in centres]
    assert order == [0, 1, 2, 3, 4]
    assert regions[-1].label == "number"


def test_bullets_are_no_column() -> None:
    sheet = Sheet()
    for row in range(6):
        sheet.draw.ellipse((150, 310 + 60 * row, 160, 320 + 60 * row), fill=0)
        sheet.paragraph(200, 300 + 60 * row, 800, 1)
    assert all(region.bbox[0] < 155 for region in detect(sheet).regions)


def test_examples_beside_their_results_are_read_row_by_row() -> None:
    sheet = Sheet()
    for top in (300, 700):
        for left in (100, 660):
            sheet.draw.rectangle((left, top, left + 460, top + 200), outline=0, width=3)
            sheet.paragraph(left + 30, top + 30, 400, 4)
    sheet.text(100, 580, "Compare the two.")
    centres = [(130, 400), (690, 400), (110, 595), (130, 800), (690, 800)]
    regions = detect(sheet).regions
    order = [next(region.index for region in regions if covers(region, x + 20, y)) for x, y in centres]
    assert order == [0, 1, 2, 3, 4]


def test_white_print_on_a_dark_page_is_text() -> None:
    sheet = Sheet(paper=0)
    sheet.paragraph(150, 300, 940, 6)
    assert labels(detect(sheet)) == ["text"]


@pytest.mark.parametrize(
    ("size", "paper", "dark"),
    [
        ((1, 1), 0, True),
        ((1, 1), 255, False),
        ((800, 600), 255, False),
        ((800, 600), 90, False),
        ((800, 600), 30, True),
    ],
)
def test_a_page_without_ink_is_blank_and_a_dark_one_says_why(size: tuple[int, int], paper: int, dark: bool) -> None:
    reason = "the page is dark all over: its scan or photo may have failed" if dark else None
    assert detect(Sheet(*size, paper=paper)) == Layout("page", State.BLANK, reason)


def test_a_full_stop_is_ink_and_a_speck_of_dust_is_none() -> None:
    gray = np.full((3508, 2480), 255, np.uint8)
    gray[100:104, 100:106] = 0
    assert 0 < ink_share(gray) < BLANK_SHARE
    gray[100:107, 100:107] = 0
    assert ink_share(gray) > BLANK_SHARE


def test_specks_are_no_writing_and_one_small_sign_is() -> None:
    sheet = Sheet(2480, 3508)
    for x in (400, 1200, 2000):
        sheet.draw.ellipse((x, 900, x + 5, 905), 0)
        sheet.draw.ellipse((x, 2900, x + 10, 2910), 60)
    assert detect(sheet) == Layout("page", State.BLANK)
    sheet.draw.rectangle((600, 1500, 640, 1504), 0)
    assert detect(sheet).state is not State.BLANK


def test_what_a_speck_is_stands_in_the_profile() -> None:
    sheet = Sheet(2480, 3508)
    sheet.draw.rectangle((600, 1500, 640, 1540), 0)
    page = sheet.page()
    assert [layout.state for layout in CpuLayout(speck=0.02).detect([page])] == [State.BLANK]
    assert [layout.state for layout in CpuLayout().detect([page])] != [State.BLANK]


def test_blocks_of_a_sharpened_photo_are_apart_though_its_paper_is_lighter_around_letters() -> None:
    sheet = Sheet(640, 640, paper=215)
    sheet.text(170, 100, "The same story", 20)
    for top in (260, 420):
        sheet.paragraph(170, top, 380, 3, 20)
    halo = sheet.image.filter(ImageFilter.MinFilter(3)).point([255] * 128 + [215] * 128)
    sheet.image = Image.composite(sheet.image, halo, sheet.image.point([255] * 200 + [0] * 56))
    assert [(region.task, round(region.bbox[1], -1)) for region in detect(sheet).regions] == [
        (Task.TEXT, 100),
        (Task.TEXT, 260),
        (Task.TEXT, 420),
    ]


def test_what_dotted_rules_join_around_a_table_is_a_picture_and_not_lost() -> None:
    sheet = Sheet()
    sheet.paragraph(100, 100, 1000, 3)
    for at in range(0, 1240, 6):
        sheet.draw.rectangle((at, 820, at + 3, 823), 0)
        sheet.draw.rectangle((560, 820 + at % 900, 563, 823 + at % 900), 0)
    for at in range(850, 1700, 50):
        sheet.text(570, at, "CHF 3 949.75")
    sheet.grid((580, 660, 740), (1220, 1260, 1300))
    pictures = [region for region in detect(sheet).regions if region.label == "image"]
    assert any(covers(picture, 600, 830) and covers(picture, 600, 1660) for picture in pictures)


def test_letters_that_touch_the_rules_of_a_table_are_measured_too() -> None:
    sheet = Sheet()
    sheet.text(100, 100, "The works of a year", 44)
    sheet.text(100, 271, "Costs and change", 24)
    sheet.grid((100, 400, 700), range(300, 1000, 40))
    for y in range(306, 940, 40):
        sheet.text(103, y, "Works and change", 24)
        sheet.text(403, y, "1,204,115", 24)
    assert [(region.label, round(region.bbox[1], -1)) for region in detect(sheet).regions][-1] == ("table", 300)


def test_a_remnant_of_letters_between_two_rows_does_not_cut_their_table() -> None:
    sheet = Sheet()
    for y in range(300, 600, 50):
        for x, cell in ((100, "Road"), (400, "1,204"), (700, "35.2")):
            sheet.text(x, y, cell, 24)
    sheet.draw.rectangle((400, 438, 440, 440), 0)
    assert [region.label for region in detect(sheet).regions] == ["table"]


def test_aligned_words_in_two_rows_below_a_text_are_no_table() -> None:
    sheet = Sheet()
    sheet.paragraph(100, 100, 1000, 3)
    for y in (260, 300):
        for x in (100, 500, 900):
            sheet.text(x, y, "Main Street", 24)
    assert {region.label for region in detect(sheet).regions} == {"text"}


def test_ink_without_a_region_is_a_failure_with_a_reason() -> None:
    sheet = Sheet()
    sheet.draw.line((100, 200, 1140, 200), 0, 3)
    layout = detect(sheet)
    assert layout.state is State.FAILED
    assert layout.reason
    assert "ink" in layout.reason
    assert layout.regions == ()


@pytest.mark.slow
@pytest.mark.parametrize("size", [(400, 20_000), (20_000, 400)])
def test_a_page_of_20000_pixels(size: tuple[int, int]) -> None:
    sheet = Sheet(*size)
    sheet.text(size[0] - 380, size[1] - 200, "The far end")
    (region,) = detect(sheet).regions
    assert covers(region, size[0] - 340, size[1] - 185)
    assert region.bbox[2] <= size[0]
    assert region.bbox[3] <= size[1]


def test_bytes_that_are_no_image_are_quarantined_and_the_others_come_out() -> None:
    sheet = Sheet()
    sheet.paragraph(150, 300, 940, 6)
    found = CpuLayout(threads=2).detect([sheet.page("a"), Page("b", b"no image"), Page("c", b""), sheet.page("d")])
    assert {layout.page_id: layout.state for layout in found} == {
        "a": State.OK,
        "b": State.QUARANTINED,
        "c": State.QUARANTINED,
        "d": State.OK,
    }


def test_threads_change_no_result() -> None:
    assert CpuLayout(threads=1).recipe() == CpuLayout(threads=8).recipe()


def test_the_recipe_names_the_build_of_opencv() -> None:
    assert CpuLayout().recipe()["weights"] == {"opencv": version("opencv-python-headless")}


def test_uneven_light_on_the_paper_is_no_picture() -> None:
    sheet = Sheet()
    sheet.text(150, 180, "State of the pages", 56)
    sheet.paragraph(150, 320, 940, 12)
    sheet.picture(150, 900, 600, 300)
    sheet.paragraph(150, 1300, 940, 4)
    even, pixels = detect(sheet), np.asarray(sheet.image)
    across, down = np.linspace(1, 0.45, pixels.shape[1])[None], np.linspace(0.5, 1, pixels.shape[0])[:, None]
    for light in (across, down):
        sheet.image = Image.fromarray((pixels * light).astype(np.uint8))
        found = detect(sheet)
        assert labels(found) == labels(even)
        for region, lit in zip(found.regions, even.regions, strict=True):
            assert region.bbox == pytest.approx(lit.bbox, abs=8)


def test_what_a_pale_box_holds_stays_together_in_uneven_light() -> None:
    """A listing and the output beside it are read by rows, not by columns."""
    sheet = Sheet()
    for top in (200, 620):
        sheet.draw.rectangle((140, top, 590, top + 300), 238)
        sheet.paragraph(170, top + 30, 360, 5)
        sheet.draw.rectangle((630, top + 40, 1110, top + 240), outline=0, width=2)
        sheet.paragraph(660, top + 70, 420, 3)
    sheet.text(150, 540, "Compare this with what follows")
    even, pixels = detect(sheet), np.asarray(sheet.image)
    assert [region.bbox[0] > 600 for region in even.regions] == [False, True, False, False, True]
    for light in (np.linspace(1, 0.5, 1240)[None], np.linspace(0.5, 1, pixels.shape[0])[:, None]):
        sheet.image = Image.fromarray((pixels * light).astype(np.uint8))
        found = detect(sheet)
        assert [region.bbox for region in found.regions] == [
            pytest.approx(region.bbox, abs=8) for region in even.regions
        ]


def test_a_sheet_without_ink_in_uneven_light_is_blank() -> None:
    sheet = Sheet()
    pixels = np.asarray(sheet.image) * np.linspace(1, 0.5, 1240)[None]
    sheet.image = Image.fromarray(pixels.astype(np.uint8))
    assert detect(sheet).state is State.BLANK


def test_a_page_that_is_evenly_lit_is_left_as_it_is() -> None:
    sheet = Sheet()
    sheet.paragraph(150, 320, 940, 5)
    sheet.picture(150, 900, 600, 300)
    pixels = np.array(sheet.image)
    # A pale tint of half the page has almost no edge to the paper.
    pixels[:, :620][pixels[:, :620] == 255] = 243
    assert even_light(pixels) is pixels


def _edged(sheet: Sheet, left: int, top: int, right: int, bottom: int) -> Sheet:
    """Return the sheet with dark edges of these widths, as a scanner leaves them."""
    pixels = np.array(sheet.image)
    height, width = pixels.shape
    for edge in (np.s_[:, :left], np.s_[:top], np.s_[:, width - right :], np.s_[height - bottom :]):
        pixels[edge] = 20
    sheet.image = Image.fromarray(pixels)
    return sheet


@pytest.mark.parametrize("width", [2, 10, 90])
@pytest.mark.parametrize("sides", [(1, 1, 1, 1), (1, 1, 0, 0), (0, 1, 0, 1)])
def test_a_dark_edge_takes_no_text_away(width: int, sides: tuple[int, int, int, int]) -> None:
    def page() -> Sheet:
        sheet = Sheet()
        sheet.paragraph(150, 320, 940, 9)
        sheet.picture(150, 900, 600, 300)
        sheet.paragraph(150, 1300, 940, 4)
        return sheet

    plain, edged = detect(page()), detect(_edged(page(), *(width * side for side in sides)))
    texts = [[region for region in layout.regions if region.label == "text"] for layout in (plain, edged)]
    assert [region.bbox for region in texts[1]] == [pytest.approx(region.bbox, abs=4) for region in texts[0]]
    assert [region.label for region in edged.regions if covers(region, 400, 1000)] == ["image"]


def test_a_page_on_the_dark_bed_of_a_scanner_is_no_picture() -> None:
    sheet = Sheet()
    sheet.paragraph(150, 320, 940, 9)
    bed = Image.new("L", (1640, 2154), 30)
    bed.paste(sheet.image, (200, 200))
    sheet.image = bed
    assert labels(detect(sheet)) == ["text"]


def test_a_frame_around_a_page_is_no_drawing() -> None:
    sheet = Sheet()
    sheet.draw.rounded_rectangle((60, 60, 1180, 1694), 200, outline=0, width=12)
    sheet.paragraph(250, 520, 740, 9)
    assert labels(detect(sheet)) == ["text"]


@pytest.mark.parametrize(("paper", "ink"), [(255, 235), (200, 170), (230, 255)])
def test_faint_print_is_found(paper: int, ink: int) -> None:
    sheet = Sheet(paper=paper)
    sheet.ink = ink
    sheet.paragraph(150, 320, 940, 9)
    assert labels(detect(sheet)) == ["text"]


@pytest.mark.parametrize("contrast", [0, 8, 12])
def test_print_that_shines_through_and_noise_are_blank(contrast: int) -> None:
    sheet = Sheet(paper=250)
    sheet.ink = 250 - contrast
    sheet.paragraph(150, 320, 940, 30)
    noise = np.random.default_rng(0).normal(0, 3, (1754, 1240))
    sheet.image = Image.fromarray((np.asarray(sheet.image) + noise).clip(0, 255).astype(np.uint8))
    assert detect(sheet).state is State.BLANK
