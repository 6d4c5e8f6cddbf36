"""What each asset is made with, as a fingerprint: of its own code and engine, and of what its parents hold."""

import json
from collections.abc import Mapping
from typing import Any

from resources.code_version import CodeVersion
from resources.engine import Engine
from resources.fingerprints import fingerprint

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

CODE: dict[str, CodeVersion] = {asset: CodeVersion(asset, {1: "the first release"}) for asset in PARENTS}
"""The version of what shapes an asset's rows besides its engine."""

ENGINE: dict[str, str] = {
    "layout_regions": "layout",
    "ocr_results": "recognition",
    "corpus_image_embeddings": "embedding",
    "corpus_text_embeddings": "embedding",
    "query_embeddings": "embedding",
    "hf_release": "release",
}
"""The resource, and section of a profile, whose engine makes an asset; the others are made by code alone."""


def own_recipe(asset: str, *engines: Engine) -> str:
    """Fingerprint of an asset's code and engines, without its parents: the part of a row that is not input."""
    return fingerprint(_parts(asset, engines))


def made_with(asset: str, *engines: Engine) -> str:
    """What `own_recipe` is the fingerprint of, as JSON."""
    return json.dumps(_parts(asset, engines), sort_keys=True, ensure_ascii=False)


def engines_of(asset: str, resources: Mapping[str, Any]) -> tuple[Engine, ...]:
    """The engines that make an asset, of `resources` by the names that assets ask for them."""
    return (resources[ENGINE[asset]],) if asset in ENGINE else ()


def recipe(own: str, made_from: Mapping[str, str]) -> str:
    """Fingerprint of how a table came to be: its own recipe, and the contents of the tables it was made from.

    It follows every change back to the source, but no further than the first table that it leaves as it was.
    """
    return fingerprint({"own": own, "parents": dict(made_from)})


def _parts(asset: str, engines: tuple[Engine, ...]) -> dict[str, Any]:
    return {"version": CODE[asset].number, "engines": [engine.recipe() for engine in engines]}
