"""OmniDocBench and MDPBench: pages with known blocks, and all their scores.

The normalisations are OmniDocBench's, but its matching of paragraphs is not used: the text of a page is compared as a
whole in reading order. So these scores have their own names and cannot be compared with published ones. For official
scores, run the official scripts on the predictions that `kopub evaluate --predictions` writes.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from PIL import Image

from kopub.boxes import Box
from kopub.errors import ConfigError, SourceError
from kopub.evaluation import characters
from kopub.evaluation.benchmark import (
    Adapter,
    Benchmark,
    Element,
    ElementList,
    Sample,
    SamplePicture,
    SampleReading,
    SampleScore,
    Tools,
)
from kopub.evaluation.benchmarks.folders import SampleCollector, pictures, read_json
from kopub.evaluation.benchmarks.tables_and_formulas import (
    formula_scores,
    pair_answers,
    read_formulas,
    read_tables,
    teds_scores,
)
from kopub.evaluation.layout_boxes import ScoredBox, coco_map, find
from kopub.evaluation.metrics import ALL, means
from kopub.layout.regions import Task
from kopub.states import LOST
from kopub.texts.regions import Region

KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("text_block", "reference", "code_txt", "code_algorithm"), "text"),
        **dict.fromkeys(("header", "footer", "page_number", "page_footnote", "abandon"), "furniture"),
        **dict.fromkeys(("figure_caption", "table_caption", "code_txt_caption", "code_algorithm_caption"), "caption"),
        **dict.fromkeys(("figure_footnote", "table_footnote"), "footnote"),
        "title": "title",
        "figure": "figure",
        "table": "table",
        "equation_isolated": "formula",
        "equation_caption": "formula number",
    }
)
"""The kinds by which layout is compared, for each category of OmniDocBench and MDPBench."""

_REGION_KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("doc_title", "paragraph_title"), "title"),
        **dict.fromkeys(("header", "header_image", "footer", "footer_image", "number", "footnote"), "furniture"),
        **dict.fromkeys(("image", "chart", "seal"), "figure"),
        "figure_title": "caption",
        "vision_footnote": "footnote",
        "table": "table",
        "display_formula": "formula",
        "formula_number": "formula number",
        "inline_formula": "",
    }
)
"""The same kinds for our labels. Other labels are text; an empty kind means part of another region."""

_TEXT_CATEGORIES = ("text_block", "title", "code_txt", "reference")
"""The categories that OmniDocBench scores as text."""
_COVERED = 0.1
"""Share of a block that a region must cover to count as its reading."""


def score(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `ElementList`, by each kind of block on the page."""
    assert isinstance(sample.gold, ElementList)
    texts: list[Element] = []
    tables: list[str] = []
    formulas: list[str] = []
    for element in sorted(sample.gold.elements, key=lambda element: element.order or 0):
        if element.ignored:
            continue
        if element.category in _TEXT_CATEGORIES:
            texts.append(element)
        elif element.category == "table":
            tables.append(element.html)
        elif KINDS.get(element.category) == "formula":
            formulas.append(element.latex)
    gold = "".join(characters.normalized_text(element.text) for element in texts)
    text = ""
    for region in reading.regions:
        is_text = region.task is Task.TEXT and _REGION_KINDS.get(region.label, "text") in ("text", "title")
        if is_text and region.state not in LOST:
            text += characters.normalized_text(region.content or "")
    page = characters.Edits.between(gold, text)
    scores = [
        SampleScore(sample.id, "page_edit", page.share, page.size),
        SampleScore(sample.id, "bag_f1", characters.bag_f1(gold, text)),
    ]
    ordered = [element for element in texts if element.order is not None]
    if len(ordered) > 1:
        # A block that no region covers is missing; a region that covers several counts as reading them in order.
        places: list[tuple[int, int]] = []
        for at, block in enumerate(ordered):
            box = Box(*_grid(block.bbox))
            shared = [box.intersection(region.box_2d).area for region in reading.regions]
            most = max(shared, default=0.0)
            if most > _COVERED * box.width * box.height:
                places.append((shared.index(most), at))
        distance = characters.edit(list(range(len(ordered))), [at for _, at in sorted(places)])
        scores.append(SampleScore(sample.id, "order_edit", distance, len(ordered)))
    if tables:
        wanted = list(map(characters.normalized_table, tables))
        pairs = pair_answers(wanted, list(map(characters.normalized_table, read_tables(reading))))
        shares = [characters.Edits.between(gold, text).share for gold, text in pairs]
        scores += [
            *teds_scores(sample.id, pairs, tools.teds),
            SampleScore(sample.id, "table_edit", sum(shares) / len(shares), len(shares)),
        ]
    if formulas:
        scores += formula_scores(sample.id, pair_answers(formulas, read_formulas(reading)), tools.cdm)
    counts = find(gold_blocks(sample.gold), region_blocks(reading.regions))
    return [
        *scores,
        SampleScore(sample.id, "layout_precision", counts.precision),
        SampleScore(sample.id, "layout_recall", counts.recall),
        SampleScore(sample.id, "layout_f1", counts.f1),
    ]


