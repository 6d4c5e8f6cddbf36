"""Measure the host cost of `recognition.line_height`, the pixels it saves, and its accuracy.

    python -m benchmarks.reading.line_height                          # drawn lines, and the samples
    python -m benchmarks.reading.line_height --pages FOLDER           # and Arrow shards of pages
    python -m benchmarks.reading.line_height --pdf FILE ...  # and PDFs, whose text layer gives the size of the type

Costs are CPU time of one thread, the minimum of three rounds; regions are those that the CPU layout finds. Pages are
assumed to have 300 dpi: lines of 28 and 21 pixels then correspond to type of 10 points at 200 and at 150 dpi.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import cv2  # noqa: E402
import numpy as np  # noqa: E402
from PIL import Image, ImageDraw, ImageFont  # noqa: E402

from benchmarks.reading.host_cost import load  # noqa: E402
from benchmarks.servers import plain_way  # noqa: E402
from kopub.layout.cpu.engine import CpuLayout  # noqa: E402
from kopub.layout.regions import Region, Task  # noqa: E402
from kopub.pages.page import Page  # noqa: E402
from kopub.recognition.regions import region_pixels  # noqa: E402
from kopub.recognition.vlm.client.region_images import (  # noqa: E402  # noqa: E402
    has_ink,
    line_height,
    pack_pixels,
    region_image,
    scale_to_lines,
)

ROUNDS = 3
WANTED: Sequence[tuple[str, int | None]] = (("off", None), ("28 px, 200 dpi", 28), ("21 px, 150 dpi", 21))
SIZES = (16, 20, 24, 28, 36, 42, 60, 90)
DPI = 300
PROSE = "Every page of a document ends in exactly one state and none of them is lost on its way"
Crops = list[tuple[Region, np.ndarray]]


def drawn(size: int, lines: int) -> np.ndarray:
    """Return lines of prose in type of `size` pixels, without a margin, like a region."""
    font = ImageFont.load_default(size)
    page = Image.new("L", (1700, round(1.5 * size) * lines + size), 255)
    draw = ImageDraw.Draw(page)
    words = PROSE.split()
    for line in range(lines):
        row = " ".join(words[(line + at) % len(words)] for at in range(2000 // size))
        draw.text((0, round(1.5 * size) * line), row, 0, font)
    top, foot = np.flatnonzero(np.asarray(page).min(axis=1) < 128)[[0, -1]]
    return np.asarray(page)[max(0, top - 3) : foot + 4]


def drawn_errors() -> None:
    print("drawn lines of Latin prose: found height to that from the highest letter's top to the lowest one's foot")
    print(f"{'type of':<12}{'1 line':>9}{'2 lines':>9}{'8 lines':>9}")
    for size in SIZES:
        _, top, _, foot = ImageFont.load_default(size).getbbox("Ebdhlgpqy")
        shares = [(line_height(drawn(size, lines)) or float("nan")) / (foot - top) for lines in (1, 2, 8)]
        print(f"{size:3d} px      {''.join(f'{share:9.2f}' for share in shares)}")


def pdf_pages(path: Path) -> Iterator[tuple[Page, np.ndarray]]:
    """Yield pages drawn at 300 dpi, and (type size, x, y) of letters in pixels."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    scale = DPI / 72
    with pypdfium2.PdfDocument(path) as document:
        for number in range(0, len(document), max(1, len(document) // 8)):
            page = document[number]
            height = page.get_height() * scale
            image = page.render(scale=scale).to_numpy()[..., :3]  # pyright: ignore[reportArgumentType]
            text = page.get_textpage()
            letters = []
            for at in range(text.count_chars()):
                if pdfium.FPDFText_GetUnicode(text, at) > ord(" "):
                    left, bottom, right, top = (edge * scale for edge in text.get_charbox(at))
                    matrix = pdfium.FS_MATRIX()
                    pdfium.FPDFText_GetMatrix(text, at, matrix)
                    size = pdfium.FPDFText_GetFontSize(text, at) * abs(matrix.d or matrix.b) * scale
                    letters.append((size, (left + right) / 2, height - (top + bottom) / 2))
            png = cv2.imencode(".png", np.ascontiguousarray(image))[1].tobytes()
            yield Page(f"{path.stem}_{number}", png), np.array(letters).reshape(-1, 3)


def pdf_errors(path: Path) -> None:
    pages = list(pdf_pages(path))
    layouts = {layout.page_id: layout.regions for layout in CpuLayout().detect([page for page, _ in pages])}
    shares, unknown = [], 0
    for page, letters in pages:
        for region in layouts[page.page_id]:
            x1, y1, x2, y2 = region.bbox
            inside = (letters[:, 1] > x1) & (letters[:, 1] < x2) & (letters[:, 2] > y1) & (letters[:, 2] < y2)
            if region.task not in (Task.TEXT, Task.TABLE) or not inside.any():
                continue
            found = line_height(pack_pixels(region_pixels(page.image, region)))
            unknown += found is None
            if found is not None:
                shares.append(found / np.median(letters[inside, 0]))
    marks = "".join(f"{value:8.2f}" for value in np.percentile(shares, [0, 5, 50, 95, 100]))
    print(f"{path.name:<28}{len(shares):8d}{unknown:9d}{marks}")


def crops_of(folder: Path, most: int) -> tuple[list[Crops], int]:
    pages = []
    for page, regions in load(folder, most):
        read = [region for region in regions if region.task in plain_way.READ]
        cut = [(region, pack_pixels(region_pixels(page.image, region))) for region in read]
        pages.append([(region, crop) for region, crop in cut if has_ink(crop)])
    return pages, sum(map(len, pages))


@dataclass
class Images:
    """The images of some regions, and the CPU seconds of making and estimating them."""

    scaled: int = 0
    tokens: int = 0
    pixels: int = 0
    estimating: float = 0.0
    making: float = 0.0


def made(pages: Sequence[Crops], wanted: int | None) -> Images:
    images = Images()
    for region, crop in (each for page in pages for each in page):
        started = time.thread_time()
        enough = scale_to_lines(crop, region.task, wanted)
        estimated = time.thread_time()
        image = region_image(crop, enough=enough)
        images.making += time.thread_time() - estimated
        images.estimating += estimated - started
        images.scaled += enough < 1.0
        images.tokens += image.tokens
        images.pixels += image.width * image.height
    return images


def left(folder: Path, most: int) -> None:
    """Print tokens, pixels and CPU time of the regions' images, by line height."""
    pages, count = crops_of(folder, most)
    print(f"\n{len(pages)} pages of {folder}, {count} regions")
    head = ("scaled down", "tokens", "of off", "megapixels", "of off", "estimate ms", "image ms")
    print(f"{'':<16}{''.join(f'{name:>13}' for name in head)}   (ms of CPU a region)")
    off = made(pages, None)
    for name, wanted in WANTED:
        got = min((made(pages, wanted) for _ in range(ROUNDS)), key=lambda images: images.estimating + images.making)
        print(
            f"{name:<16}{got.scaled:13d}{got.tokens:13d}{got.tokens / off.tokens:13.2f}"
            f"{got.pixels / 1e6:13.1f}{got.pixels / off.pixels:13.2f}"
            f"{1000 * got.estimating / count:13.2f}{1000 * got.making / count:13.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, action="append", default=[ROOT / "samples" / "corpus"])
    parser.add_argument("--most", type=int, default=24, help="pages of each folder")
    parser.add_argument("--pdf", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    drawn_errors()
    if arguments.pdf:
        print("\nfound height to the size of the type by the text layer, pages drawn at 300 dpi")
        print(f"{'':<28}{'regions':>8}{'no lines':>9}{'least':>8}{'5 %':>8}{'median':>8}{'95 %':>8}{'most':>8}")
    for path in arguments.pdf:
        pdf_errors(path)
    for folder in arguments.pages:
        left(folder, arguments.most)


if __name__ == "__main__":
    main()
