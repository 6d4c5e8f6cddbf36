"""Skewed, turned and photographed sample pages are set upright; upright pages stay unchanged."""

import os
import tracemalloc
from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from kopub.evaluation.benchmarks.texts import load_texts
from kopub.evaluation.benchmarks.transformed import FORMS, photographed, skewed, turned
from kopub.folders import SAMPLES
from kopub.pages import straightening
from kopub.pages.page import decode
from kopub.pages.straightening import find_transform
from kopub.pages.upright import UprightTransform

Pixels = NDArray[np.uint8]


@pytest.fixture(scope="module")
def samples() -> dict[str, Pixels]:
    """Return the sample pages at half their resolution: 150 dpi."""
    read = {sample.id: sample.picture.read() for sample in load_texts(SAMPLES).samples if sample.picture}
    return {id: _half(decode(data)) for id, data in read.items()}


def _half(page: Pixels) -> Pixels:
    return np.asarray(cv2.resize(page, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA), np.uint8)


@pytest.fixture(scope="module")
def page(samples: dict[str, Pixels]) -> Pixels:
    return samples["install.ko_19"]


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def found(pixels: Pixels) -> UprightTransform:
    transform = find_transform(pixels)
    assert transform is not None
    return transform


def test_upright_pages_are_left_as_they_are(samples: dict[str, Pixels]):
    assert {id: str(made) for id, page in samples.items() if (made := find_transform(page))} == {}


@pytest.mark.slow
def test_upright_pages_of_a_folder_are_left_as_they_are():
    """Use full-size samples, or all pages of the shards in the folder `KOPUB_TEST_PAGES`."""
    pages = load_texts(Path(os.environ.get("KOPUB_TEST_PAGES", SAMPLES))).samples
    read = ((page.id, page.picture.read()) for page in pages if page.picture)
    assert {id: str(made) for id, data in read if (made := find_transform(decode(data)))} == {}


@pytest.mark.parametrize("quarters", [2, *(pytest.param(quarters, marks=pytest.mark.slow) for quarters in (1, 3))])
def test_a_turned_page_comes_back_to_the_pixel(samples: dict[str, Pixels], quarters: int):
    for id, page in samples.items():
        transform = found(turned(quarters, page, rng()))
        assert (transform.turns, transform.skew, transform.paper) == (4 - quarters, 0.0, False), id
        assert transform.margin > 1
        assert np.array_equal(transform.apply(turned(quarters, page, rng())), page)
        assert (transform.width, transform.height) == page.shape[1::-1]


@pytest.mark.parametrize("degrees", [-12.0, -5.0, -1.0, 0.5, 3.0, 15.0 - 1])
def test_the_skew_is_found_to_a_tenth_of_a_degree(page: Pixels, degrees: float):
    assert found(skewed(degrees, page, rng())).skew == pytest.approx(degrees, abs=0.1)


def test_it_is_kept_how_sure_a_skew_and_a_sheet_of_paper_are(page: Pixels):
    straightened = found(skewed(3, page, rng()))
    assert (straightened.skew_sharpness > 1.25, straightened.paper_levels) == (True, 0.0)
    assert found(photographed(False, 0, page, rng())).paper_levels > 12
    assert "paper_levels" not in UprightTransform.picture_of(straightened.row())


def test_a_page_that_lies_on_its_side_and_is_skewed_is_set_upright(page: Pixels):
    transform = found(skewed(4, turned(1, page, rng()), rng()))
    assert transform.turns == 3
    assert transform.skew == pytest.approx(4, abs=0.1)
    assert str(transform) == f"straightened by {transform.skew:.2f} degrees, turned right"


@pytest.mark.parametrize("form", [form for form in FORMS if form.startswith("photo")])
def test_a_box_on_a_straightened_photo_lies_on_its_words_in_the_photo(samples: dict[str, Pixels], form: str):
    """Dots drawn on the page before it is photographed mark the true places."""
    page = samples["install.ko_19"].copy()
    marks = [(300, 400), (900, 430), (340, 1200), (880, 1300)]
    for x, y in marks:
        cv2.circle(page, (x, y), 9, (255, 0, 0), -1)
    make = FORMS[form]
    assert make is not None
    photo = make(page, rng())
    transform = found(photo)
    assert transform.paper
    upright, taken = (_red(pixels) for pixels in (transform.apply(photo), photo))
    assert len(upright) == len(taken) == len(marks)
    back = np.array(transform.to_original(upright.tolist()))
    distance = np.linalg.norm(back[:, None] - taken[None], axis=2).min(axis=1)
    assert distance.max() < 2
    # The upright page is a rectangle again, so the marks lie where they did, up to its scale.
    scale = np.array([transform.width, transform.height]) / page.shape[1::-1]
    placed = np.linalg.norm(np.array(marks)[:, None] * scale - upright[None], axis=2).min(axis=1)
    assert placed.max() < 0.01 * transform.height


def _red(pixels: Pixels) -> NDArray[np.float64]:
    """Return the centres of the red dots."""
    red = (pixels[..., 0].astype(int) - pixels[..., 1:].max(axis=2) > 60).astype(np.uint8)
    count, _, stats, centres = cv2.connectedComponentsWithStats(red)
    return np.array([centres[at] for at in range(1, count) if stats[at, cv2.CC_STAT_AREA] > 60])


