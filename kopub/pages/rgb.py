"""RGB pixels of pictures of every mode, and 8 bits of deep greys."""

import numpy as np
from PIL import Image

_STRIP = 1 << 22
"""Pixels of a page that Pillow converts at once; it takes 16 bytes or more for each."""


def draw_rgb(page: Image.Image, paper: str | None, pixels: np.ndarray) -> None:
    """Draw a page on a paper, or opaque, into RGB pixels, in strips."""
    high = max(1, _STRIP // page.width)
    strips = [(0, top, page.width, min(top + high, page.height)) for top in range(0, page.height, high)]
    most = np.nanmax([np.nanmax(np.asarray(page.crop(strip))) for strip in strips]) if is_deep(page) else None
    for box in strips:
        strip = page.crop(box)
        if most is not None:
            samples, clear = np.asarray(strip), strip.info.get("transparency")
            strip = Image.fromarray(to_8_bits(samples, most))
            if clear is not None:
                strip.putalpha(Image.fromarray(np.where(samples == clear, 0, 255).astype(np.uint8)))
        if page.has_transparency_data:
            strip = strip.convert("RGBA")
        if paper is not None:
            strip = Image.alpha_composite(Image.new("RGBA", strip.size, paper), strip)
        pixels[box[1] : box[3]] = np.asarray(strip.convert("RGB"))


def is_deep(image: Image.Image) -> bool:
    """Return whether a grey picture has samples of more than 8 bits, which Pillow clips."""
    return image.mode.startswith("I") or image.mode == "F"


def to_8_bits(samples: np.ndarray, most: float | None = None) -> np.ndarray:
    """Return grey samples as uint8; `most` is the largest of their page.

    Of 16 or 32 bits, the 8 highest in use are kept (scanners store 12 bits in 16). Floats are scaled from a maximum of
    1 or, if any is above 1, of 255 or their own maximum.
    """
    most = np.nanmax(samples) if most is None else most
    if samples.dtype.kind == "f":
        scale = 255 if most <= 1 else 255 / max(most, 255)
        return np.nan_to_num(samples * scale).clip(0, 255).astype(np.uint8)
    return (samples.clip(0) >> max(0, int(max(most, 0)).bit_length() - 8)).astype(np.uint8)
