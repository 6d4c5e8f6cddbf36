"""A realistic folder of files: two PDFs, three phone photos and a broken file."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support.sample_home import sample
from tests.support.sources.pdf_files import sheet, text_pdf, written

_ORIENTATION = 0x0112
_TURNED_RIGHT = 6
"""EXIF orientation of a phone held upright, whose picture must be turned by a quarter."""
_GRAIN = 6.0


def write_own_files(folder: Path) -> Path:
    """Write strips of the samples at 300 dpi; shadows hide the text of two photos."""
    (folder / "사진").mkdir(parents=True)
    guide, more = _strip("install.ko_19", (150, 1280, 2330, 2250)), _strip("lo-formats_3", (0, 0, 2480, 1150))
    guide.save(folder / "설치 안내.pdf", resolution=300, save_all=True, append_images=[more], quality=85)
    minutes = written((40, 300, "Minutes of the meeting"), (40, 268, "The reading room opens on Monday at nine."))
    came = written((40, 300, "Second page: a list of those who came."))
    (folder / "minutes.pdf").write_bytes(text_pdf(*(sheet(each, box="0 0 420 340") for each in (minutes, came))))
    keys = _strip("lo-math-keys_1", (150, 120, 2330, 900)).rotate(1, Image.Resampling.BICUBIC, fillcolor="white")
    _photo(folder / "사진" / "IMG_0001.JPG", keys, np.linspace(1.0, 0.85, keys.width))
    brushes = _strip("gimp-history26_3", (300, 150, 2330, 1140))
    _photo(folder / "사진" / "IMG_0002.JPG", brushes, np.linspace(1.0, 0.7, brushes.width), _TURNED_RIGHT)
    list_box = _strip("lo-formats_3", (150, 100, 2330, 1150))
    hand = np.where(np.arange(list_box.width) < list_box.width // 2, 1.0, 0.5)
    _photo(folder / "사진" / "IMG_0003.JPG", list_box, hand)
    (folder / "broken.pdf").write_bytes((folder / "설치 안내.pdf").read_bytes()[:20_000])
    return folder


def _strip(page_id: str, box: tuple[int, int, int, int]) -> Image.Image:
    return Image.open(io.BytesIO(sample(page_id)[1])).convert("RGB").crop(box)


def _photo(path: Path, page: Image.Image, light: np.ndarray, orientation: int = 1) -> None:
    """Write a photo of a page with the brightness of each pixel column, and noise."""
    grain = np.random.default_rng(7).normal(0, _GRAIN, (page.height, page.width, 1))
    lit = (np.asarray(page) * light[None, :, None] + grain).clip(0, 255).astype(np.uint8)
    exif = Image.Exif()
    exif[_ORIENTATION] = orientation
    turned = Image.fromarray(lit).rotate(90 if orientation == _TURNED_RIGHT else 0, expand=True)
    turned.save(path, quality=85, exif=exif)
