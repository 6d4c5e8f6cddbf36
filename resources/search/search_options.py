"""What a search can be asked for, and the tables that it reads. Loads nothing, for the command line."""

from collections.abc import Mapping
from enum import StrEnum

MOST = 100
"""Pages that can be asked for: more than anybody looks through."""


class By(StrEnum):
    """The vectors of pages that a query is compared with; fusion is both."""

    TEXT = "text"
    IMAGE = "image"
    FUSION = "fusion"


VECTORS: Mapping[By, str] = {By.TEXT: "corpus_text_embeddings", By.IMAGE: "corpus_image_embeddings"}
"""The asset of each kind of vector."""
PAGES, READINGS = "raw_pages", "ocr_results"
"""The assets that a page is shown from: its place in the source, and the texts of its regions."""
