"""The common part of the recognizers on a model server."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field, field_validator

from kopub.engine import ProfileOnly, releases
from kopub.fingerprints import CodeVersion, fingerprint
from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading
from kopub.recognition.vlm.client.chat_requests import VERSION as REQUESTS
from kopub.recognition.vlm.client.reader import ReadingJob, RequestSettings, VlmReader
from kopub.recognition.vlm.client.region_images import ImageMaker
from kopub.states import State, phrase
from kopub.vllm.served_engine import ServedEngine


class VlmRecognizer(ServedEngine, Recognizer):
    """A recognizer on a model server; a subclass is one family of models.

    It reads text, tables as HTML, formulas as LaTeX; pictures are kept as crops. It declares a field `prompts` with a
    default for each task that is read.
    """

    clean_answer: ClassVar[Callable[[str, Task], str]]
    """The function that removes a model's own marks from an answer, which client processes import."""
    image_version: ClassVar[CodeVersion]
    """Version of the code that makes the image of a region; code that judges answers also judges cached ones."""
    default_prompts: ClassVar[Mapping[Any, str]]
    """The prompts with which the model was trained: by task, and by label for those with a prompt of their own."""
    default_sampling: ClassVar[Mapping[str, Any]] = {}
    """Fields of every request besides the image, the prompt and the fields of the retry plan."""
    first_answer: ClassVar[int | None] = None
    """Most tokens of a first answer; None for as many as its image can hold."""
    typical_seconds: ClassVar[float] = 0.04
    worker_modules: ClassVar[tuple[str, ...]] = ("cv2", "imagecodecs", "kopub.recognition.vlm.client.reader")
    speed_only: ClassVar[frozenset[str]] = ServedEngine.speed_only | {"reuse_folder", "reuse_answers"}

    prompts: dict[str, str] = Field(description="The prompt of each task.")
    sampling: dict[str, Any] = Field(default={}, description="Added to every request; overrides the retry plan.")
    scripts: list[str] = Field(
        default=["HANGUL", "LATIN", "GREEK"],
        description="Expected scripts, by the first word of their letters' Unicode names; CJK is Hanja, Chinese and "
        "Kanji, HIRAGANA and KATAKANA are Kana. A region mostly in another script is read again at another size: it "
        "stands when two readings agree in 90 % of their characters, and fails otherwise. Formulas are not checked.",
    )
    tries: int = Field(
        default=4,
        ge=1,
        description="Most attempts at one region before it is `failed`; with 1, an empty region and one in an "
        "unexpected script fail, because no second reading confirms them.",
    )
    line_height: int | None = Field(
        default=None,
        ge=12,
        description="Pixels that a line of text should have, about the size of its type: a region with higher lines is "
        "scaled down to it, never up, and read again at full size if its answer is doubtful. 10 points have 42 at "
        "300 dpi, 28 at 200 dpi, 21 at 150 dpi. null sends regions as they are.",
    )
    reuse_folder: ProfileOnly[str] = Field(default="", description="Folder of the answer cache; empty for none.")
    reuse_answers: int = Field(
        default=1_000_000,
        ge=0,
        description="Most answers in the cache, about 1 GB per million; the least recently used are dropped first.",
    )

    @field_validator("prompts")
    @classmethod
    def _complete(cls, prompts: dict[str, str]) -> dict[str, str]:
        unknown = set(prompts) - set(cls.default_prompts)
        if unknown:
            read = ", ".join(sorted(cls.default_prompts))
            raise ValueError(f"{sorted(unknown)[0]!r} is not read; prompts are for {read}")
        return by_name(cls.default_prompts) | prompts

    def recipe(self) -> dict[str, Any]:
        """Add the room for answers; beyond it an answer is cut off and fails."""
        return {**super().recipe(), "max_model_len": self.server.max_model_len}

    def weights(self) -> dict[str, str]:
        return {**super().weights(), **releases("opencv-python-headless")}

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        jobs = (
            ReadingJob(page.page_id, b"" if page.packed else bytes(page.data), tuple(regions), page.packed)
            for page, regions in pages
        )
        yield from self.run_jobs(
            jobs,
            partial(VlmReader, self.request_settings()),
            lambda job, reason: PageReading(job.page_id, State.FAILED, reason),
        )

    @property
    def expected_scripts(self) -> frozenset[str]:
        return frozenset(self.scripts)

    def remedy(self, script: str) -> str:
        return phrase("add {script} to recognition.scripts", script)

    @abstractmethod
    def most_image_tokens(self) -> int:
        """Return the most tokens of one region's image."""

    @abstractmethod
    def image_maker(self) -> ImageMaker:
        """Return the function that makes a crop's image, which client processes import."""

    def picture_settings(self) -> list[Any]:
        """Return the settings that shape the images of a region."""
        return [self.most_image_tokens()]

    def request_settings(self) -> RequestSettings:
        """Return what requests contain and how answers are judged."""
        sampling = {**self.default_sampling, **self.sampling}
        versions = [self.image_version.number, REQUESTS.number]
        common = [sampling, *self.picture_settings(), self.weights(), *versions]
        if self.line_height is not None:
            common.append(self.line_height)
        return RequestSettings(
            prompts=self.prompts,
            sampling=sampling,
            scripts=self.expected_scripts,
            most_attempts=self.tries,
            context=self.server.max_model_len,
            first_answer=self.first_answer,
            make_image=self.image_maker(),
            line_height=self.line_height,
            clean=self.clean_answer,
            fingerprints={name: fingerprint([prompt, *common]) for name, prompt in self.prompts.items()},
            cache_folder=Path(self.reuse_folder) if self.reuse_folder else None,
            cache_size=self.reuse_answers,
        )


def by_name(prompts: Mapping[Any, str]) -> dict[str, str]:
    """Return prompts with the keys that a profile uses."""
    return {str(name): prompt for name, prompt in prompts.items()}
