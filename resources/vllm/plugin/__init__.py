"""A vLLM plugin that gives GLM-OCR a vision encoder which the host never waits for.

vLLM finds it by the entry point `vllm.general_plugins` of this project and calls `register` in each of
its processes. It changes nothing unless the server's environment asks for it.
"""

import os

SWITCH = "KOPUB_GLM_OCR_ENCODER"
"""Environment variable of the server; 1 turns the encoder on."""
CODE = ("resources.vllm.plugin.glm_ocr", "resources.vllm.plugin.norm_rope")
"""Modules that compute in place of vLLM's own when it is on."""


def register() -> None:
    """Have vLLM build GLM-OCR with the encoder of `resources.vllm.plugin.glm_ocr`."""
    if os.environ.get(SWITCH) != "1":
        return
    from vllm.model_executor.models.registry import ModelRegistry

    # By name: importing the model here would start CUDA in processes that fork.
    ModelRegistry.register_model("GlmOcrForConditionalGeneration", "resources.vllm.plugin.glm_ocr:GlmOcr")
