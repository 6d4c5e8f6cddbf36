"""Page images for Qwen3-VL-Embedding: resized to the model's size without further loss. Pure, on a CPU."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from resources.errors import EngineError, UndecodableImage
from resources.pages.pixels.channels import grey_as_one_channel
from resources.pages.pixels.images import decode, inspect, is_plain
from resources.pages.pixels.patches import whole_patches

if TYPE_CHECKING:
    import numpy as np

PATCH = 32
"""Pixels on a side of one image token: patches of 16, merged two by two."""
MIN_TOKENS = 4
"""4,096 pixels, the authors' least."""
MAX_ASPECT = 200
"""The model's preprocessor refuses an image that is longer and thinner."""
_MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg", "WEBP": "image/webp"}
"""Formats that the server decodes as the authors do. A TIFF is sent as the PNG of its pixels."""

_NO_TORCH = "pages are resized with PyTorch, which is not installed here: type `make setup GPU=1`"


@dataclass(frozen=True, slots=True)
class PageImage:
    """An encoded page at the size that the model sees; `tokens` are its image tokens in the prompt.

    `untouched` means that the bytes are the source's own.
    """

    data: bytes
    media_type: str
    tokens: int
    untouched: bool


def check_resizer() -> None:
    """Raise `EngineError` where PyTorch is not installed, without its import, which takes two seconds of CPU."""
    if find_spec("torch") is None:
        raise EngineError(_NO_TORCH)


def page_image(data: bytes, max_tokens: int) -> PageImage:
    """A page of at most `max_tokens` tokens: the source's bytes where their size is right, else resized.

    Raises `UndecodableImage`, or `EngineError` where PyTorch cannot be imported.
    """
    info = inspect(data)
    if max(info.width, info.height) > MAX_ASPECT * min(info.width, info.height):
        raise UndecodableImage(f"the page of {info.width} x {info.height} pixels is too long and thin for the model")
    columns, rows = whole_patches(info.width, info.height, PATCH, MIN_TOKENS, max_tokens)
    size, tokens = (columns * PATCH, rows * PATCH), columns * rows
    fits = size == (info.width, info.height) and info.format in _MEDIA_TYPES
    if fits and is_plain(data):
        return PageImage(data, _MEDIA_TYPES[info.format], tokens, True)
    return PageImage(_png(_resized(data, size)), _MEDIA_TYPES["PNG"], tokens, False)


def _resized(data: bytes, size: tuple[int, int]) -> "np.ndarray":
    """The page's pixels at another (width, height), (height, width, 3) or, where they are grey, (height, width).

    PyTorch resizes as transformers' own preprocessor does, with an eighth of the work of Pillow's bicubic, which the
    authors' code uses: one value in 6,000 is a grey level off. OpenCV's bicubic is another filter.
    It is imported with the first page that has to be resized. Raises `EngineError` where it cannot be.
    """
    import numpy as np

    try:
        import torch
        from torch.nn.functional import interpolate
    except ImportError:
        raise EngineError(_NO_TORCH) from None

    pixels = torch.from_numpy(np.require(decode(data), requirements="W")).permute(2, 0, 1)[None]
    small = interpolate(pixels, size=(size[1], size[0]), mode="bicubic", antialias=True)
    return grey_as_one_channel(small[0].permute(1, 2, 0).numpy())


def _png(pixels: "np.ndarray") -> bytes:
    """Lossless at the least cost to both sides: 10 ms to write and 5 ms to read a megapixel of a printed page."""
    import cv2

    if pixels.ndim == 3:
        pixels = cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR)
    options = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_SUB]
    return cv2.imencode(".png", pixels, options)[1].tobytes()
