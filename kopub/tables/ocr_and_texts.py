"""The assets with the text of a page.

`ocr_results` holds the text of every region, the page as markdown, and its pictures. `parsed_texts` holds the page as
plain text, as search uses it, and whether that text looks right.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import pyarrow as pa

from kopub.boxes import Box
from kopub.config.settings import Resources
from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.log import CorrectionLog
from kopub.documents.page_text import text_of_page
from kopub.engine import Resource
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import PICTURES, Region, Task
from kopub.pages.corpus import Corpus
from kopub.recognition.base import Recognizer
from kopub.recognition.content import main_script
from kopub.recognition.known_texts import KnownText, PageToRead, agree, known_texts, read_unknown
from kopub.recognition.regions import KINDS, TWO_WAYS, PageReading, TextOrigin, region_texts, retry_counts
from kopub.states import State
from kopub.store.corpus_tables import BENCHMARKS, TABLES, Table
from kopub.tables.asset import EngineTable, Metadata, RetryPartial, RowTable
from kopub.tables.checks import Check
from kopub.tables.metadata import first_markdown, first_text
from kopub.tables.pages_and_layout import LayoutRegions, RawPages
from kopub.tables.rows import Row, RowResult, RowSpec, ShardResult, page_rows, picture_inputs, with_parent
from kopub.texts.extracted_text import CODE, compare, doubt_blank, extract_texts
from kopub.texts.layer_counts import SOUND, UNSOUND, layer_figures
from kopub.texts.layer_soundness import unsound
from kopub.texts.markdown import page_markdown
from kopub.texts.piece_regions import texts_of_pieces
from kopub.texts.text_quality import (
    DOUBTFUL,
    Doubt,
    JudgedRegion,
    by_weight,
    doubtful,
    doubts,
    total,
    unexpected_scripts,
)

_REGION_FIELDS = [field.name for field in fields(Region) if field.name != "score"]
"""Fields of a region that decide its reading; a new score alone does not cause it to be read again."""
_NOT_READ = "not_read"
"""The origin of a region without a text, where the UI counts regions by origin."""


@dataclass(frozen=True, slots=True)
class _OcrInputs:
    """The input for reading a page: its row, regions and preferred text layer."""

    page: Row
    regions: Sequence[Row]
    layer: str | None


class OcrResults(EngineTable):
    """The text of every region, the page as markdown, and its pictures.

    Each region says how it was read. Text already found by the layout engine is taken unchanged, unless the engine's
    `reread` names its task. If the profile prefers the text layers of PDFs, a text region takes its text from a sound
    layer, as long as readings agree with it. A page with an unreadable region is `partial`: it keeps what was read,
    and says what is missing.
    """

    table: ClassVar[Table] = TABLES.readings
    code_version: ClassVar[CodeVersion] = CodeVersion(
        "ocr_results",
        {
            1: "the first release",
            2: "a title keeps the number sign that it begins with (`#1 과제`)",
        },
    )
    parents = (RawPages, LayoutRegions)
    after: ClassVar[tuple[str, ...]] = (BENCHMARKS,)
    engine_section: ClassVar[str | None] = "recognition"
    engine: Recognizer
    needs: ClassVar[tuple[str, ...]] = ("pdf", "layout")
    config: ClassVar[type[Resource] | None] = RetryPartial
    parts: ClassVar[str] = "regions"
    reads_regions_of = LayoutRegions

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._prefers_layers = resources["pdf"].text_layer == "prefer"

    @property
    def settings(self) -> Mapping[str, Any]:
        """The choice to cut regions out by their outlines, if the layout has any."""
        cuts = getattr(self.resources["layout"], "polygons", False)
        return {"layout.polygons": "regions are cut out by their outlines"} if cuts else {}

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        return text_layer_settings(self.corpus, shard, "prefer") if self._prefers_layers else {}

    def rows(self, shard: str) -> Iterator[RowSpec]:
        pages = page_rows(self.store, RawPages.table, shard)
        for page, layout in with_parent(self.store, pages, LayoutRegions.table, shard):
            columns = {"page_id": page["page_id"], "page_idx": page["page_idx"]}
            boxes = [[region[name] for name in _REGION_FIELDS] for region in layout["regions"] or ()]
            layer = page["text_layer_id"] if self._prefers_layers else None
            yield RowSpec.after(
                layout,
                [self.recipe_hash, *picture_inputs(page), boxes, *layer_made_from(layer)],
                columns,
                _OcrInputs(page, layout["regions"], layer),
            )

    def inputs(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[PageToRead]:
        reread = {Task(task) for task in self.engine.reread}
        layers = self.corpus.text_layers(shard) if any(row.given.layer for row in todo) else None
        with self.corpus.reader(shard) as source:
            for row in todo:
                regions: list[Region] = []
                for region in row.given.regions:
                    polygon = region["polygon"] and tuple((x, y) for x, y in region["polygon"])
                    regions.append(
                        Region(
                            region["index"],
                            region["label"],
                            Task(region["task"]),
                            region["score"],
                            tuple(region["bbox"]),
                            polygon,
                            region["text"],
                        )
                    )
                page = source.page_of(row.given.page)
                layer = layers and layers.layer(row.id, row.known["page_idx"], row.given.layer)
                known = known_texts(regions, reread)
                if layer:
                    known |= texts_of_pieces(regions, layer)
                read = PageToRead(page, regions, known)
                if layer and Task.TEXT not in reread:
                    # Texts that the layout engine read show whether the layer is right; samples prove the others.
                    extracted = extract_texts(layer, regions, self.engine.expected_scripts)
                    claimed: dict[int, KnownText] = {}
                    for index, content in extracted.texts.items():
                        text = KnownText(content, TextOrigin.TEXT_LAYER)
                        if index not in known:
                            claimed[index] = text
                        elif known[index].origin is TextOrigin.LAYOUT and agree(content, known[index].content):
                            known[index] = text
                    parts = {index: part for index, part in extracted.parts.items() if index not in known}
                    samples = extracted.samples if claimed or parts else ()
                    read = replace(read, claimed=claimed, samples=samples, parts=parts)
                yield read

    def results(self, inputs: Iterator[PageToRead]) -> Iterator[PageReading]:
        return read_unknown(self.engine.read, inputs)

    def row(self, spec: RowSpec, result: PageReading) -> RowResult:
        # The cost of the row: answers that were kept from before took no time now.
        spent = sum(text.seconds for text in result.regions if not text.reused)
        laid_out = {region["index"]: region for region in spec.given.regions}
        regions: list[dict[str, Any]] = []
        for text in result.regions:
            regions.append(
                {
                    "index": text.index,
                    "label": KINDS[Task(laid_out[text.index]["task"])],
                    "native_label": text.native_label,
                    "bbox_2d": laid_out[text.index]["bbox_2d"],
                    "content": text.content,
                    "state": text.state,
                    "reason": text.reason,
                    "finish_reason": text.finish_reason,
                    "attempts": text.attempts,
                    "seconds": text.seconds,
                    "scale": text.scale,
                    "origin": text.origin,
                }
            )
        return RowResult(
            spec.id,
            {
                "regions": regions,
                "markdown": page_markdown(result.regions, result.crops),
                "image_crops": [
                    {"path": crop.path, "bbox": list(crop.bbox), "label": crop.label} for crop in result.crops
                ],
                "crop_images": [crop.data for crop in result.crops],
                "state": result.state,
                "reason": result.reason,
            },
            spent,
            retry_counts(result.regions),
        )

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        usual = (TextOrigin.RECOGNIZER, TextOrigin.LAYOUT, TextOrigin.TEXT_LAYER, _NOT_READ)
        by_origin: dict[str, int] = dict.fromkeys(usual, 0)
        failed = characters = 0
        for of_page in table["regions"].to_pylist():
            for region in of_page or ():
                origin = region["origin"] or _NOT_READ
                by_origin[origin] = by_origin.get(origin, 0) + 1
                failed += region["state"] == State.FAILED
                characters += len(region["content"])
        return {
            "regions": sum(by_origin.values()),
            "regions_by_origin": by_origin,
            "regions_failed": failed,
            "pictures": sum(len(crops or ()) for crops in table["image_crops"].to_pylist()),
            "characters": characters,
            "text": first_markdown(table, "markdown"),
        }


def text_layer_settings(corpus: Corpus, shard: str, use: str) -> Mapping[str, str]:
    """Return the settings for a shard's text layers; empty if it has none."""
    if not corpus.manifest.shard(shard).text_layers:
        return {}
    return {"pdf.text_layer": use, CODE.name: str(CODE.number)}


