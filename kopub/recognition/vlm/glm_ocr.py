"""The default GPU recognizer: GLM-OCR on a model server."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from pydantic import Field

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Task
from kopub.recognition.vlm.client.chat_requests import PROMPTS
from kopub.recognition.vlm.client.glm import clean
from kopub.recognition.vlm.client.region_images import MAX_TOKENS, VERSION, ImageMaker, region_image
from kopub.recognition.vlm.recognizer import VlmRecognizer, by_name
from kopub.vllm.served_engine import ModelMemory


class GlmOcrRecognizer(VlmRecognizer):
    """Reads regions with GLM-OCR: text, tables as HTML, formulas as LaTeX; pictures become crops."""

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "recognition.glm_ocr",
        {
            1: "the first release",
            2: "tags and signs printed in a table are text, a row without own cells stays; "
            "tables and formulas of which nothing is read are blank, captions of parts are words apart, "
            "several displays are the lines of one formula",
        },
    )
    clean_answer: ClassVar[Callable[[str, Task], str]] = staticmethod(clean)
    image_version: ClassVar[CodeVersion] = VERSION
    default_prompts: ClassVar[Mapping[Task, str]] = PROMPTS
    # Weights include the draft layer; 16 layers of 8 heads of 128; 29 GB of activations for 131,072 tokens on a B200.
    model_memory: ClassVar[ModelMemory | None] = ModelMemory(
        weights=2_650_000_000, cached_token=65_536, step_token=223_000
    )
    limits: ClassVar[tuple[str, ...]] = (
        "A table too large for the model is read in strips from top to bottom; a cell that spans a cut is two cells.",
    )

    prompts: dict[str, str] = Field(default=by_name(PROMPTS), description="The prompt of each task.")

    def recipe(self) -> dict[str, Any]:
        return {**super().recipe(), "max_image_tokens": self.server.max_image_tokens}

    def most_image_tokens(self) -> int:
        return min(MAX_TOKENS, self.server.max_image_tokens)

    def image_maker(self) -> ImageMaker:
        return partial(region_image, max_tokens=self.most_image_tokens())
