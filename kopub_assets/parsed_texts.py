"""A page as plain text, the way a search reads it, and whether that text looks right."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import dagster as dg
import pyarrow as pa

from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.checks import Check
from kopub_assets.materialize.previews import first_text
from kopub_assets.materialize.row_table import RowTable
from kopub_assets.materialize.rows import MadeShard, Row, RowSpec
from kopub_assets.ocr_results import OcrResults
from resources.code_version import CodeVersion
from resources.recognition.read_regions import region_texts
from resources.states import State
from resources.store.corpus_tables import TABLES
from resources.store.table import Table
from resources.texts.plain_text import page_text
from resources.texts.text_quality import Box, doubtful, doubts, total

TEXTS_LOOK_RIGHT = Check(
    "texts_look_right",
    "No text is garbled, repeats itself, lacks its Hangul or most of what its regions should hold; names those that "
    "look so, worst first.",
    blocking=False,
)
_NAMED, _SHOWN = 5, 50
"""Doubtful pages in a check's sentence, and in the table that the UI shows: both live in the event log."""
_COLUMNS = ("index", "native_label", "content", "bbox_2d", "finish_reason", "state")


class ParsedTexts(RowTable):
    """The text of every page in reading order, without markup. A page without a character is `blank`.

    A text that looks wrong keeps its state: `doubt` and `doubts` say so.
    """

    table: ClassVar[Table] = TABLES.texts
    code_version: ClassVar[CodeVersion] = CodeVersion("parsed_texts", {1: "the first release"})
    parents = (OcrResults,)
    needs: ClassVar[tuple[str, ...]] = ("recognition",)
    checks: ClassVar[tuple[Check, ...]] = (*RowTable.checks, TEXTS_LOOK_RIGHT)

    @property
    def parameters(self) -> dict[str, Any]:
        return {"scripts": sorted(self._scripts)}

    @property
    def _scripts(self) -> frozenset[str]:
        return self.resources["recognition"].expected_scripts

    def rows(self, shard: str) -> Iterator[RowSpec]:
        for row in self.store.read(OcrResults.table.name, shard, ["page_id", "regions", "state", "reason"]).to_pylist():
            regions = row["regions"] or []
            read = [{**{name: region[name] for name in _COLUMNS}, "unsure": _is_unsure(region)} for region in regions]
            yield RowSpec.after(row, [self.own_recipe, read], {"page_id": row["page_id"]}, regions)

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[str, Row]]:
        for page in todo:
            text = page_text(region_texts(page.given))
            found = doubts(text, boxes_of(page.given), self._scripts)
            yield (
                page.id,
                {
                    "text": text,
                    "n_chars": len(text),
                    "doubt": total(found),
                    "doubts": [doubt.says for doubt in found],
                    "state": State.OK if text else State.BLANK,
                },
            )

    def problems(self, made: MadeShard) -> Mapping[str, str | None]:
        wrong = doubtful(made.table)
        if not wrong:
            return {TEXTS_LOOK_RIGHT.name: None}
        first = "; ".join(f"{page.page_id} {page.doubt:.2f}: {', '.join(page.doubts)}" for page in wrong[:_NAMED])
        return {TEXTS_LOOK_RIGHT.name: f"{len(wrong)} of {made.table.num_rows} pages look wrong: {first}"}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        wrong = doubtful(table)
        records = [
            dg.TableRecord({"page": page.page_id, "doubt": round(page.doubt, 3), "says": "; ".join(page.doubts)})
            for page in wrong[:_SHOWN]
        ]
        return {
            "characters": sum(filter(None, table["n_chars"].to_pylist())),
            "text": first_text(table, "text"),
            "doubtful": len(wrong),
            "doubtful_share": len(wrong) / table.num_rows if table.num_rows else 0.0,
            **({"doubtful_pages": dg.MetadataValue.table(records)} if records else {}),
        }


def boxes_of(regions: Iterable[Row]) -> list[Box]:
    """The regions of a page that were read, as rows of the readings hold them."""
    return [
        Box(
            region["native_label"],
            (region["bbox_2d"][2] - region["bbox_2d"][0]) * (region["bbox_2d"][3] - region["bbox_2d"][1]),
            len("".join(region["content"].split())),
            region["finish_reason"] == "length",
            _is_unsure(region),
        )
        for region in regions
        if region["finish_reason"] != "skipped" and region["state"] != State.FAILED
    ]


def _is_unsure(region: Row) -> bool:
    """Whether a region was read in doubt: the reason of one that is `ok` says so."""
    return region["state"] == State.OK and bool(region["reason"])
