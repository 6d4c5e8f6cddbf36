"""Encoded page to model input on the host's threads: decode, shrink, and drop the full-size pixels."""

import io
import time
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from resources.errors import UndecodableImage
from resources.pages.page import Page
from resources.pages.pixels.images import decode
from resources.states import State

if TYPE_CHECKING:
    import numpy as np
    import torch

SIDE = 800
"""Side of the model's square input in pixels; the aspect ratio is not kept."""

_JPEG_START = b"\xff\xd8\xff"
_EXIF_ORIENTATION = 0x0112


@dataclass(frozen=True, slots=True)
class Prepared:
    """A page as the model takes it: `pixels` is RGB uint8 (SIDE, SIDE, 3), None when `state` says it failed."""

    page_id: str
    width: int
    height: int
    pixels: "np.ndarray | None"
    seconds: float
    state: State = State.OK
    reason: str | None = None


def prepare(page: Page, gpu_jpeg: bool) -> Prepared:
    """Decode and shrink one page; what goes wrong is a state of this page, never an exception."""
    started = time.perf_counter()
    try:
        pixels, width, height = _shrunk_on_gpu(page.data) if gpu_jpeg and _plain_jpeg(page.data) else _shrunk(page.data)
    except UndecodableImage as error:
        return Prepared(page.page_id, 0, 0, None, time.perf_counter() - started, error.state, str(error))
    except Exception as error:
        reason = f"preparing the page failed: {type(error).__name__}: {error}"
        return Prepared(page.page_id, 0, 0, None, time.perf_counter() - started, State.FAILED, reason)
    return Prepared(page.page_id, width, height, pixels, time.perf_counter() - started)


def _shrunk(data: bytes | memoryview) -> "tuple[np.ndarray, int, int]":
    import cv2

    image = decode(data)
    height, width = image.shape[:2]
    return cv2.resize(image, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC), width, height


def _plain_jpeg(data: bytes | memoryview) -> bool:
    """Whether a page is an upright RGB or grey JPEG; the rest (CMYK, EXIF rotation) is Pillow's work."""
    from PIL import Image

    if bytes(data[:3]) != _JPEG_START:
        return False
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
        return image.mode in {"RGB", "L"} and image.getexif().get(_EXIF_ORIENTATION, 1) == 1


def _shrunk_on_gpu(data: bytes | memoryview) -> "tuple[np.ndarray, int, int]":
    """The same through nvJPEG. A file that nvJPEG refuses is decoded on the host, which also knows the reason."""
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg  # pyright: ignore[reportMissingImports]

    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    with torch.inference_mode(), torch.cuda.stream(_decode_stream()):
        try:
            image = decode_jpeg(encoded, mode=ImageReadMode.RGB, device="cuda")
        except RuntimeError:
            return _shrunk(data)
        height, width = image.shape[-2:]
        small = torch.nn.functional.interpolate(
            image[None].float(), size=(SIDE, SIDE), mode="bicubic", align_corners=False
        )
        pixels = small[0].round_().clamp_(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().cpu()
    return pixels.numpy(), width, height


@cache
def _decode_stream() -> "torch.cuda.Stream":
    """Apart from the model's stream, so that a decoded page does not wait for a batch."""
    import torch

    return torch.cuda.Stream()
