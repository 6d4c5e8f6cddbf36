"""The engines of search: embedders, and rerankers of what was found."""

from resources.base import ProfileResource
from resources.server import ServedResource


class HashedEmbeddingResource(ProfileResource):
    """Vectors of hashed words, without a model."""

    dim: int
    threads: int


class SentenceEmbeddingResource(HashedEmbeddingResource):
    """Vectors of meaning for passages, beside those of hashed words, without a GPU."""


class Qwen3VLEmbeddingResource(ServedResource):
    """Vectors of page images and texts by Qwen3-VL-Embedding."""

    dim: int
    width: int
    instruction: str
    query_instruction: str
    max_tokens: int
    max_pixels: int


class NoRerankingResource(ProfileResource):
    """No reranking: pages stay in the order in which search found them."""

    depth: int
    sees: str
    search_seconds: float


class Qwen3VLRerankingResource(ServedResource):
    """The order of found pages by Qwen3-VL-Reranker."""

    depth: int
    sees: str
    search_seconds: float
    instruction: str
    max_tokens: int
    max_pixels: int
