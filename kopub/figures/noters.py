"""Engines that describe figures on a model server: a chat model, and DeepSeek-OCR."""

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from kopub.engine import releases
from kopub.figures.answers import Language, judge_chat, judge_deepseek, prompt, response_format
from kopub.figures.figure import FigureNote, FigureNoter, FigurePicture
from kopub.figures.reader import PATCH, FigureJob, FigureReader, NoteSettings, figure_image
from kopub.fingerprints import CodeVersion
from kopub.recognition.vlm.client.deepseek import tiled_image
from kopub.recognition.vlm.deepseek_ocr import MEMORY, SAMPLING, check_server
from kopub.states import State, phrase
from kopub.vllm.served_engine import ModelMemory, ServedEngine

_PROMPT_TOKENS = 1536
"""Tokens of template, question, caption and text around a figure; a Korean syllable has up to two."""


class ChatNoter(ServedEngine, FigureNoter):
    """Describes figures with Qwen3-VL-Instruct: kind, sentences, keywords, data of charts, SMILES.

    Picture, caption and the nearest text go into one request, and the answer is JSON, bound to its form where the
    server does that. Any chat model on vLLM that sees pictures will do; its picture sizes are taken for Qwen3-VL's.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "notes.qwen3_vl",
        {1: "the first release", 2: "a Korean description of what could not be seen before is no refusal"},
    )
    typical_seconds: ClassVar[float] = 0.2
    worker_modules: ClassVar[tuple[str, ...]] = ("cv2", "imagecodecs", "kopub.figures.reader")
    limits: ClassVar[tuple[str, ...]] = (
        "Notes on figures were made up by a model from a picture: a value in them may be wrong, or of nothing printed.",
    )

    language: Language = Field(default="ko", description="Language of the descriptions, that of the corpus.")
    structured: bool = Field(
        default=True, description="Bind answers to their form by `response_format`; false for a server without it."
    )
    max_tokens: int = Field(default=1024, ge=64, description="Tokens of an answer; a retry gets twice as many.")
    tries: int = Field(default=3, ge=1, description="Most attempts at one figure before it is `failed`.")
    sampling: dict[str, Any] = Field(default={}, description="Added to every request.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.server.runner != "generate":
            raise ValueError(phrase("server.runner: notes need generate, not {runner}", self.server.runner))
        if self.server.max_model_len < 2 * self.max_tokens + _PROMPT_TOKENS + self.server.max_image_tokens:
            raise ValueError(
                f"max_tokens: a retry of {2 * self.max_tokens} tokens does not fit into the server's "
                f"max_model_len, {self.server.max_model_len}, with a picture of {self.server.max_image_tokens} and "
                f"the question ({_PROMPT_TOKENS})"
            )
        return self

    def weights(self) -> dict[str, str]:
        return {**super().weights(), **releases("opencv-python-headless")}

    def describe(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[FigureNote]:
        jobs = (
            FigureJob(figure.id, figure.data, prompt(self.language, figure.caption, figure.context))
            for figure in figures
        )
        form = {"response_format": response_format()} if self.structured else {}
        settings = NoteSettings(
            make_image=partial(figure_image, max_tokens=min(most_pixels // PATCH**2, self.server.max_image_tokens)),
            judge=partial(judge_chat, language=self.language),
            sampling={**form, **self.sampling},
            room=(self.max_tokens, 2 * self.max_tokens),
            tries=self.tries,
        )
        yield from self.run_jobs(jobs, partial(FigureReader, settings), make_failed_note)


def make_failed_note(job: FigureJob, reason: str) -> FigureNote:
    """Return the note on a figure that no client process could handle."""
    return FigureNote(job.id, State.FAILED, reason)


_PROMPT = "Parse the figure."
"""The authors' own prompt; words about caption or language would break it."""


class DeepSeekNoter(ServedEngine, FigureNoter):
    """Describes figures with DeepSeek-OCR's prompt for them: data of charts, SMILES of molecules, drawings, sentences.

    The model sees the picture alone, at its own size. It was trained on charts with Chinese and English labels.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "notes.deepseek_ocr",
        {
            1: "the first release",
            2: "tags and signs printed in a table are text of their cells; a row without own cells stays",
        },
    )
    typical_seconds: ClassVar[float] = 0.2
    model_memory: ClassVar[ModelMemory | None] = MEMORY
    worker_modules: ClassVar[tuple[str, ...]] = ("cv2", "imagecodecs", "kopub.figures.reader")
    limits: ClassVar[tuple[str, ...]] = (
        "Notes on figures were made up by DeepSeek-OCR, which was not trained on charts with Korean labels: "
        "a value in them may be wrong, or of nothing printed.",
    )

    max_tokens: int = Field(default=2048, ge=64, description="Tokens of an answer; a retry gets twice as many.")
    tries: int = Field(default=2, ge=1, description="Most attempts at one figure before it is `failed`.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_server(self.server)
        if self.server.max_model_len < 2 * self.max_tokens + self.server.max_image_tokens:
            raise ValueError(
                f"max_tokens: a retry of {2 * self.max_tokens} tokens does not fit into the server's max_model_len"
            )
        return self

    def weights(self) -> dict[str, str]:
        return {**super().weights(), **releases("opencv-python-headless")}

    def describe(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[FigureNote]:
        """Yield one note for each figure; the model's tiles are its size, not `most_pixels`."""
        jobs = (FigureJob(figure.id, figure.data, _PROMPT) for figure in figures)
        settings = NoteSettings(
            tiled_image, judge_deepseek, SAMPLING, room=(self.max_tokens, 2 * self.max_tokens), tries=self.tries
        )
        yield from self.run_jobs(jobs, partial(FigureReader, settings), make_failed_note)
