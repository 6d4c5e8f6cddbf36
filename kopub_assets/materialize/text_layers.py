"""How the text layers of PDFs enter the recipes of the assets that use them, of the pages that have one alone."""

from collections.abc import Mapping
from typing import Any

from resources.pages.corpus import Corpus
from resources.texts.layers.extracted_text import CODE


def text_layer_settings(corpus: Corpus, shard: str, use: str) -> Mapping[str, str]:
    """The settings of a shard that has pages with a text layer, of which the asset makes `use`; none of another."""
    if not corpus.manifest.shard(shard).text_layers:
        return {}
    return {"pdf.text_layer": use, CODE.name: str(CODE.number)}


def layer_made_from(layer: str | None) -> list[Any]:
    """What a row is made from besides: its page's `text_layer_id`, and the code that judges it."""
    return [] if layer is None else [layer, CODE.number]
