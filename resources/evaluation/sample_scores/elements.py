"""Scores of a page whose blocks are known: text, reading order, tables, formulas and layout. Pure but for the tools.

The normalisations are OmniDocBench's. Its matching of paragraphs is not: the text of a page is compared as a whole in
reading order, so these numbers have names of our own and are not comparable with published ones. Official numbers
come from the official scripts over the predictions that `kopub evaluate --predictions` writes.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from resources.errors import ConfigError
from resources.evaluation.adapter import Tools
from resources.evaluation.aggregate import ALL, means
from resources.evaluation.benchmark import Reading, Sample, Score
from resources.evaluation.gold import Element, PageElements
from resources.evaluation.sample_scores.pairs import formula_scores, paired, teds_scores
from resources.evaluation.sample_scores.read_parts import read_formulas, read_tables
from resources.evaluation.scorers import characters, omnidocbench
from resources.evaluation.scorers.layout_boxes import Block, coco_map, find
from resources.layout.regions import Task
from resources.recognition.read_regions import ReadRegion
from resources.states import LOST

METRICS = (
    *("page_edit", "bag_f1", "order_edit", "teds", "teds_s", "table_edit", "formula_edit", "cdm"),
    *("layout_precision", "layout_recall", "layout_f1", "layout_map", "page_overall"),
)

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
"""What the categories of OmniDocBench and MDPBench are, in the terms in which layout is compared."""

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
"""What our labels are in those terms; one that is not here is text, an empty one is part of another region."""

_TEXT_CATEGORIES = ("text_block", "title", "code_txt", "reference")
"""What OmniDocBench scores as text."""
_COVERED = 0.1
"""Share of a block that a region must cover to be where it was read."""


def score(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Of a sample whose gold is `PageElements`: of each kind of block that the page has."""
    assert isinstance(sample.gold, PageElements)
    elements = [element for element in sample.gold.elements if not element.ignored]
    texts = sorted((e for e in elements if e.category in _TEXT_CATEGORIES), key=_order)
    scores = _text_scores(sample, texts, reading)
    tables = [element.html for element in sorted(elements, key=_order) if element.category == "table"]
    if tables:
        scores += _table_scores(sample, tables, reading, tools)
    formulas = [element.latex for element in sorted(elements, key=_order) if KINDS.get(element.category) == "formula"]
    if formulas:
        scores += formula_scores(sample.id, paired(formulas, read_formulas(reading)), tools.cdm)
    found = find(gold_blocks(sample.gold), region_blocks(reading.regions))
    return [
        *scores,
        Score(sample.id, "layout_precision", found.precision),
        Score(sample.id, "layout_recall", found.recall),
        Score(sample.id, "layout_f1", found.f1),
    ]


def whole(read: Sequence[tuple[Sample, Reading]], scores: Sequence[Score]) -> list[Score]:
    """`layout_map` over all pages, and `page_overall`."""
    golds = [sample.gold for sample, _ in read if isinstance(sample.gold, PageElements)]
    try:
        average = coco_map([*map(gold_blocks, golds)], [region_blocks(r.regions) for _, r in read]).get("map")
        precision = Score(None, "layout_map", average, len(read), None if average is not None else "no page has blocks")
    except ConfigError as error:
        precision = Score(None, "layout_map", None, len(read), str(error))
    return [precision, _overall([sample for sample, _ in read], scores)]


def gold_blocks(gold: PageElements) -> list[Block]:
    """The blocks of a page in parts of 1,000; one of an unknown category is ignored."""
    return [
        Block(KINDS.get(e.category, ""), _grid(e.bbox), ignored=e.ignored or e.category not in KINDS)
        for e in gold.elements
    ]


def region_blocks(regions: Sequence[ReadRegion]) -> list[Block]:
    """The regions of a page in parts of 1,000, but for those within another."""
    kinds = [(region, _REGION_KINDS.get(region.label, "text")) for region in regions]
    return [Block(kind, _grid_of(region), region.score) for region, kind in kinds if kind]


def _text_scores(sample: Sample, texts: Sequence[Element], reading: Reading) -> list[Score]:
    read = [region for region in reading.regions if _is_text(region)]
    gold = "".join(omnidocbench.normalized_text(element.text) for element in texts)
    text = "".join(omnidocbench.normalized_text(region.content or "") for region in read)
    page = omnidocbench.Edits.between(gold, text)
    scores = [
        Score(sample.id, "page_edit", page.share, page.size),
        Score(sample.id, "bag_f1", characters.bag_f1(gold, text)),
    ]
    ordered = [element for element in texts if element.order is not None]
    if len(ordered) > 1:
        scores.append(Score(sample.id, "order_edit", _order_edit(ordered, reading.regions), len(ordered)))
    return scores


def _order_edit(blocks: Sequence[Element], regions: Sequence[ReadRegion]) -> float:
    """Edit distance of the order in which blocks were read; a block that no region covers is missing in it.

    A region that covers several blocks reads them in their order.
    """
    places = [(_place(block, regions), at) for at, block in enumerate(blocks)]
    read = [at for place, at in sorted((place, at) for place, at in places if place is not None)]
    return characters.edit(list(range(len(blocks))), read)


def _place(block: Element, regions: Sequence[ReadRegion]) -> int | None:
    """The place in reading order of the region that covers most of a block."""
    x1, y1, x2, y2 = _grid(block.bbox)
    shared = []
    for region in regions:
        a1, b1, a2, b2 = _grid_of(region)
        shared.append(max(0.0, min(x2, a2) - max(x1, a1)) * max(0.0, min(y2, b2) - max(y1, b1)))
    most = max(shared, default=0.0)
    return shared.index(most) if most > _COVERED * (x2 - x1) * (y2 - y1) else None


def _table_scores(sample: Sample, tables: Sequence[str], reading: Reading, tools: Tools) -> list[Score]:
    read = [omnidocbench.normalized_table(table) for table in read_tables(reading)]
    pairs = paired([omnidocbench.normalized_table(table) for table in tables], read)
    shares = [omnidocbench.Edits.between(gold, text).share for gold, text in pairs]
    return [
        *teds_scores(sample.id, pairs, tools.teds),
        Score(sample.id, "table_edit", sum(shares) / len(shares), len(shares)),
    ]


def _overall(samples: Sequence[Sample], scores: Sequence[Score]) -> Score:
    parts = {mean.metric: mean for mean in means(samples, scores) if mean.slice == ALL}
    missing = [name for name in ("page_edit", "teds", "cdm") if name not in parts or parts[name].value is None]
    for name in missing:
        why = (parts[name].skipped_reason if name in parts else None) or "no page has any"
        return Score(None, "page_overall", None, len(samples), f"there is no {name}: {why}")
    skipped = [name for name in ("teds", "cdm") if parts[name].skipped]
    if skipped:
        return Score(None, "page_overall", None, len(samples), f"{skipped[0]} was skipped on some pages")
    text, teds, cdm = (parts[name].value or 0.0 for name in ("page_edit", "teds", "cdm"))
    return Score(None, "page_overall", (1 - text + teds + cdm) / 3, len(samples))


def _is_text(region: ReadRegion) -> bool:
    return (
        region.task is Task.TEXT
        and _REGION_KINDS.get(region.label, "text") in ("text", "title")
        and region.state not in LOST
        and bool(region.content)
    )


def _order(element: Element) -> int:
    return element.order or 0


def _grid(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = box
    return x1 * 1000, y1 * 1000, x2 * 1000, y2 * 1000


def _grid_of(region: ReadRegion) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = map(float, region.bbox_2d)
    return x1, y1, x2, y2
