"""What each asset is made with, as a fingerprint: of its own code and engine, and of its parents' recipes."""

from collections.abc import Mapping

from resources.engine import Engine
from resources.recipe import code_fingerprint, fingerprint

PARENTS: dict[str, tuple[str, ...]] = {
    "raw_pages": (),
    "layout_regions": ("raw_pages",),
    "ocr_results": ("raw_pages", "layout_regions"),
    "parsed_texts": ("ocr_results",),
    "corpus_image_embeddings": ("raw_pages",),
    "corpus_text_embeddings": ("parsed_texts",),
    "query_embeddings": (),
    "hf_release": (
        "raw_pages",
        "layout_regions",
        "ocr_results",
        "parsed_texts",
        "corpus_image_embeddings",
        "corpus_text_embeddings",
        "query_embeddings",
    ),
}
"""The tables that each asset reads; the assets in the order they are made."""

CODE: dict[str, tuple[str, ...]] = {
    "raw_pages": ("kopub_assets.raw_pages", "resources.pages.images", "resources.pages.ids", "resources.pages.corpus"),
    "layout_regions": ("kopub_assets.layout_regions",),
    "ocr_results": ("kopub_assets.ocr_results", "resources.recognition.markdown", "resources.recognition.crops"),
    "parsed_texts": ("kopub_assets.parsed_texts", "resources.recognition.text"),
    "corpus_image_embeddings": ("kopub_assets.corpus_image_embeddings",),
    "corpus_text_embeddings": ("kopub_assets.corpus_text_embeddings",),
    "query_embeddings": ("kopub_assets.query_embeddings",),
    "hf_release": (
        "kopub_assets.hf_release",
        "resources.release.card",
        "resources.release.configs",
        "resources.release.inventory",
        "resources.release.licences",
        "resources.release.local",
    ),
}
"""The modules that shape an asset's rows besides its engine's own."""


def own_recipe(asset: str, *engines: Engine) -> str:
    """Fingerprint of an asset's code and engines, without its parents: the part of a row that is not input."""
    return fingerprint({"code": code_fingerprint(CODE[asset]), "engines": [engine.recipe() for engine in engines]})


def recipe(own: str, parents: Mapping[str, str]) -> str:
    """Fingerprint of how a table came to be, back to the source: its own recipe and its parents' recipes."""
    return fingerprint({"own": own, "parents": dict(parents)})
