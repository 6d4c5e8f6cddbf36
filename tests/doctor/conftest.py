"""The fixtures of the vLLM tests for a managed server."""

from tests.vllm.conftest import checkpoint, fields, runtime

__all__ = ["checkpoint", "fields", "runtime"]
