"""Notes on figures by DeepSeek-OCR: charts as tables, molecules as SMILES, other pictures in a sentence."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import ClassVar, Self

from pydantic import Field, model_validator

from resources.code_version import CodeVersion
from resources.engine import releases
from resources.figures.answers import judge_deepseek
from resources.figures.base import FigureNoter
from resources.figures.chat.noter import lost
from resources.figures.figure import FigurePicture
from resources.figures.notes import FigureNote
from resources.figures.reader import FigureJob, FigureReader, NoteSettings
from resources.recognition.vlm.deepseek.deepseek_images import tiled_image
from resources.recognition.vlm.deepseek.deepseek_server import SAMPLING, check_server
from resources.vllm.served_engine import ServedEngine

_PROMPT = "Parse the figure."
"""The authors' own; words about caption or language would break it."""


class DeepSeekNoter(ServedEngine, FigureNoter):
    """Describes figures with DeepSeek-OCR's prompt for them: data of charts, SMILES of molecules, drawings, sentences.

    The model sees the picture alone, at its own size. It was trained on charts with Chinese and English labels.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("notes.deepseek_ocr", {1: "the first release"})
    typical_seconds: ClassVar[float] = 0.2
    worker_modules: ClassVar[tuple[str, ...]] = ("cv2", "imagecodecs", "resources.figures.reader")
    limits: ClassVar[tuple[str, ...]] = (
        "Notes on figures were made up by DeepSeek-OCR, which was not trained on charts with Korean labels: "
        "a value in them may be wrong, or of nothing printed.",
    )

    max_tokens: int = Field(default=2048, ge=64, description="Of an answer; a second try gets twice as many.")
    tries: int = Field(default=2, ge=1, description="Most attempts at one figure before it is `failed`.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_server(self.server)
        if self.server.max_model_len < 2 * self.max_tokens + self.server.max_image_tokens:
            raise ValueError(
                f"max_tokens: a second try of {2 * self.max_tokens} tokens does not fit into the server's max_model_len"
            )
        return self

    def weights(self) -> dict[str, str]:
        return {**super().weights(), **releases("opencv-python-headless")}

    def describe(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[FigureNote]:
        """`most_pixels` is not used: the model's tiles are its size."""
        jobs = (FigureJob(figure.id, figure.data, _PROMPT) for figure in figures)
        settings = NoteSettings(
            tiled_image, judge_deepseek, SAMPLING, room=(self.max_tokens, 2 * self.max_tokens), tries=self.tries
        )
        yield from self.run_jobs(jobs, partial(FigureReader, settings), lost)
