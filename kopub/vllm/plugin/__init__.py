"""A vLLM plugin with vision encoders for GLM-OCR and PaddleOCR-VL that never block the host.

vLLM finds it through this project's entry point `vllm.general_plugins`, and calls `register` in each of its processes.
It changes nothing unless the server's environment asks for it. A flag of DeepSeek-OCR's server makes vLLM load
`ngram_guard` by name.
"""

import os
from collections.abc import Collection, Mapping
from types import MappingProxyType

from kopub.fingerprints import CodeVersion

GLM_OCR = "KOPUB_GLM_OCR_ENCODER"
PADDLEOCR_VL = "KOPUB_PADDLEOCR_VL_ENCODER"
"""Environment variables of the server; the value 1 turns on the encoder for that model."""
VERSIONS: Mapping[str, CodeVersion] = MappingProxyType(
    {
        GLM_OCR: CodeVersion("vllm.glm_ocr_encoder", {1: "the first release"}),
        PADDLEOCR_VL: CodeVersion("vllm.paddleocr_vl_encoder", {1: "the first release"}),
    }
)
"""The versions of the encoders that replace vLLM's own, by switch."""
_MODELS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        GLM_OCR: ("GlmOcrForConditionalGeneration", "kopub.vllm.plugin.glm_ocr:GlmOcr"),
        PADDLEOCR_VL: ("PaddleOCRVLForConditionalGeneration", "kopub.vllm.plugin.paddleocr_vl:PaddleOcrVl"),
    }
)
"""vLLM's name for the model and the class that replaces it, by switch."""


def encoders(environment: Mapping[str, str]) -> str:
    """Return the encoders that an environment turns on, with their versions, if any."""
    on = (version for switch, version in VERSIONS.items() if environment.get(switch) == "1")
    return ", ".join(f"{version.name} {version.number}" for version in on)


def register() -> None:
    """Make vLLM build models whose switch is on with the encoders of this package."""
    wanted = [names for switch, names in _MODELS.items() if os.environ.get(switch) == "1"]
    if not wanted:
        return
    from vllm.model_executor.models.registry import ModelRegistry

    for architecture, ours in wanted:
        # The model is registered by name, because importing it here would start CUDA in processes that fork.
        ModelRegistry.register_model(architecture, ours)


def find_repeating(tokens: list[int], size: int, window: int, allowed: Collection[int]) -> set[int]:
    """Return the next tokens that would repeat `size` tokens within the last `window`.

    Tokens in `allowed` are never returned. By vLLM's definition, nothing repeats if `size` is 1 or exceeds `window`.
    """
    found: set[int] = set()
    length = len(tokens)
    if length < size or size < 2:
        return found
    first, last = tokens[1 - size], tokens[-1]
    place = max(0, length - window) + size - 2
    # This runs for each request in each step, so two calls into C find the few earlier places of the last token.
    for _ in range(tokens[place : length - 1].count(last)):
        place = tokens.index(last, place) + 1
        token, begin = tokens[place], place + 1 - size
        new = tokens[begin] == first and token not in allowed and token not in found
        if new and tokens[begin:place] == tokens[1 - size :]:
            found.add(token)
    return found
