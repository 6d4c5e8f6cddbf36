"""Counts what text layers gave to the tables."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from kopub.errors import counted
from kopub.recognition.regions import TextOrigin
from kopub.states import Reason, phrase
from kopub.store.corpus_tables import TABLES

if TYPE_CHECKING:
    from kopub.store.table_store import TableStore

SOUND, UNSOUND = "sound", "unsound"
"""The kinds of text layers in `parsed_texts`."""


def layer_figures(table: pa.Table) -> dict[str, float]:
    """Count the sound and unsound layers of a `parsed_texts` table, with the usual distance.

    Empty if no page was compared with a layer.
    """
    states = Counter(filter(None, table["text_layer"].to_pylist()))
    if not states:
        return {}
    figures: dict[str, float] = {"text_layers_sound": states[SOUND], "text_layers_unsound": states[UNSOUND]}
    distances = table["text_layer_distance"].drop_null().to_pylist()
    if distances:
        figures["text_layer_distance"] = median(distances)
    return figures


@dataclass(frozen=True, slots=True)
class FromLayers:
    """Counts of regions with text from the PDF, all regions, and pages."""

    regions: int = 0
    of: int = 0
    pages: int = 0

    def __add__(self, other: "FromLayers") -> "FromLayers":
        return FromLayers(self.regions + other.regions, self.of + other.of, self.pages + other.pages)

    @property
    def line(self) -> Reason:
        """The counts in a line."""
        form = "text of {count:,} of {regions} on {pages} taken from the text layers of PDFs"
        return phrase(form, self.regions, counted(self.of, "region"), counted(self.pages, "page"))


def from_layers(store: "TableStore", shards: Iterable[str]) -> FromLayers:
    """Count the regions of `shards` whose text comes from text layers.

    Only one small column of each table is read. Raises `StoreError`.
    """
    counts = FromLayers()
    for shard in shards:
        with store.open(TABLES.readings.name, shard) as table:
            readings = table.read(columns=["regions.list.element.origin"])["regions"].to_pylist()
        for page in readings:
            regions = sum(region["origin"] == TextOrigin.TEXT_LAYER for region in page or ())
            counts += FromLayers(regions, len(page or ()), int(regions > 0))
    return counts
