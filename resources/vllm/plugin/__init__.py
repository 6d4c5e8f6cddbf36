"""A vLLM plugin that gives GLM-OCR a vision encoder which the host never waits for.

vLLM finds it by the entry point `vllm.general_plugins` of this project and calls `register` in each of
its processes. It changes nothing unless the server's environment asks for it.
"""

import os

from resources.code_version import CodeVersion

SWITCH = "KOPUB_GLM_OCR_ENCODER"
"""Environment variable of the server; 1 turns the encoder on."""
VERSION = CodeVersion("vllm.glm_ocr_encoder", {1: "the first release"})
"""Of what computes in place of vLLM's own encoder when it is on."""


def register() -> None:
    """Have vLLM build GLM-OCR with the encoder of `resources.vllm.plugin.glm_ocr`."""
    if os.environ.get(SWITCH) != "1":
        return
    from vllm.model_executor.models.registry import ModelRegistry

    # By name: importing the model here would start CUDA in processes that fork.
    ModelRegistry.register_model("GlmOcrForConditionalGeneration", "resources.vllm.plugin.glm_ocr:GlmOcr")