def layer_made_from(layer: str | None) -> list[Any]:
    """Return a row's further inputs: its text layer, and the version of the judging code."""
    return [] if layer is None else [layer, CODE.number]


TEXTS_LOOK_RIGHT = Check(
    "texts_look_right",
    "No text is garbled, repeats itself, lacks its Hangul or most of what its regions should hold; names those that "
    "look so, worst first.",
    blocking=False,
)
_NAMED, _SHOWN = 5, 50
"""Most doubtful pages in a check's sentence and in the UI's table, both of which are kept in the event log."""
_TWO_WAYS = 0.5
"""Weight of a doubt about figures: enough for a person to look at them."""
_COLUMNS = ("index", "native_label", "content", "bbox_2d", "finish_reason", "state", "origin")


@dataclass(frozen=True, slots=True)
class _Reading:
    """The reading of a page, and its text layer if the two are compared.

    `width` and `height` are its pixels.
    """

    regions: Sequence[Row]
    width: int
    height: int
    page_idx: int
    layer: str | None


class ParsedTexts(RowTable):
    """The text of every page in reading order, without markup.

    A page without any characters is `blank`. A text that looks wrong keeps its state, but `doubt` and `doubts` say so.
    If the profile asks for it, a page is compared with the text layer of its PDF. Corrections made by people replace
    what was read.
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
            6: "a page that looks blank is doubted where its text layer has text",
            7: "a page that lost a part of itself and has no text says why",
            8: "text between and below the tables of a region is in lines of its own",
            9: "figures that two readers read differently are named",
            10: "a word that a line's end cuts is one word",
            11: "sentences in the cells of a table need no mark",
            12: "numbers read where a layer has no letters are doubted",
        },
    )
    parents = (RawPages, OcrResults)
    needs: ClassVar[tuple[str, ...]] = ("recognition", "pdf")
    checks: ClassVar[tuple[Check, ...]] = (*RowTable.checks, TEXTS_LOOK_RIGHT)

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._compares = resources["pdf"].text_layer != "never"

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
            inputs = []
            for part in regions:
                values = {name: part[name] for name in _COLUMNS}
                inputs.append(values | {"unsure": _is_unsure(part), "figures": _two_ways(part)})
            layer = page["text_layer_id"] if self._compares else None
            size = page["width"] or 0, page["height"] or 0
            reading = _Reading(regions, *size, page["page_idx"], layer)
            made_from = [self.recipe_hash, inputs, size, *layer_made_from(layer)]
            spec = RowSpec.after(row, made_from, {"page_id": row["page_id"]}, reading)
            # A page that may only look blank is reported as doubtful; it may have lost all that it shows.
            if row["state"] == State.BLANK and (reason := row["reason"] or page["reason"]):
                looks = {"reason": reason, "doubt": 1.0, "doubts": [reason]}
                spec = replace(spec, predetermined={"state": State.BLANK, **looks})
            elif row["state"] == State.BLANK and layer:
                spec = replace(spec, predetermined=None)
            yield spec

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[RowResult]:
        layers = self.corpus.text_layers(shard) if any(page.given.layer for page in todo) else None
        for page in todo:
            readings = region_texts(page.given.regions)
            text = text_of_page(page.given.regions, page.given.width, page.given.height)
            two_ways = [Doubt("figures", _TWO_WAYS, says) for says in filter(None, map(_two_ways, page.given.regions))]
            page_doubts = by_weight([*doubts(text, boxes_of(page.given.regions), self._scripts), *two_ways])
            script, compared = main_script(text), Row()
            if layers is not None and (layer := layers.layer(page.id, page.given.page_idx, page.given.layer)):
                blank = [] if page.given.regions else doubt_blank(layer)
                if (reason := unsound(layer, self._scripts)) is not None:
                    compared, differs = {"text_layer": UNSOUND, "text_layer_reason": reason}, blank
                elif not page.given.regions:
                    compared, differs = {"text_layer": SOUND}, blank
                else:
                    scale = (layer.width / 1000, layer.height / 1000) * 2
                    boxes: list[list[float]] = []
                    for region in page.given.regions:
                        boxes.append([edge * by for edge, by in zip(region["bbox_2d"], scale, strict=True)])
                    comparison = compare(layer, readings, boxes)
                    compared = {"text_layer": SOUND, "text_layer_distance": comparison.distance}
                    differs = comparison.doubts()
                page_doubts = by_weight([*page_doubts, *differs])
                layer_script = main_script("".join(word.text for word in layer.words))
                # A script that the reader does not know is misread as nonsense in the scripts that it does know.
                if total(page_doubts) >= DOUBTFUL and unexpected_scripts([layer_script], self._scripts):
                    script = layer_script
            yield RowResult(
                page.id,
                {
                    "text": text,
                    "n_chars": len(text),
                    "script": script,
                    "doubt": total(page_doubts),
                    "doubts": [doubt.says for doubt in page_doubts],
                    **compared,
                    "state": State.OK if text else State.BLANK,
                    "reason": None if text else page.partial,
                },
            )

    def problems(self, result: ShardResult) -> Mapping[str, str | None]:
        wrong = doubtful(result.table)
        if not wrong:
            return {TEXTS_LOOK_RIGHT.name: None}
        first = "; ".join(f"{page.page_id}: {', '.join(page.doubts)}" for page in wrong[:_NAMED])
        return {TEXTS_LOOK_RIGHT.name: f"{len(wrong)} of {result.table.num_rows} pages look wrong: {first}"}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        wrong = doubtful(table)
        records: list[Row] = []
        for page in wrong[:_SHOWN]:
            records.append({"page": page.page_id, "doubt": round(page.doubt, 3), "says": "; ".join(page.doubts)})
        return {
            "characters": sum(filter(None, table["n_chars"].to_pylist())),
            "text": first_text(table, "text"),
            "doubtful": len(wrong),
            "doubtful_share": len(wrong) / table.num_rows if table.num_rows else 0.0,
            **layer_figures(table),
            **({"doubtful_pages": records} if records else {}),
        }


def boxes_of(regions: Iterable[Row]) -> list[JudgedRegion]:
    """Return the regions of a page in the form in which its text is judged.

    Failed regions, and non-pictures skipped on purpose, are left out. `regions` are rows of readings.
    """
    judged = []
    for region in regions:
        label, is_skipped = region["native_label"], region["finish_reason"] == "skipped"
        if region["state"] == State.FAILED or (is_skipped and label not in PICTURES):
            continue
        letters = len("".join(region["content"].split()))
        is_cut = region["finish_reason"] == "length"
        judged.append(
            JudgedRegion(label, Box(*region["bbox_2d"]).area, letters, is_cut, _is_unsure(region), picture=is_skipped)
        )
    return judged


def _is_unsure(region: Row) -> bool:
    """Return whether a region was read in doubt: it is `ok` but has a reason."""
    return region["state"] == State.OK and bool(region["reason"]) and _two_ways(region) is None


def _two_ways(region: Row) -> str | None:
    """Return the figures of a region that two readers read differently."""
    reason = region["reason"] or ""
    return reason if region["state"] == State.OK and reason.startswith(TWO_WAYS.partition("{")[0]) else None
