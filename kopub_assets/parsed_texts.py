"""A page as plain text, the way a search reads it, and whether that text looks right."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from kopub_assets.asset import Metadata
from kopub_assets.checks import Check
from kopub_assets.metadata import first_text
from kopub_assets.ocr_results import OcrResults, layer_made_from, text_layer_settings
from kopub_assets.raw_pages import RawPages
from kopub_assets.row_table import RowTable
from kopub_assets.rows import Row, RowResult, RowSpec, ShardResult, page_rows, with_parent
from resources.config.choices import Pdf
from resources.config.settings import Resources
from resources.corrections.corrected import CorrectedTables
from resources.corrections.log import CorrectionLog
from resources.fingerprints import CodeVersion
from resources.layout.regions import PICTURES
from resources.pages.documents.text_layer import TextLayer
from resources.recognition.content import main_script
from resources.recognition.regions import RegionText, region_texts
from resources.states import State
from resources.store.corpus_tables import TABLES, Table
from resources.texts.extracted_text import SOUND, UNSOUND, compare, layer_figures, unsound
from resources.texts.markdown import page_text
from resources.texts.text_quality import (
    DOUBTFUL,
    Doubt,
    JudgedRegion,
    by_weight,
    doubtful,
    doubts,
    total,
    unexpected_scripts,
)

TEXTS_LOOK_RIGHT = Check(
    "texts_look_right",
    "No text is garbled, repeats itself, lacks its Hangul or most of what its regions should hold; names those that "
    "look so, worst first.",
    blocking=False,
)
_NAMED, _SHOWN = 5, 50
"""Doubtful pages in a check's sentence, and in the table that the UI shows: both live in the event log."""
_COLUMNS = ("index", "native_label", "content", "bbox_2d", "finish_reason", "state")


@dataclass(frozen=True, slots=True)
class _ReadPage:
    """The reading of a page, and its text layer where that is compared."""

    regions: Sequence[Row]
    page_idx: int
    layer: str | None


