"""A vLLM plugin that gives GLM-OCR and PaddleOCR-VL vision encoders which the host never waits for.

vLLM finds it by the entry point `vllm.general_plugins` of this project and calls `register` in each of
its processes. It changes nothing unless the server's environment asks for it. A flag of DeepSeek-OCR's server has
vLLM load `ngram_guard` by its name.
"""

import os
from collections.abc import Mapping
from types import MappingProxyType

from resources.code_version import CodeVersion

GLM_OCR = "KOPUB_GLM_OCR_ENCODER"
PADDLEOCR_VL = "KOPUB_PADDLEOCR_VL_ENCODER"
"""Environment variables of the server; 1 turns the encoder of that model on."""
VERSIONS: Mapping[str, CodeVersion] = MappingProxyType(
    {
        GLM_OCR: CodeVersion("vllm.glm_ocr_encoder", {1: "the first release"}),
        PADDLEOCR_VL: CodeVersion("vllm.paddleocr_vl_encoder", {1: "the first release"}),
    }
)
"""By switch, of what computes in place of vLLM's own encoder when it is on."""
_MODELS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        GLM_OCR: ("GlmOcrForConditionalGeneration", "resources.vllm.plugin.glm_ocr:GlmOcr"),
        PADDLEOCR_VL: ("PaddleOCRVLForConditionalGeneration", "resources.vllm.plugin.paddleocr_vl:PaddleOcrVl"),
    }
)
"""By switch, vLLM's name of the model and the class that takes its place."""


def encoders(environment: Mapping[str, str]) -> str:
    """Return the encoders that an environment turns on, with their versions; empty for none."""
    on = (version for switch, version in VERSIONS.items() if environment.get(switch) == "1")
    return ", ".join(f"{version.name} {version.number}" for version in on)


def register() -> None:
    """Have vLLM build the models whose switch is on with the encoders of this package."""
    wanted = [names for switch, names in _MODELS.items() if os.environ.get(switch) == "1"]
    if not wanted:
        return
    from vllm.model_executor.models.registry import ModelRegistry

    for architecture, ours in wanted:
        # By name: importing the model here would start CUDA in processes that fork.
        ModelRegistry.register_model(architecture, ours)
