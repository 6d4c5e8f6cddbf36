"""The base of engines whose clients count tokens with the model's own tokenizer."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from pydantic import Field

from kopub.embedding.qwen3_vl_inputs import preload_tokenizer
from kopub.engine import ProfileOnly, missing_modules, releases, require_installed
from kopub.errors import EngineError
from kopub.fingerprints import file_sha256
from kopub.vllm.served_engine import ModelMemory, ServedEngine
from kopub.weights.hub import Weights, translate_hub_errors

TOKENIZER = "tokenizer.json"
# Qwen3-VL has 28 layers of 8 heads of 128, and an encoder as large as GLM-OCR's, four layers of which are kept; the
# large one has 36 layers of twice the width.
MEMORY_2B = ModelMemory(weights=4_260_000_000, cached_token=114_688, step_token=200_000)
MEMORY_8B = ModelMemory(weights=16_290_000_000, cached_token=147_456, step_token=400_000)


class TokenizedEngine(ServedEngine):
    """An engine on a server that needs the model's tokenizer beside it."""

    section: ClassVar[str]
    """The profile section in which the engine is configured."""
    speed_only: ClassVar[frozenset[str]] = ServedEngine.speed_only | {"tokenizer"}

    tokenizer: ProfileOnly[str] = Field(
        default="", description="The model's tokenizer.json; empty: the one beside its weights."
    )

    def weights(self) -> dict[str, str]:
        own = {"tokenizer": file_sha256(Path(self.tokenizer))} if self.tokenizer else {}
        return {**super().weights(), **own, **releases("torch", "opencv-python-headless")}

    def not_installed(self) -> list[str]:
        return [*missing_modules("torch", "tokenizers"), *super().not_installed()]

    def tokenizer_file(self) -> Path:
        """Return the tokenizer's file, fetched from the Hub if needed."""
        from huggingface_hub import hf_hub_download

        require_installed([self])
        path = self.own_tokenizer
        if path.is_file():
            return path
        if self.tokenizer or self.server.revision is None:
            form = "there is no {path}; name the model's tokenizer.json in the {section}'s `tokenizer`"
            raise EngineError(form, path, self.section)
        with translate_hub_errors(Weights(self.server.model, self.server.revision, (self.section,))):
            return Path(hf_hub_download(self.server.model, TOKENIZER, revision=self.server.revision))

    def preload_calls(self) -> tuple[Callable[[], object], ...]:
        """Return the calls that preload the tokenizer, if it is on this machine."""
        from huggingface_hub import try_to_load_from_cache

        path: Any = self.own_tokenizer
        if not path.is_file() and not self.tokenizer and self.server.revision is not None:
            with suppress(ValueError):  # no repository can have such a name, which the download will report
                path = try_to_load_from_cache(self.server.model, TOKENIZER, revision=self.server.revision)
        return (partial(preload_tokenizer, Path(path)),) if isinstance(path, str | Path) else ()

    @property
    def own_tokenizer(self) -> Path:
        """The tokenizer's file, unless the model is a repository."""
        return Path(self.tokenizer or Path(self.server.checkpoint) / TOKENIZER).expanduser()
