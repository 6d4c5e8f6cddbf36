"""The text layer of a page: what its PDF says is written on it, word by word, and where. Pure.

It holds facts alone. Whether they can be believed is judged by whoever reads them, so that another judgement needs
no PDF.
"""

import base64
import json
import zlib
from dataclasses import dataclass
from enum import IntFlag
from functools import cached_property
from typing import TYPE_CHECKING, Self

from resources.fingerprints import fingerprint
from resources.printable import first_line

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Box = tuple[int, int, int, int]
"""(x1, y1, x2, y2) in pixels of the upright page."""


class Mark(IntFlag):
    """What is known of a word besides its text and its place."""

    INVISIBLE = 1
    """Drawn without a stroke or a fill, as an OCR program writes its text over a scan."""
    NO_INK = 2
    """Nothing is printed where it stands."""
    UNMAPPED = 4
    """A character whose font has no Unicode map for it."""
    HYPHEN = 8
    """Divided by a hyphen at the end of a line, which is left out of its text; it goes on in the next word."""
    LINE = 16
    """The first word of a line."""
    DOWN = 32
    """Runs from top to bottom: vertical writing, or a line turned to the right."""
    UP = 64
    """Runs from bottom to top: a line turned to the left."""


NO_MARK = Mark(0)


@dataclass(frozen=True, slots=True)
class Word:
    """Characters without a blank between them, as the PDF has them."""

    text: str
    box: Box
    marks: Mark = NO_MARK


@dataclass(frozen=True)
class TextLayer:
    """The words of a page in the order of its PDF, on a page of `width` by `height` pixels.

    `words` leaves out what the page's crop box cuts away; `outside` counts the characters that lie beyond the whole
    sheet. `bare` is the ink that no word covers: true for each square of `cell` pixels that has some. `failure` says
    why a layer that there is could not be read; it has no words then.
    """

    width: int
    height: int
    words: tuple[Word, ...]
    outside: int
    cell: int
    bare: "NDArray[np.bool_]"
    failure: str = ""

    @classmethod
    def failed(cls, why: str) -> Self:
        """A layer that cannot be read."""
        import numpy as np

        return cls(0, 0, (), 0, 1, np.zeros((0, 0), bool), why)

    @cached_property
    def characters(self) -> int:
        """Characters of all words."""
        return sum(len(word.text) for word in self.words)

    def to_json(self) -> str:
        """The layer as it is stored."""
        import numpy as np

        if self.failure:
            return json.dumps({"failure": self.failure}, ensure_ascii=False)
        packed = zlib.compress(np.packbits(self.bare).tobytes())
        return json.dumps(
            {
                "size": [self.width, self.height],
                "words": [word.text for word in self.words],
                "boxes": [edge for word in self.words for edge in word.box],
                "marks": [int(word.marks) for word in self.words],
                "outside": self.outside,
                "cell": self.cell,
                "squares": list(self.bare.shape),
                "bare": base64.b64encode(packed).decode(),
            },
            ensure_ascii=False,
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, stored: str) -> Self:
        """The layer that `to_json` made; one that failed for anything else, so that only its page is without it."""
        import numpy as np

        try:
            held = json.loads(stored)
            if "failure" in held:
                return cls.failed(str(held["failure"]))
            width, height = map(int, held["size"])
            rows, columns = held["squares"]
            if min(width, height, held["cell"], rows, columns) < 1:
                raise ValueError("a page without size")
            bits = np.frombuffer(zlib.decompress(base64.b64decode(held["bare"])), np.uint8)
            boxes = zip(*[iter(map(int, held["boxes"]))] * 4, strict=True)
            return cls(
                width,
                height,
                tuple(
                    Word(str(text), box, Mark(marks))
                    for text, box, marks in zip(held["words"], boxes, held["marks"], strict=True)
                ),
                int(held["outside"]),
                int(held["cell"]),
                np.unpackbits(bits, count=rows * columns).astype(bool).reshape(rows, columns),
            )
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError, zlib.error) as error:
            return cls.failed(f"it is damaged: {first_line(error) or type(error).__name__}")


def layer_id(stored: str | None) -> str | None:
    """What tells a stored layer from another; None where there is none."""
    return None if stored is None else fingerprint([stored])
