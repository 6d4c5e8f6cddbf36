"""Pages of text, rules and images, drawn with Pillow's built-in font for engines to read."""

import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from kopub.pages.page import Page

PROSE = "Every page of a document ends in exactly one state and none of them is lost on its way"


class Sheet:
    """A page, by default white A4 at 150 dpi (1240 x 1754 pixels)."""

    def __init__(self, width: int = 1240, height: int = 1754, paper: int = 255) -> None:
        self.image = Image.new("L", (width, height), paper)
        self.draw = ImageDraw.Draw(self.image)
        self.ink = 0 if paper > 127 else 255

    def text(self, x: int, y: int, text: str, size: int = 24) -> None:
        self.draw.text((x, y), text, self.ink, ImageFont.load_default(size))

    def paragraph(self, x: int, y: int, width: int, lines: int, size: int = 24) -> None:
        """Draw lines of prose filled to `width`, with a line spacing of 1.5."""
        font, words = ImageFont.load_default(size), PROSE.split() * (lines + 1) * 4
        for line in range(lines):
            row = words.pop(0)
            while font.getlength(f"{row} {words[0]}") < width:
                row = f"{row} {words.pop(0)}"
            self.text(x, y + round(1.5 * size) * line, row, size)

    def grid(self, xs: Sequence[int], ys: Sequence[int]) -> None:
        for x in xs:
            self.draw.line((x, ys[0], x, ys[-1]), self.ink, 3)
        for y in ys:
            self.draw.line((xs[0], y, xs[-1], y), self.ink, 3)

    def picture(self, x: int, y: int, width: int, height: int) -> None:
        """Draw smooth shades, as in a photograph."""
        down, across = np.mgrid[0:height, 0:width]
        shades = 110 + 70 * np.sin(across / 37) + 60 * np.cos(down / 23)
        self.image.paste(Image.fromarray(shades.clip(0, 240).astype(np.uint8)), (x, y))

    def page(self, page_id: str = "page") -> Page:
        file = io.BytesIO()
        self.image.save(file, "PNG")
        return Page(page_id, file.getvalue())
