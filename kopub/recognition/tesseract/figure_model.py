"""The model that reads figures a second time, and whether it is installed."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kopub.engine import releases
from kopub.fingerprints import CodeVersion, file_sha256

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

CODE = CodeVersion(
    "recognition.figures",
    {
        1: "the first release",
        2: "read before English, and with ㎡",
        3: "lines are read one by one, those of formulas by Tesseract alone, and words such as i386 are no figures",
    },
)
NAME = "PP-OCRv6_rec_small.onnx"
INSTALL = "pip install 'kopub[figures]'"
_HEIGHT = 48
"""Pixels of a line's height that the model was trained on."""
_SQUEEZE = 0.8
"""Share of a line's width that is kept: every figure is still read, for a quarter less time."""
_LIKE = str.maketrans("（），．％：－−–—一～０１２３４５６７８９", "(),.%:-----~0123456789")
"""Characters that the model, made for Chinese, gives for others of the same shape."""


@dataclass(frozen=True, slots=True)
class SecondReading:
    """The text of a line, with the certainty of each character, 0 to 1."""

    text: str
    certainties: Sequence[float]


def keep_from_reporting() -> None:
    """Keep ONNX Runtime, before its import, from reports to its maker.

    The thread that sends them also keeps forked processes from ending.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"


class FigureModel:
    """The recognition model of PP-OCRv6 on one core, used by one thread at a time."""

    def __init__(self, model: Path) -> None:
        self._model = model

    @cached_property
    def _session(self) -> "InferenceSession":
        keep_from_reporting()
        from onnxruntime import InferenceSession, SessionOptions  # pyright: ignore[reportAttributeAccessIssue]

        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        return InferenceSession(str(self._model), options, providers=["CPUExecutionProvider"])

    @cached_property
    def _characters(self) -> list[str]:
        return ["", *self._session.get_modelmeta().custom_metadata_map["character"].splitlines(), " "]

    def read(self, line: NDArray[np.uint8]) -> SecondReading:
        """Read the picture of a single line, uint8 (height, width)."""
        import cv2

        height, width = line.shape
        size = max(16, round(_SQUEEZE * _HEIGHT * width / height)), _HEIGHT
        scaled = cv2.resize(line, size, interpolation=cv2.INTER_AREA if height > _HEIGHT else cv2.INTER_LINEAR)
        pixels = np.broadcast_to(scaled.astype(np.float32) / 127.5 - 1, (1, 3, _HEIGHT, size[0]))
        # Several lines at once take no less time, and more where one is longer than the others.
        scores = np.asarray(self._session.run(None, {"x": pixels})[0])[0]
        best = scores.argmax(axis=1)
        text, certainties = "", []
        for at in np.flatnonzero(best).tolist():
            char = self._characters[best[at]].translate(_LIKE)
            # Of equal neighbours one counts.
            if char != " " and (at == 0 or best[at] != best[at - 1]):
                text += char
                certainties.append(float(scores[at, best[at]]))
        return SecondReading(text, certainties)


def model() -> Path | None:
    """Return the model file; None unless all that runs it is installed."""
    package = find_spec("rapidocr")
    if package is None or package.origin is None or find_spec("onnxruntime") is None:
        return None
    path = Path(package.origin).parent / "models" / NAME
    return path if path.is_file() else None


def identity() -> dict[str, str]:
    """Return what determines the second readings; empty without the model."""
    if (path := model()) is None:
        return {}
    return {CODE.name: str(CODE.number), "figures": file_sha256(path), **releases("onnxruntime")}