def whole(read: Sequence[tuple[Sample, SampleReading]], scores: Sequence[SampleScore]) -> list[SampleScore]:
    """Return `layout_map` over all pages, and `page_overall`."""
    golds = [sample.gold for sample, _ in read if isinstance(sample.gold, ElementList)]
    try:
        average = coco_map([*map(gold_blocks, golds)], [region_blocks(r.regions) for _, r in read])
        precision = SampleScore(
            None, "layout_map", average, len(read), None if average is not None else "no page has blocks"
        )
    except ConfigError as error:
        precision = SampleScore(None, "layout_map", None, len(read), str(error))
    parts = {mean.metric: mean for mean in means([sample for sample, _ in read], scores) if mean.slice == ALL}
    values: list[float] = []
    for name in ("page_edit", "teds", "cdm"):
        part = parts.get(name)
        if part is None or part.value is None:
            why = (part and part.skipped_reason) or "no page has any"
            return [precision, SampleScore(None, "page_overall", None, len(read), f"there is no {name}: {why}")]
        values.append(part.value)
    for name in ("teds", "cdm"):
        if parts[name].skipped:
            why = f"{name} was skipped on some pages"
            return [precision, SampleScore(None, "page_overall", None, len(read), why)]
    text, teds, cdm = values
    return [precision, SampleScore(None, "page_overall", (1 - text + teds + cdm) / 3, len(read))]


def gold_blocks(gold: ElementList) -> list[ScoredBox]:
    """Return the blocks of a page, with boxes on a grid of 1,000.

    A block of an unknown category is ignored.
    """
    return [
        ScoredBox(KINDS.get(e.category, ""), _grid(e.bbox), ignored=e.ignored or e.category not in KINDS)
        for e in gold.elements
    ]


def region_blocks(regions: Sequence[Region]) -> list[ScoredBox]:
    """Return a page's regions on a grid of 1,000, except parts of other regions."""
    boxes: list[ScoredBox] = []
    for region in regions:
        if kind := _REGION_KINDS.get(region.label, "text"):
            boxes.append(ScoredBox(kind, region.box_2d, region.score))
    return boxes


