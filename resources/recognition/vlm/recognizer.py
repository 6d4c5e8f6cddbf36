"""What the recognizers over a vision-language model have in common: they read a page region by region."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field, field_validator

from resources.code_version import CodeVersion
from resources.engine import releases
from resources.fingerprints import fingerprint
from resources.layout.regions import Region, Task
from resources.pages.page import Page
from resources.recognition.base import Recognizer
from resources.recognition.readings import PageReading
from resources.recognition.vlm.answers import as_written
from resources.recognition.vlm.chat_requests import VERSION as REQUESTS
from resources.recognition.vlm.page_reader import Manner, PageJob, VlmReader
from resources.recognition.vlm.region_images import Picture
from resources.states import State
from resources.vllm.served_engine import ServedEngine

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class VlmRecognizer(ServedEngine, Recognizer):
    """Text, tables as HTML, formulas as LaTeX; pictures are kept as crops. A subclass is one family of models.

    It declares a field `prompts` with a default for each task that is read.
    """

    picture_version: ClassVar[CodeVersion]
    """Of what makes a picture of a crop. What judges answers is not in it: that judges kept ones too."""
    own_prompts: ClassVar[Mapping[Task, str]]
    """What the model was trained to be asked, for every task that is read."""
    own_sampling: ClassVar[Mapping[str, Any]] = {}
    """What every request says beyond the picture, the prompt and what the ladder sets."""
    speed_only: ClassVar[frozenset[str]] = ServedEngine.speed_only | {"reuse_folder", "reuse_answers"}

    prompts: dict[str, str] = Field(description="What is asked, by task.")
    sampling: dict[str, Any] = Field(default={}, description="Added to every request; overrides what the ladder sets.")
    scripts: list[str] = Field(
        default=["HANGUL", "LATIN", "GREEK"],
        description="Scripts to expect, by their Unicode names; an answer mostly in another is looked at again.",
    )
    tries: int = Field(default=4, ge=1, description="Most answers asked for one region before it is `failed`.")
    reuse_folder: str = Field(default="", description="Where answers are kept for unchanged regions; empty keeps none.")
    reuse_answers: int = Field(
        default=1_000_000, ge=0, description="Most answers kept, about 1 GB a million; those not used longest go first."
    )

    @field_validator("prompts")
    @classmethod
    def _complete(cls, prompts: dict[str, str]) -> dict[str, str]:
        read = {task.value for task in cls.own_prompts}
        unknown = set(prompts) - read
        if unknown:
            raise ValueError(f"{sorted(unknown)[0]!r} is not read; prompts are for {', '.join(sorted(read))}")
        return by_name(cls.own_prompts) | prompts

    def recipe(self) -> dict[str, Any]:
        """Also the room that answers have: a longer one is cut off, and its region failed."""
        return {**super().recipe(), "max_model_len": self.server.max_model_len}

    def weights(self) -> dict[str, str]:
        return {**super().weights(), **releases("opencv-python-headless")}

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        jobs = (PageJob(page.page_id, bytes(page.data), tuple(regions)) for page, regions in pages)
        yield from self.run_jobs(jobs, partial(VlmReader, self._manner()), _lost)

    @abstractmethod
    def most_image_tokens(self) -> int:
        """Of a picture as it is sent."""

    @abstractmethod
    def picture(self) -> Callable[["NDArray[np.uint8]", float], Picture]:
        """What makes a picture of a crop at a scale; it travels to the client processes."""

    def plain(self) -> Callable[[str, Task], str]:
        """What makes plain words of an answer; it travels to the client processes."""
        return as_written

    def _manner(self) -> Manner:
        prompts = {Task(task): prompt for task, prompt in self.prompts.items()}
        sampling = {**self.own_sampling, **self.sampling}
        common = [sampling, self.most_image_tokens(), self.weights(), self.picture_version.number, REQUESTS.number]
        return Manner(
            prompts=prompts,
            sampling=sampling,
            scripts=frozenset(self.scripts),
            tries=self.tries,
            context=self.server.max_model_len,
            picture=self.picture(),
            plain=self.plain(),
            asked={task: fingerprint([prompt, *common]) for task, prompt in prompts.items()},
            reuse_folder=Path(self.reuse_folder) if self.reuse_folder else None,
            reuse_answers=self.reuse_answers,
        )


def by_name(prompts: Mapping[Task, str]) -> dict[str, str]:
    """Prompts as a profile writes them."""
    return {task.value: prompt for task, prompt in prompts.items()}


def _lost(job: PageJob, reason: str) -> PageReading:
    return PageReading(job.page_id, State.FAILED, reason)
