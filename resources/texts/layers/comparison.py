"""How far readings are from the text layers of their PDFs, and how many come from them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
from rapidfuzz.distance import Levenshtein

from resources.pages.documents.text_layer import Mark, TextLayer, Word
from resources.printable import counted
from resources.recognition.characters import letters
from resources.recognition.readings import Origin, RegionText
from resources.states import State
from resources.store.corpus_tables import TABLES
from resources.texts.layers.lines import lines_of, outside_of, text_of, words_of_regions
from resources.texts.markdown import page_text
from resources.texts.text_quality import Doubt, ramp

if TYPE_CHECKING:
    from resources.store.table_store import TableStore

SOUND, UNSOUND = "sound", "unsound"
"""What a layer is, in `parsed_texts`."""

_FEWEST = 20
"""Letters and digits from which a distance says something."""
_MOST_BARE = 0.25
"""Share of a region's ink without a word, from which the layer does not hold the region."""
_FORMULAS = frozenset({"display_formula", "inline_formula"})
_TABLE = "table"
_DISTANCE, _OUTSIDE = (0.03, 0.17), (0.2, 0.6)
"""From which distance, and share of letters in no region, a page is doubted, and where the doubt is certain."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a reading and a sound layer say of the same regions.

    `distance` is edits to the longer text, 0 to 1, over letters and digits; None where there are too few to tell.
    `outside` is the share of the layer's letters that stand in no region.
    """

    distance: float | None
    outside: float

    def doubts(self) -> list[Doubt]:
        """Return what speaks against the reading."""
        far = self.distance or 0.0
        return [
            Doubt("layer", ramp(far, *_DISTANCE), f"{far:.0%} of the letters differ from the text layer of its PDF"),
            Doubt(
                "layer",
                ramp(self.outside, *_OUTSIDE),
                f"{self.outside:.0%} of the letters in the text layer of its PDF are in no region",
            ),
        ]


def compare(layer: TextLayer, readings: Sequence[RegionText], boxes: Sequence[Sequence[float]]) -> Comparison:
    """`boxes` are those of the readings, in pixels.

    Failed regions, formulas and pictures are left out. Regions are compared one by one, so the order of reading plays
    no part. A table's cells may stand in another order: of it the letters count that only one of the two has.
    """
    edits = longest = 0
    for reading, within in zip(readings, words_of_regions(layer, boxes), strict=True):
        told = letters(page_text([reading]))
        printed = letters(text_of(lines_of(within.words)))
        was_read = reading.state is not State.FAILED and reading.finish_reason != "skipped"
        if was_read and printed and within.bare_share <= _MOST_BARE and reading.native_label not in _FORMULAS:
            measure = _unshared if reading.native_label == _TABLE else Levenshtein.distance
            edits += measure(told, printed)
            longest += max(len(told), len(printed))
    return Comparison(edits / longest if longest >= _FEWEST else None, _outside(layer, boxes))


def layer_figures(table: pa.Table) -> dict[str, float]:
    """Count the sound and unsound layers of a `parsed_texts` table, with the usual distance.

    Nothing where no page was held against a layer.
    """
    states = Counter(filter(None, table["text_layer"].to_pylist()))
    if not states:
        return {}
    distances = [distance for distance in table["text_layer_distance"].to_pylist() if distance is not None]
    usual = {"text_layer_distance": median(distances)} if distances else {}
    return {"text_layers_sound": states[SOUND], "text_layers_unsound": states[UNSOUND], **usual}


@dataclass(frozen=True, slots=True)
class FromLayers:
    """How many regions have their text from the PDF itself, of how many regions, and on how many pages."""

    regions: int = 0
    of: int = 0
    pages: int = 0

    def __add__(self, other: "FromLayers") -> "FromLayers":
        return FromLayers(self.regions + other.regions, self.of + other.of, self.pages + other.pages)

    def __str__(self) -> str:
        of = f"{self.regions:,} of {counted(self.of, 'region')} on {counted(self.pages, 'page')}"
        return f"text of {of} taken from the text layers of PDFs"


def from_layers(store: "TableStore", shards: Iterable[str]) -> FromLayers:
    """Count what the readings of `shards` have from text layers.

    Of each table one small column is read. Raises `StoreError`.
    """
    regions = of = pages = 0
    for shard in shards:
        with store.open(TABLES.readings.name, shard) as table:
            read = table.read(columns=["regions.list.element.origin"])["regions"].to_pylist()
        for page in read:
            taken = sum(region["origin"] == Origin.TEXT_LAYER for region in page or ())
            regions, of, pages = regions + taken, of + len(page or ()), pages + (taken > 0)
    return FromLayers(regions, of, pages)


def _unshared(a: str, b: str) -> int:
    return max((Counter(a) - Counter(b)).total(), (Counter(b) - Counter(a)).total())


def _outside(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> float:
    every, outside = (_count(words) for words in (layer.words, outside_of(layer, boxes)))
    return outside / every if outside >= _FEWEST else 0.0


def _count(words: Sequence[Word]) -> int:
    return sum(len(letters(word.text)) for word in words if not word.marks & Mark.NO_INK)
