"""A page as the engines see it: its encoded bytes, decoded at most once."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from resources.pages.pixels.images import decode

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Batch:
    """Pages that an asset makes together: those of a shard that its table lacks, one after the other."""

    shard: str
    pages: int


@dataclass(frozen=True)
class Page:
    """One page image. `data` is the encoded file as the source holds it (PNG, JPEG, WebP or TIFF).

    `batch` says with which others it is worked on, where that is known.
    """

    page_id: str
    data: bytes | memoryview
    batch: Batch | None = None

    @cached_property
    def image(self) -> "np.ndarray":
        """RGB pixels, uint8 (height, width, 3), upright. Raises `UndecodableImage`."""
        return decode(self.data)
