"""Region images are no larger than their lines need and are masked by outlines."""

from typing import Any

import cv2
import numpy as np
import pytest
from PIL import ImageFont
from pydantic import ValidationError

from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition.regions import RegionText, region_pixels
from kopub.recognition.tesseract.recognizer import TesseractRecognizer, data_files, install
from kopub.recognition.vlm.client.deepseek import TILE, tiled_image
from kopub.recognition.vlm.client.region_images import PATCH, line_height, region_image, scale_to_lines
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.tables.ocr_and_texts import OcrResults
from kopub.vllm.server import VLLMServer
from tests.doubles.http_double import HttpDouble, Reply, SentRequest
from tests.recognition.test_glm_ocr import in_turn
from tests.support.harness import Platform
from tests.support.real_readings import sample_work
from tests.support.sources.corpora import pages
from tests.support.sources.drawn import Sheet


def prose(size: int, lines: int) -> np.ndarray:
    """Return a grey crop with lines of Latin prose in type of `size` pixels."""
    sheet = Sheet(1040, round(1.5 * size) * lines + 20)
    sheet.paragraph(20, 10, 1000, lines, size)
    return np.asarray(sheet.image)


def letters(size: int) -> float:
    """Return the pixels from the highest ascender to the lowest descender in this type size."""
    _, top, _, foot = ImageFont.load_default(size).getbbox("Ebdhlgpqy")
    return foot - top


def tilted(crop: np.ndarray, degrees: float) -> np.ndarray:
    height, width = crop.shape
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1)
    return cv2.warpAffine(crop, turn, (width, height), borderMode=cv2.BORDER_REPLICATE)


def noisy(crop: np.ndarray, sigma: float) -> np.ndarray:
    noise = np.random.default_rng(0).normal(0, sigma, crop.shape)
    return (crop + noise).clip(0, 255).astype(np.uint8)


def jpeg(crop: np.ndarray, quality: int) -> np.ndarray:
    data = cv2.imencode(".jpg", crop, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_GRAYSCALE))


@pytest.mark.parametrize("size", [20, 28, 42, 60, 90])
@pytest.mark.parametrize("lines", [1, 2, 7])
def test_the_height_of_drawn_lines_is_found(size: int, lines: int) -> None:
    found = line_height(prose(size, lines))
    assert found is not None
    assert 0.75 * letters(size) <= found <= 1.08 * letters(size)


