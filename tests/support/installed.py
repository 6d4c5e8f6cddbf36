"""Skips for tests whose packages may be missing; each names the command that installs them."""

from importlib.util import find_spec
from typing import Any

import pytest

_LOCKED = "pip install -c requirements.lock "
_INSTALL = {
    "apted": "-e '.[eval]'",
    "axe_playwright_python": "--group dev",
    "dagster_k8s": "-e '.[k8s]'",
    "dagster_postgres": "-e '.[postgres]'",
    "dagster_ray": "-e '.[ray]'",
    "fuzzysearch": "-e '.[eval]'",
    "hatchling": "--group dev",
    "ir_measures": "--group dev",
    "kubernetes": "-e '.[k8s]'",
    "kubernetes_validate": "--group dev",
    "langchain_core": "-e '.[recipes]'",
    "lancedb": "-e '.[sinks]'",
    "llama_index": "-e '.[recipes]'",
    "mcp": "-e '.[mcp]'",
    "mteb": "torch 'mteb>=2.26,<3'",
    "pillow_heif": "-e '.[heic]'",
    "playwright": "--group dev",
    "psycopg2": "-e '.[sinks]'",
    "pycocotools": "-e '.[eval]'",
    "pylatexenc": "-e '.[eval]'",
    "pynvml": "nvidia-ml-py",
    "pywuffs": "-e '.[fast-png]'",
    "qdrant_client": "-e '.[sinks]'",
    "sqlalchemy": "-e '.[postgres]'",
    "tokenizers": "torch transformers",
    "torch": "torch transformers",
    "transformers": "torch transformers",
}
"""The arguments of `pip install -c requirements.lock` by imported package."""

NO_POSTGRES = "Postgres is not installed: apt-get install postgresql"
NO_PGVECTOR = "Postgres has no pgvector: apt-get install postgresql-17-pgvector, or pip install pgserver"
NO_CHROMIUM = "Chromium is not installed: apt-get install chromium fonts-noto-cjk"


def imported(module: str) -> Any:
    """Return the module, or skip the test or whole file where it is missing."""
    return pytest.importorskip(module, reason=_reason(module))


def needs(*modules: str) -> pytest.MarkDecorator:
    """Return a mark that skips the test where a module is missing, importing none."""
    missing = [module for module in modules if find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason="; ".join(map(_reason, missing)))


def _reason(module: str) -> str:
    return f"{module} is not installed: {_LOCKED}{_INSTALL[module.partition('.')[0]]}"
