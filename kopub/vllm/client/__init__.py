"""The HTTP client of model servers, and the pool of worker processes that use it.

A worker process imports no Dagster, torch, transformers, vLLM or pandas, so that it starts in a fraction of a second.
"""