class ParsedTexts(RowTable):
    """The text of every page in reading order, without markup. A page without a character is `blank`.

    A text that looks wrong keeps its state: `doubt` and `doubts` say so. Where the profile asks for it, a page is held
    against the text layer of its PDF. What people corrected counts instead of what was read.
    """

    table: ClassVar[Table] = TABLES.texts
    code_version: ClassVar[CodeVersion] = CodeVersion(
        "parsed_texts",
        {
            1: "the first release",
            2: "pages of pictures, of ink without text, and of signs alone are doubted",
            3: "a doubt about repeated text says that print may repeat, too",
            4: "each text names its main script",
            5: "sentences without their marks are doubted; a layer names the script of a page that is read badly",
        },
    )
    parents = (RawPages, OcrResults)
    needs: ClassVar[tuple[str, ...]] = ("recognition", "pdf")
    checks: ClassVar[tuple[Check, ...]] = (*RowTable.checks, TEXTS_LOOK_RIGHT)

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        pdf: Pdf = resources["pdf"]
        self._compares = pdf.is_compared

    @property
    def settings(self) -> Mapping[str, Any]:
        return {"recognition.expected_scripts": sorted(self._scripts)}

    @property
    def _scripts(self) -> frozenset[str]:
        return self.resources["recognition"].expected_scripts

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        layers = text_layer_settings(self.corpus, shard, "check") if self._compares else {}
        return {**layers, **CorrectionLog(self.store).shard_settings(shard)}

    def rows(self, shard: str) -> Iterator[RowSpec]:
        pages = page_rows(self.store, RawPages.table, shard)
        columns = ["page_id", "regions", "state", "reason"]
        for page, row in with_parent(CorrectedTables(self.store), pages, OcrResults.table, shard, columns):
            regions = row["regions"] or []
            read = [{**{name: region[name] for name in _COLUMNS}, "unsure": _is_unsure(region)} for region in regions]
            layer = page["text_layer_id"] if self._compares else None
            given = _ReadPage(regions, page["page_idx"], layer)
            made_from = [self.recipe_hash, read, *layer_made_from(layer)]
            spec = RowSpec.after(row, made_from, {"page_id": row["page_id"]}, given)
            if row["state"] == State.BLANK and row["reason"]:
                # A page that may only look blank is not left without a word.
                doubt = {"doubt": 1.0, "doubts": [row["reason"]]}
                spec = replace(spec, predetermined={**(spec.predetermined or {}), **doubt})
            yield spec

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[RowResult]:
        layers = self.corpus.text_layers(shard) if any(page.given.layer for page in todo) else None
        for page in todo:
            readings = region_texts(page.given.regions)
            text = page_text(readings)
            found = doubts(text, boxes_of(page.given.regions), self._scripts)
            script, compared = main_script(text), Row()
            if layers is not None and (layer := layers.layer(page.id, page.given.page_idx, page.given.layer)):
                compared, differs = _compare(layer, readings, page.given.regions, self._scripts)
                found = by_weight([*found, *differs])
                written = main_script("".join(word.text for word in layer.words))
                # What is read of a script that the reader does not know is nonsense in those that it knows.
                if total(found) >= DOUBTFUL and unexpected_scripts([written], self._scripts):
                    script = written
            yield RowResult(
                page.id,
                {
                    "text": text,
                    "n_chars": len(text),
                    "script": script,
                    "doubt": total(found),
                    "doubts": [doubt.says for doubt in found],
                    **compared,
                    "state": State.OK if text else State.BLANK,
                },
            )

    def problems(self, made: ShardResult) -> Mapping[str, str | None]:
        wrong = doubtful(made.table)
        if not wrong:
            return {TEXTS_LOOK_RIGHT.name: None}
        first = "; ".join(f"{page.page_id}: {', '.join(page.doubts)}" for page in wrong[:_NAMED])
        return {TEXTS_LOOK_RIGHT.name: f"{len(wrong)} of {made.table.num_rows} pages look wrong: {first}"}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        wrong = doubtful(table)
        records = [
            {"page": page.page_id, "doubt": round(page.doubt, 3), "says": "; ".join(page.doubts)}
            for page in wrong[:_SHOWN]
        ]
        return {
            "characters": sum(filter(None, table["n_chars"].to_pylist())),
            "text": first_text(table, "text"),
            "doubtful": len(wrong),
            "doubtful_share": len(wrong) / table.num_rows if table.num_rows else 0.0,
            **layer_figures(table),
            **({"doubtful_pages": records} if records else {}),
        }


def _compare(
    layer: TextLayer, readings: Sequence[RegionText], regions: Sequence[Row], scripts: frozenset[str]
) -> tuple[Row, list[Doubt]]:
    """Return the columns of a page with a text layer, and what the layer says against its reading."""
    if (reason := unsound(layer, scripts)) is not None:
        return {"text_layer": UNSOUND, "text_layer_reason": reason}, []
    scale = (layer.width / 1000, layer.height / 1000) * 2
    boxes = [[edge * by for edge, by in zip(region["bbox_2d"], scale, strict=True)] for region in regions]
    found = compare(layer, readings, boxes)
    return {"text_layer": SOUND, "text_layer_distance": found.distance}, found.doubts()


def boxes_of(regions: Iterable[Row]) -> list[JudgedRegion]:
    """The regions of a page but those that failed or were left out on purpose, as rows of the readings hold them."""
    return [
        JudgedRegion(
            region["native_label"],
            (region["bbox_2d"][2] - region["bbox_2d"][0]) * (region["bbox_2d"][3] - region["bbox_2d"][1]),
            len("".join(region["content"].split())),
            region["finish_reason"] == "length",
            _is_unsure(region),
            picture=region["finish_reason"] == "skipped",
        )
        for region in regions
        if region["state"] != State.FAILED
        and (region["finish_reason"] != "skipped" or region["native_label"] in PICTURES)
    ]


def _is_unsure(region: Row) -> bool:
    """Return whether a region was read in doubt: the reason of one that is `ok` says so."""
    return region["state"] == State.OK and bool(region["reason"])
