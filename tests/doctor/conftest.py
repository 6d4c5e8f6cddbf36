"""The managed server of the tests of vLLM, for the doctor's."""

from tests.vllm.conftest import checkpoint, fields, runtime

__all__ = ["checkpoint", "fields", "runtime"]
