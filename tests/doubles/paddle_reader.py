"""A double of PaddleOCR-VL that reads drawn lines within the real model's size limits.

A line is a number drawn as strokes. The double decodes the image that was sent: it misreads lines lower than `SMALLEST`
pixels, and counts the tokens of an image outside the model's size limits as the model's preprocessor would. Answers are
cut at `max_tokens`, where an OTSL tag is one token, as is any other character.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np
from aiohttp import web

from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from tests.doubles.http_double import SentRequest

PATCH, LEAST, MOST = 28, 144, 1280
SMALLEST = 14
"""The least height in pixels at which the double reads a line correctly."""
TEMPLATE_TOKENS = 13
_BITS = 8
_CELLS = 2 * _BITS + 2
"""The strokes of a line: a mark, the number, its complement, and another mark."""
_TOKEN = re.compile(r"<[felux]*cel>|<nl>|.", re.DOTALL)
UNREADABLE = "흐림"


def drawn_lines(numbers: Sequence[int], width: int, height: int, pitch: int) -> np.ndarray:
    """Return numbers below 256 as drawn lines, (pitch * lines, width) grey, `height` pixels each."""
    image = np.full((pitch * len(numbers), width), 255, np.uint8)
    cell = width / _CELLS
    for line, number in enumerate(numbers):
        top = line * pitch + (pitch - height) // 2
        for position, bit in enumerate(_bits(number)):
            if bit:
                for stroke in (0.2, 0.6):
                    left = round((position + stroke) * cell)
                    image[top : top + height, left : left + max(2, round(0.25 * cell))] = 0
    return image


def _bits(number: int) -> list[int]:
    bits = [number >> place & 1 for place in range(_BITS)]
    return [1, *bits, *(1 - bit for bit in bits), 1]


def page_of_lines(page_id: str, image: np.ndarray, task: Task, label: str) -> tuple[Page, list[Region]]:
    """Return a page that is one region."""
    height, width = image.shape
    data = cv2.imencode(".png", image)[1].tobytes()
    return Page(page_id, data), [Region(0, label, task, 0.9, (0.0, 0.0, float(width), float(height)))]


def read_lines(image: np.ndarray) -> list[str]:
    """Return the number on each line of an image, or `UNREADABLE`."""
    dark = image < 128
    inked = np.concatenate(([False], dark.any(axis=1), [False]))
    edges = np.flatnonzero(np.diff(inked.astype(np.int8)))
    cell = image.shape[1] / _CELLS
    read = []
    for top, bottom in zip(edges[::2], edges[1::2], strict=True):
        if bottom - top < SMALLEST:
            read.append(UNREADABLE)
            continue
        middle = dark[(top + bottom) // 2]
        bits = [int(middle[round(n * cell) : round((n + 1) * cell)].mean() > 0.2) for n in range(_CELLS)]
        number = sum(bit << place for place, bit in enumerate(bits[1 : _BITS + 1]))
        read.append(str(number) if bits == _bits(number) else UNREADABLE)
    return read


def image_tokens(width: int, height: int) -> int:
    """Return the number of image tokens that the model's own preprocessor makes."""
    columns, rows = round(width / PATCH), round(height / PATCH)
    if columns * rows > MOST:
        shrink = math.sqrt(width * height / PATCH**2 / MOST)
        columns, rows = math.floor(width / shrink / PATCH), math.floor(height / shrink / PATCH)
    elif columns * rows < LEAST:
        enlarge = math.sqrt(LEAST * PATCH**2 / (width * height))
        columns, rows = math.ceil(width * enlarge / PATCH), math.ceil(height * enlarge / PATCH)
    return columns * rows


def table_of(lines: Sequence[str]) -> str:
    """Return the lines as an OTSL table of number, empty cell and unit."""
    return "".join(f"<fcel>{line}<ecel><fcel>원<nl>" for line in lines)


def text_of(lines: Sequence[str]) -> str:
    return "\n".join(f"제{line}조" for line in lines)


Says = Callable[[SentRequest, Sequence[str]], str]
"""Returns the answer to a request whose image shows these lines."""
_WHOLE: dict[str, Callable[[Sequence[str]], str]] = {
    "OCR:": text_of,
    "Table Recognition:": table_of,
    "Chart Recognition:": lambda lines: "연도 | 값\n" + "\n".join(f"{line} | {line}0" for line in lines),
    "Seal Recognition:": "".join,
    "Formula Recognition:": lambda lines: f"\\[ x_{{{lines[0]}}} \\]",
}


def well(asked: SentRequest, lines: Sequence[str]) -> str:
    """Answer as the model does when all goes well."""
    return _WHOLE[asked.prompt](lines)


@dataclass
class PaddleReader:
    """A `Reply` whose answers `says` makes; `sizes` lists the sizes of received images."""

    says: Says = well
    sizes: list[tuple[int, int]] = field(default_factory=list)

    async def __call__(self, asked: SentRequest) -> web.StreamResponse:
        image = cv2.imdecode(np.frombuffer(asked.image, np.uint8), cv2.IMREAD_GRAYSCALE)
        assert image is not None
        self.sizes.append((image.shape[1], image.shape[0]))
        tokens = _TOKEN.findall(self.says(asked, read_lines(image)))
        room = int(asked.body["max_tokens"])
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": "".join(tokens[:room])},
            "finish_reason": "length" if len(tokens) > room else "stop",
        }
        usage = {
            "prompt_tokens": TEMPLATE_TOKENS + len(asked.prompt) + image_tokens(*self.sizes[-1]),
            "completion_tokens": min(room, len(tokens)),
        }
        return web.json_response({"choices": [choice], "usage": usage})
