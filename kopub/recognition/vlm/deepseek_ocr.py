"""The recognizer by DeepSeek-OCR on a model server, and the requirements for its server."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Task
from kopub.recognition.vlm.client.deepseek import VERSION, TiledImage, TiledImage2, clean, tiled_image
from kopub.recognition.vlm.client.region_images import ImageMaker
from kopub.recognition.vlm.recognizer import VlmRecognizer, by_name
from kopub.vllm.served_engine import ModelMemory
from kopub.vllm.server_fields import VLLMServerFields

CONTEXT = 8192
"""Number of positions with which the model was trained; vLLM does not start with more."""
LOGITS_PROCESSOR = "kopub.vllm.plugin.ngram_guard:NGramGuard"
"""The guard against loops that a server should load."""
VLLM_LOGITS_PROCESSOR = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
"""vLLM's own guard, which takes more host time, for a vLLM whose environment lacks this project."""
_FLAG = "--logits-processors"
_FIRST, _SECOND = "deepseek-ocr", "deepseek-ocr-2"
"""Names, or prefixes of names, of the repositories and folders of the two generations."""
RUNNER = {"VLLM_USE_V2_MODEL_RUNNER": "0"}
"""The environment in which vLLM uses its older model runner, because the newer one refuses this logits processor."""

MARKDOWN = "<|grounding|>Convert the document to markdown."
"""The authors' prompt for reading documents; vLLM puts the image and a line break before it, as they do."""
SAMPLING: Mapping[str, Any] = MappingProxyType(
    {
        # Grounding tags and table cell tags are special tokens; if skipped, a table's cells would run together.
        "skip_special_tokens": False,
        # The authors' guard against loops: no 30 tokens twice among the last 90, except <td> and </td>.
        "vllm_xargs": {"ngram_size": 30, "window_size": 90, "whitelist_token_ids": [128_821, 128_822]},
    }
)
# There are 12 layers of 10 heads of 128. SAM's attention over all 4,096 patches of the view keeps 12 heads' matrices
# twice.
MEMORY = ModelMemory(weights=6_670_000_000, cached_token=61_440, step_token=200_000, picture=800_000_000)
_PROMPTS: Mapping[Task, str] = MappingProxyType(
    # In grounded markdown, tables are HTML and formulas LaTeX.
    {Task.TEXT: "Free OCR.", Task.TABLE: MARKDOWN, Task.FORMULA: MARKDOWN}
)


class DeepSeekOcrRecognizer(VlmRecognizer):
    """Reads regions with DeepSeek-OCR: text, tables as HTML, formulas as LaTeX; pictures become crops.

    Prompts, images and sampling are the authors' own (Wei et al., 2025, arXiv 2510.18234). The server must run with the
    logits processor that keeps the model out of loops; this cannot be checked for an external server.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "recognition.deepseek_ocr",
        {
            1: "the first release",
            2: "tags and signs printed in a table are text, a row without own cells stays; "
            "tables and formulas of which nothing is read are blank, captions of parts are words apart, "
            "several displays are the lines of one formula",
        },
    )
    clean_answer: ClassVar[Callable[[str, Task], str]] = staticmethod(clean)
    image_version: ClassVar[CodeVersion] = VERSION
    default_prompts: ClassVar[Mapping[Task, str]] = _PROMPTS
    default_sampling: ClassVar[Mapping[str, Any]] = SAMPLING
    model_memory: ClassVar[ModelMemory | None] = MEMORY
    limits: ClassVar[tuple[str, ...]] = (
        "A region is seen at 1024 pixels and in at most six tiles of 640, A4 at about 155 dpi: "
        "smaller print of a region that fills the page is not read well.",
        "A table too long for an answer is read in strips from top to bottom; a cell that spans a cut is two cells.",
    )

    prompts: dict[str, str] = Field(default=by_name(_PROMPTS), description="The prompt of each task.")
    ocr2: bool = Field(default=False, description="The server serves DeepSeek-OCR-2, whose tiles have 768 pixels.")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_server(self.server, self.ocr2)
        return self

    def most_image_tokens(self) -> int:
        return image_kind(self.ocr2).views.most_tokens

    def image_maker(self) -> ImageMaker:
        return partial(tiled_image, kind=image_kind(self.ocr2))


def image_kind(ocr2: bool) -> type[TiledImage]:
    """Return the class of images for DeepSeek-OCR, or for DeepSeek-OCR-2."""
    return TiledImage2 if ocr2 else TiledImage


def check_server(server: VLLMServerFields, ocr2: bool = False) -> None:
    """Raise `ValueError` if a server cannot serve the model or lacks its guard."""
    name = Path(server.model).name.lower()
    if ocr2 and name == _FIRST:
        raise ValueError(f"ocr2: {server.model} is the first DeepSeek-OCR; leave ocr2 out, or serve DeepSeek-OCR-2")
    if not ocr2 and name.startswith(_SECOND):
        raise ValueError(f"ocr2: {server.model} has larger tiles than the first DeepSeek-OCR; set ocr2 to true")
    most = image_kind(ocr2).views.most_tokens
    if server.max_model_len > CONTEXT:
        raise ValueError(f"server.max_model_len: DeepSeek-OCR takes {CONTEXT} tokens, not {server.max_model_len}")
    if server.max_image_tokens < most:
        raise ValueError(f"server.max_image_tokens: {server.max_image_tokens} is less than the {most} of its images")
    guards = (LOGITS_PROCESSOR, VLLM_LOGITS_PROCESSOR)
    if server.mode == "managed" and not any(guard in flag for guard in guards for flag in server.extra_flags):
        raise ValueError(f"server.extra_flags: DeepSeek-OCR falls into loops without {_FLAG}={LOGITS_PROCESSOR}")
    if server.mode == "managed" and not RUNNER.items() <= server.env.items():
        raise ValueError(
            "server.env: vLLM's newer model runner refuses DeepSeek-OCR's logits processor; "
            'set VLLM_USE_V2_MODEL_RUNNER: "0"'
        )