def _grid(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = box
    return x1 * 1000, y1 * 1000, x2 * 1000, y2 * 1000


_MASK = "_mask"
"""Suffix of categories for blocks that the authors could not name: neither scored nor counted as wrongly found."""
_ATTRIBUTES = {"data_source": "source", "language": "language", "layout": "layout"}
_PDF_PAGE = re.compile(r"^(.+\.pdf)_\d+$")
_PHOTOGRAPH = re.compile(r"^([^_]+_[^_]+_\d+)_.+$")

Page = Mapping[str, Any]


def _load(folder: Path, adapter: Adapter, version: str, languages: Sequence[str] = ()) -> Benchmark:
    """Return the pages of a folder, or only those in `languages`, if there are any."""
    gold, files = _gold(folder), pictures(folder)
    # Of pictures with the same stem, the first counts.
    by_stem = {characters.composed(path.stem): path for path in reversed(files)}
    gathered = SampleCollector()
    unknown: Counter[str] = Counter()
    named: set[Path] = set()
    for at, page in enumerate(gold):
        info = page.get("page_info")
        name = info.get("image_path") if isinstance(info, dict) else None
        stem = characters.composed(Path(name).stem) if isinstance(name, str) and name else None
        if stem is None:
            gathered.leave_out(f"page {at}", "it names no picture")
            continue
        path = by_stem.get(stem)
        if path is not None:
            named.add(path)
        try:
            attributes = page["page_info"].get("page_attribute") or {}
            if languages and str(attributes.get("language", "")).lower() not in languages:
                continue
            elements = _elements(page, path, unknown)
            slices = {name: str(attributes[key]).lower() for key, name in _ATTRIBUTES.items() if attributes.get(key)}
            if _PHOTOGRAPH.match(stem):
                slices["capture"] = "photograph"
        except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
            gathered.leave_out(stem, f"its gold cannot be read: {error!r}")
            continue
        part = _PDF_PAGE.match(stem) or _PHOTOGRAPH.match(stem)
        gathered.add(stem, SamplePicture(path) if path else None, elements, (part[1] if part else stem), slices)
    gathered.leave_out_pictures(files, named)
    for category, count in sorted(unknown.items()):
        gathered.leave_out(f"category {category}", f"{count} blocks of it are not scored: it is not known")
    return gathered.benchmark(adapter, version)


def _gold(folder: Path) -> Sequence[Page]:
    """Return the list of pages from a JSON file directly in the folder."""
    faults = []
    for path in sorted(folder.glob("*.json")):
        try:
            pages = read_json(path)
        except SourceError as error:
            faults.append(str(error))
            continue
        if isinstance(pages, list) and all(isinstance(page, dict) and "layout_dets" in page for page in pages):
            return pages
    if faults:
        raise SourceError(faults[0])
    raise SourceError("{folder} has no .json file with pages of layout_dets", folder)


def _elements(page: Page, picture: Path | None, unknown: Counter[str]) -> ElementList:
    info = page["page_info"]
    width, height = info.get("width"), info.get("height")
    if not (width and height):
        width = height = 1
        if picture is not None:
            with Image.open(picture) as image:
                width, height = image.size
    blocks: list[Element] = []
    for block in page["layout_dets"]:
        category = block["category_type"]
        masked = category.endswith(_MASK)
        if category not in KINDS and not masked:
            unknown[category] += 1
        poly = block["poly"]
        (left, right), (top, bottom) = sorted((poly[0], poly[2])), sorted((poly[1], poly[5]))
        blocks.append(
            Element(
                str(block.get("anno_id", "")),
                category,
                (left / width, top / height, right / width, bottom / height),
                block.get("order"),
                block.get("text") or "",
                block.get("html") or "",
                block.get("latex") or "",
                ignored=bool(block.get("ignore")) or masked or category not in KINDS,
            )
        )
    # Paragraphs cut in two by a column or page are joined, at their first part.
    related = (page.get("extra") or {}).get("relation") or ()
    parts: list[set[str]] = []
    for relation in related:
        if relation.get("relation_type") == "truncated":
            pair = {str(relation["source_anno_id"]), str(relation["target_anno_id"])}
            touched = [group for group in parts if group & pair]
            parts = [group for group in parts if not group & pair] + [pair.union(*touched)]
    first: dict[str, Element] = {}
    gone: set[str] = set()
    for group in parts:
        cut = sorted((b for b in blocks if b.id in group and not b.ignored), key=lambda block: block.order or 0)
        if len(cut) > 1:
            first[cut[0].id] = replace(cut[0], text="".join(block.text for block in cut))
            gone.update(block.id for block in cut[1:])
    whole = tuple(first.get(block.id, block) for block in blocks if block.id not in gone)
    return ElementList(whole, float(width), float(height))


OMNIDOCBENCH = Adapter(
    "omnidocbench",
    "OmniDocBench v1.5: 1,355 Chinese and English pages with all their blocks",
    "OmniDocBench.json and the pictures, in folders of any name",
    "https://huggingface.co/datasets/opendatalab/OmniDocBench (OpenDataLab, CVPR 2025)",
    "for research only, not for commercial use",
    lambda folder: _load(folder, OMNIDOCBENCH, "v1.5"),
    score,
    ("page_edit", "teds"),
    whole,
    ("apted", "pylatexenc"),
)
MDPBENCH = replace(
    OMNIDOCBENCH,
    name="mdpbench",
    says="MDPBench, the public half: digital and photographed pages in 17 languages",
    expects="MDPBench_public.json and the pictures, in folders of any name",
    source="https://huggingface.co/datasets/Delores-Lin/MDPBench (arXiv 2603.28130)",
    licence="MIT; the pages are of their publishers",
    load=lambda folder: _load(folder, MDPBENCH, "public"),
)
MDPBENCH_KO = replace(
    MDPBENCH,
    name="mdpbench_ko",
    says="The Korean pages of MDPBench, the public half",
    load=lambda folder: _load(folder, MDPBENCH_KO, "public, Korean", ("korean", "ko")),
)