@pytest.mark.parametrize(
    "spoilt",
    [
        pytest.param(lambda crop: jpeg(crop, 30), id="JPEG"),
        pytest.param(lambda crop: noisy(crop, 10), id="noise"),
        pytest.param(lambda crop: cv2.GaussianBlur(crop, (0, 0), 1.5), id="blur"),
        pytest.param(lambda crop: tilted(crop, 0.7), id="askew"),
        pytest.param(lambda crop: 255 - crop, id="light on dark"),
        pytest.param(lambda crop: 255 - (255 - crop) // 3, id="pale"),
        pytest.param(lambda crop: np.dstack([crop, crop, crop // 2 + 120]), id="tinted"),
    ],
)
def test_a_poor_scan_has_lines_of_the_same_height(spoilt: Any) -> None:
    found = line_height(spoilt(prose(42, 6)))
    assert found is not None
    assert 0.75 * letters(42) <= found <= 1.15 * letters(42)


def test_the_smaller_print_decides() -> None:
    mixed = np.vstack([prose(80, 1), prose(30, 4)])
    assert line_height(mixed) == pytest.approx(letters(30), rel=0.1)


def test_rules_of_a_table_are_no_letters() -> None:
    sheet = Sheet(1000, 420)
    sheet.grid([10, 330, 660, 990], [10, 110, 210, 310, 410])
    for row in range(4):
        for column in range(3):
            sheet.text(30 + 325 * column, 35 + 100 * row, "apply quietly", 40)
    assert line_height(np.asarray(sheet.image)) == pytest.approx(letters(40), rel=0.1)


def picture() -> np.ndarray:
    sheet = Sheet(600, 400)
    sheet.picture(0, 0, 600, 400)
    return np.asarray(sheet.image)


@pytest.mark.parametrize(
    "crop",
    [
        pytest.param(np.full((200, 300), 255, np.uint8), id="paper"),
        pytest.param(noisy(np.full((200, 300), 128, np.uint8), 60), id="noise"),
        pytest.param(picture(), id="photograph"),
        pytest.param(cv2.resize(noisy(np.full((20, 40), 128, np.uint8), 90), (800, 400)), id="texture"),
        pytest.param(cv2.erode(prose(42, 6), np.ones((40, 1), np.uint8)), id="lines that touch"),
        pytest.param(prose(42, 1)[:, :4], id="a sliver"),
        pytest.param(np.zeros((1, 1), np.uint8), id="a pixel"),
    ],
)
def test_what_is_no_lines_has_no_height_and_stays_as_it_is(crop: np.ndarray) -> None:
    assert line_height(crop) is None
    assert scale_to_lines(crop, Task.TEXT, 20) == 1.0


def test_regions_of_real_pages_have_lines_of_the_same_height_at_any_resolution() -> None:
    heights = []
    for page, regions in sample_work(2):
        for region in regions:
            if region.task is not Task.TEXT:
                continue
            x1, y1, x2, y2 = (round(edge) for edge in region.bbox)
            crop = page.image[y1:y2, x1:x2]
            smaller = np.asarray(cv2.resize(crop, None, fx=2 / 3, fy=2 / 3, interpolation=cv2.INTER_AREA), np.uint8)
            heights.append((line_height(crop), line_height(smaller)))
    known = [(full, less) for full, less in heights if full is not None and less is not None]
    assert len(known) >= 0.8 * len(heights)
    assert np.median([abs(less / full - 2 / 3) for full, less in known]) < 0.03
    assert max(less / full for full, less in known) < 0.8


def test_lines_are_scaled_down_never_up_and_not_for_a_trifle() -> None:
    crop = prose(60, 3)
    assert scale_to_lines(crop, Task.TEXT, 30) == pytest.approx(30 / letters(60), rel=0.08)
    assert scale_to_lines(crop, Task.TABLE, 30) == scale_to_lines(crop, Task.TEXT, 30)
    assert [scale_to_lines(crop, Task.TEXT, wanted) for wanted in (58, 200, None)] == [1.0, 1.0, 1.0]
    assert scale_to_lines(crop, Task.FORMULA, 30) == 1.0


@pytest.mark.parametrize("enough", [0.9, 0.66, 0.5, 0.2])
@pytest.mark.parametrize("shape", [(60, 900), (422, 812), (1500, 2200), (3508, 2480), (40, 40)])
def test_no_side_is_smaller_than_enough_and_none_larger_than_before(shape: tuple[int, int], enough: float) -> None:
    crop = np.full(shape, 255, np.uint8)
    usual, sent = region_image(crop), region_image(crop, enough=enough)
    assert sent.width % PATCH == sent.height % PATCH == 0
    for side, before, of_crop in ((sent.width, usual.width, shape[1]), (sent.height, usual.height, shape[0])):
        assert min(before, enough * of_crop) <= side <= before
    assert sent.scale == pytest.approx(np.sqrt(sent.width * sent.height / crop.size))


def test_tiles_are_left_out_where_lines_are_high_enough_without() -> None:
    crop = np.full((500, 1000), 255, np.uint8)
    tiled, whole, still_tiled = (tiled_image(crop, enough=enough) for enough in (1.0, 0.6, 0.7))
    assert max(whole.width, whole.height) <= TILE
    assert whole.tokens < tiled.tokens
    assert (still_tiled.width, still_tiled.height) == (tiled.width, tiled.height)


def read(reply: Reply, **fields: Any) -> tuple[RegionText, list[SentRequest], dict[str, Any]]:
    """Read a region of four 60-pixel lines; the server answers with `reply`."""
    crop = prose(60, 4)
    page = Page("p_1", cv2.imencode(".png", crop)[1].tobytes())
    height, width = crop.shape
    with HttpDouble(reply) as double:
        server = VLLMServer(model="glm", revision="r1", mode="external", urls=[double.url], images_per_prompt=0)
        engine = GlmOcrRecognizer(server=server, processes=1, in_flight=8, retry_seconds=0.001, **fields)
        (reading,) = engine.read([(page, [Region(0, "text", Task.TEXT, 0.9, (0, 0, width, height))])])
        (text,) = reading.regions
        return text, double.asked, engine.report()


def test_a_region_is_sent_with_the_pixels_that_its_lines_need() -> None:
    plain, full, _ = read(in_turn(("글", "stop")))
    text, small, report = read(in_turn(("글", "stop")), line_height=30)
    assert text.content == "글"
    assert text.attempts == 1
    expected = 30 / letters(60)
    width, height = full[0].size
    assert small[0].size[0] == pytest.approx(expected * width, abs=PATCH + 0.1 * width * expected)
    assert small[0].size[1] == pytest.approx(expected * height, abs=PATCH + 0.1 * height * expected)
    assert text.scale == pytest.approx(expected, rel=0.15)
    assert plain.scale == pytest.approx(1.0, abs=0.05)
    assert report["regions_scaled_down"] == 1


@pytest.mark.parametrize(
    ("first", "content"),
    [(("가나", "length"), "가나다라"), (("", "stop"), "가나다라"), (("ひらがなばかり", "stop"), "가나다라")],
)
def test_a_doubtful_answer_is_asked_again_at_full_size(first: tuple[str, str], content: str) -> None:
    text, asked, _ = read(in_turn(first, (content, "stop")), line_height=30)
    _, full, _ = read(in_turn((content, "stop")))
    assert text.content == content
    assert text.attempts == 2
    assert text.scale == pytest.approx(1.0, abs=0.05)
    assert asked[1].body == full[0].body


def test_a_region_that_fails_has_gone_through_the_plan_at_full_size() -> None:
    _, without, _ = read(in_turn(("가나다", "length")))
    text, asked, _ = read(in_turn(("가나다", "length")), line_height=30, tries=5)
    assert text.state == "failed"
    assert [each.body for each in asked[1:]] == [each.body for each in without]


def test_without_a_line_height_requests_are_as_they_were() -> None:
    _, (off,), _ = read(in_turn(("글", "stop")))
    _, (enough,), report = read(in_turn(("글", "stop")), line_height=200)
    assert off.body == enough.body
    assert report["regions_scaled_down"] == 0


def test_line_height_is_in_the_recipe_and_in_the_key_of_kept_in_turn(tmp_path: Any) -> None:
    server = VLLMServer(model="glm", revision="r1", mode="external", urls=["http://x"])
    recipes = [GlmOcrRecognizer(server=server, line_height=wanted).recipe() for wanted in (None, 28, 21)]
    assert [recipe["parameters"]["line_height"] for recipe in recipes] == [None, 28, 21]
    said = in_turn(("글", "stop"))
    runs = [read(said, line_height=wanted, reuse_folder=str(tmp_path)) for wanted in (30, None, 30)]
    assert [len(asked) for _, asked, _ in runs] == [1, 1, 0]
    assert runs[2][0].scale == runs[0][0].scale != runs[1][0].scale


def test_a_line_height_that_nobody_can_read_is_refused() -> None:
    server = VLLMServer(model="glm", revision="r1", mode="external", urls=["http://x"])
    with pytest.raises(ValidationError, match="line_height"):
        GlmOcrRecognizer(server=server, line_height=4)


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

    with_outlines: Any = {**resources, "layout": Outlined()}
    outlined = OcrResults(with_outlines)
    assert outlined.recipe_hash != before.recipe_hash
    assert "outlines" in outlined.made_with
