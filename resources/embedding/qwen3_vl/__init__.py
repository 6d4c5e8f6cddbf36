"""Qwen3-VL-Embedding on a model server."""
