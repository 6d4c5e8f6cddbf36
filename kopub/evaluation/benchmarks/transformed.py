"""Pages with known text, skewed, turned, badly scanned, and photographed on a table.

OpenCV makes the forms with fixed seeds when a picture is read, so they are not stored. The slice `form` of a sample
names its form; `upright` is the unchanged page, which the others are compared with.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kopub.errors import quoted
from kopub.evaluation.benchmark import OWN_PAGES, Adapter, Benchmark, Sample, SamplePicture, SkippedSample
from kopub.evaluation.benchmarks.texts import TEXTS, load_texts, score_page
from kopub.pages.page import decode, problem_with_id

if TYPE_CHECKING:
    Transform = Callable[[NDArray[np.uint8], np.random.Generator], NDArray[np.uint8]]

_QUALITY = 85
"""The JPEG quality of a photo."""


def load_transformed(folder: Path) -> Benchmark:
    """Load each page of a folder once in every form.

    A page whose id has no room for the names of the forms is left out, since no corpus would take some of them.
    """
    benchmark = load_texts(folder)
    samples: list[Sample] = []
    left_out = list(benchmark.left_out)
    for sample in benchmark.samples:
        forms: list[Sample] = []
        for form in FORMS:
            assert sample.picture is not None
            id = f"{sample.id}__{form.replace(' ', '_')}"
            picture = SamplePicture(sample.picture.path, sample.picture.page, partial(_draw, sample.picture, id, form))
            forms.append(
                Sample(id, sample.document, picture, {**sample.slices, "form": form}, sample.gold, sample.regions)
            )
        if problem := next(filter(None, (problem_with_id(form_sample.id) for form_sample in forms)), None):
            left_out.append(SkippedSample(quoted(sample.id), f"its id with the name of a form {problem}"))
        else:
            samples += forms
    return Benchmark(TRANSFORMED.name, "2", benchmark.licence, benchmark.source, samples, left_out)


def _draw(picture: SamplePicture, id: str, form: str) -> bytes:
    """Return the encoded picture of a page in one form.

    Raises the errors of `SamplePicture.read`.
    """
    import cv2

    data = picture.read()
    if (transform := FORMS[form]) is None:
        return data
    image = transform(decode(data), np.random.default_rng(crc32(id.encode())))
    return cv2.imencode(".png", cv2.cvtColor(image, cv2.COLOR_RGB2BGR))[1].tobytes()


def skewed(degrees: float, page: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a scan whose lines slope down to the right by `degrees`."""
    import cv2

    height, width = page.shape[:2]
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), -degrees, 1)
    return np.asarray(cv2.warpAffine(page, turn, (width, height), borderValue=(255, 255, 255)), np.uint8)


def turned(quarters: int, page: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a page turned to the left by a number of quarter turns."""
    return np.ascontiguousarray(np.rot90(page, quarters))


def lit(page: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a page in light that fades from 1 to 0.55 in a random direction."""
    angle = rng.uniform(0, 2 * np.pi)
    shade = np.add.outer(np.linspace(0, np.sin(angle), page.shape[0]), np.linspace(0, np.cos(angle), page.shape[1]))
    return (page * (1 - 0.45 * (shade - shade.min()) / np.ptp(shade))[..., None]).astype(np.uint8)


def noisy(deviation: float, page: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a page with noise; its standard `deviation` is in grey levels."""
    return (page + rng.normal(0, deviation, (*page.shape[:2], 1))).clip(0, 255).astype(np.uint8)


def blurred(deviation: float, page: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a page out of focus, by a Gaussian blur whose `deviation` is in pixels."""
    import cv2

    return np.asarray(cv2.GaussianBlur(page, (0, 0), deviation), np.uint8)


def compressed(quality: int, page: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return a page after compression as a JPEG of the given quality."""
    import cv2

    coded = cv2.imencode(".jpg", page, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return np.asarray(cv2.imdecode(coded, cv2.IMREAD_COLOR), np.uint8)


def photographed(
    patterned: bool, quarters: int, page: NDArray[np.uint8], rng: np.random.Generator
) -> NDArray[np.uint8]:
    """Return a photo of the page on a dark table, of boards if `patterned`.

    It has perspective, light that fades from 1 to 0.55, blur, noise and JPEG compression.
    """
    import cv2

    height, width = page.shape[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    inset = rng.uniform(0.03, 0.11, (4, 2)) * (width, height) * ((1, 1), (-1, 1), (-1, -1), (1, -1))
    view = cv2.getPerspectiveTransform(corners, (corners + inset).astype(np.float32))
    paper = cv2.warpPerspective(page, view, (width, height), flags=cv2.INTER_AREA)
    mask = cv2.warpPerspective(np.full((height, width), 255, np.uint8), view, (width, height))
    if patterned:
        # The table is of boards with a grain.
        rows = np.arange(height)[:, None] + 12 * np.sin(np.arange(width) / rng.uniform(80, 160))
        grain = 22 * np.sin(rows / rng.uniform(9, 15)) + 14 * (rows // rng.uniform(250, 400) % 2)
        table = (np.array([135, 95, 60]) + grain[..., None]).clip(0, 255).astype(np.uint8)
    else:
        table = np.full((height, width, 3), rng.integers(25, 70, 3), np.uint8)
    photo = lit(np.where(mask[..., None] > 127, paper, table), rng)
    return turned(quarters, compressed(_QUALITY, noisy(4, blurred(0.8, photo, rng), rng), rng), rng)


FORMS: "Mapping[str, Transform | None]" = MappingProxyType(
    {
        "upright": None,
        "skew 0.5": partial(skewed, 0.5),
        "skew 1": partial(skewed, -1),
        "skew 3": partial(skewed, 3),
        "skew 5": partial(skewed, -5),
        "turned 90": partial(turned, 1),
        "turned 180": partial(turned, 2),
        "turned 270": partial(turned, 3),
        "uneven light": lit,
        "noise": partial(noisy, 30),
        "blur": partial(blurred, 3),
        "strong blur": partial(blurred, 5),
        "JPEG of quality 10": partial(compressed, 10),
        "photo on a dark table": partial(photographed, False, 0),
        "photo on a patterned table": partial(photographed, True, 0),
        "photo upside down": partial(photographed, False, 2),
    }
)
TRANSFORMED = Adapter(
    "transformed",
    "Pages of your own, skewed, turned, badly scanned and photographed by a script",
    TEXTS.expects,
    "your own pages",
    OWN_PAGES,
    load_transformed,
    score_page,
    ("cer", "bag_f1"),
)