def test_a_picture_with_a_frame_and_a_page_with_a_dark_edge_are_no_sheets_of_paper(page: Pixels):
    framed, edged = page.copy(), page.copy()
    cv2.rectangle(framed, (60, 60), (page.shape[1] - 60, page.shape[0] - 60), (0, 0, 0), 6)
    edged[:, :24] = edged[:24] = 15
    for pixels in (framed, edged):
        transform = find_transform(pixels)
        assert transform is None or (not transform.turns and not transform.skew)


def a_slide() -> Pixels:
    """Return a slide with its title on the dark ground above a light panel."""
    slide = np.full((1240, 1754, 3), (20, 40, 90), np.uint8)
    slide[200:1180, 60:1694] = 250
    cv2.putText(slide, "The title of this slide", (80, 130), cv2.FONT_HERSHEY_SIMPLEX, 2.5, (255, 255, 255), 5)
    for line in range(12):
        cv2.putText(slide, "a line of the slide", (120, 300 + 70 * line), cv2.FONT_HERSHEY_SIMPLEX, 1.5, (0, 0, 0), 3)
    return slide


def test_the_panel_of_a_slide_is_no_sheet_of_paper():
    """Cropping to the panel would lose the text around it."""
    assert find_transform(a_slide()) is None


@pytest.mark.parametrize("patterned", [False, True])
def test_a_photo_of_a_slide_keeps_the_title_on_its_frame(patterned: bool):
    slide = a_slide()
    for x in (60, 1100):
        cv2.circle(slide, (x, 110), 9, (255, 0, 0), -1)
    photo = photographed(patterned, 0, slide, rng())
    transform = found(photo)
    assert transform.paper
    first, last = sorted(_red(transform.apply(photo)).tolist())
    # The panel is set straight, and its title lies level above it.
    assert last[0] - first[0] > 0.5 * transform.width
    assert abs(last[1] - first[1]) < 0.02 * transform.height
    # The table around the slide is left out.
    assert transform.width * transform.height < 0.85 * photo.shape[0] * photo.shape[1]


def test_a_page_on_a_dotted_cloth_takes_no_more_memory_than_a_few_photos():
    photo = np.full((1600, 1240, 3), 60, np.uint8)
    tops, lefts = (np.arange(8, extent - 8, 12) for extent in photo.shape[:2])
    for row, column in np.ndindex(6, 6):
        photo[np.ix_(tops + row, lefts + column)] = 185
    cv2.fillConvexPoly(photo, np.array([(280, 330), (960, 290), (1000, 1250), (300, 1290)]), (245, 245, 245))
    tracemalloc.start()
    assert found(photo).paper
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * photo.nbytes, f"{peak:,} bytes for a photo of {photo.nbytes:,}"


def test_pages_that_say_too_little_are_left_as_they_are():
    blank = np.full((1754, 1240, 3), 250, np.uint8)
    one_word = blank.copy()
    cv2.putText(one_word, "No. 68", (500, 800), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0, 0, 0), 2)
    noise = np.random.default_rng(0).integers(0, 256, (800, 600, 3), dtype=np.uint8)
    narrow = np.full((6000, 1, 3), 0, np.uint8)
    for pixels in (blank, one_word, turned(2, one_word, rng()), noise, blank[:1, :1], blank[:3], narrow):
        assert find_transform(np.ascontiguousarray(pixels)) is None


def test_a_page_too_long_for_opencv_is_left_as_it_is(page: Pixels):
    long = np.full((40_000, 300, 3), 255, np.uint8)
    long[: page.shape[0]] = skewed(3, page, rng())[:, 200:500]
    assert find_transform(long) is None


def test_a_page_that_would_grow_beyond_the_limit_is_left_as_it_is(page: Pixels, monkeypatch: pytest.MonkeyPatch):
    tilted = skewed(10, page, rng())
    monkeypatch.setattr(straightening, "MAX_PIXELS", tilted.shape[0] * tilted.shape[1])
    assert find_transform(tilted) is None


def test_a_transform_is_kept_as_numbers_and_comes_back_as_it_was(page: Pixels):
    photo = photographed(True, 2, page, rng())
    transform = found(photo)
    again = UprightTransform.of_row(transform.row())
    assert again == transform
    assert again is not None
    assert np.array_equal(again.apply(photo), transform.apply(photo))
    assert UprightTransform.of_row(None) is None


def test_what_lies_outside_of_the_picture_is_as_its_edge(page: Pixels):
    grey = np.minimum(page, 200)
    grey[0] = grey[-1] = 200
    upright = found(skewed_on(grey, 6, 200))
    assert abs(int(upright.apply(skewed_on(grey, 6, 200))[0, 0, 0]) - 200) < 3


def skewed_on(page: Pixels, degrees: float, level: int) -> Pixels:
    height, width = page.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), -degrees, 1)
    return np.asarray(cv2.warpAffine(page, turn, (width, height), borderValue=(level,) * 3), np.uint8)
