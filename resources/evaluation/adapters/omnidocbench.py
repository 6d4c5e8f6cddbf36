"""OmniDocBench and the benchmarks of its form: one list of JSON with the blocks of every page, and their pictures."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from resources.errors import SourceError
from resources.evaluation.adapter import Adapter
from resources.evaluation.adapters.folders import Gathered, pictures, read_json
from resources.evaluation.benchmark import Benchmark, Picture
from resources.evaluation.gold import Element, PageElements
from resources.evaluation.sample_scores import elements as element_scores

_MASK = "_mask"
"""End of the categories of what the benchmark's authors could not name: neither scored nor wrong to find."""
_ATTRIBUTES = {"data_source": "source", "language": "language", "layout": "layout"}
_PDF_PAGE = re.compile(r"^(.+\.pdf)_\d+$")
_PHOTOGRAPH = re.compile(r"^([^_]+_[^_]+_\d+)_.+$")

Page = Mapping[str, Any]


def load_omnidocbench(folder: Path) -> Benchmark:
    return _load(folder, OMNIDOCBENCH, "v1.5")


def load_mdpbench(folder: Path) -> Benchmark:
    return _load(folder, MDPBENCH, "public")


def load_mdpbench_ko(folder: Path) -> Benchmark:
    return _load(folder, MDPBENCH_KO, "public, Korean", wanted=_is_korean)


def _load(
    folder: Path, adapter: Adapter, version: str, wanted: Callable[[Page], bool] = lambda page: True
) -> Benchmark:
    gold, found = _gold(folder), pictures(folder)
    by_stem = {path.stem: path for path in reversed(found)}
    gathered = Gathered()
    unknown: Counter[str] = Counter()
    named: set[Path] = set()
    for at, page in enumerate(gold):
        stem = _stem(page)
        if stem is None:
            gathered.leave_out(f"page {at}", "it names no picture")
            continue
        path = by_stem.get(stem)
        if path is not None:
            named.add(path)
        if not wanted(page):
            continue
        try:
            elements = _elements(page, path, unknown)
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            gathered.leave_out(stem, f"its gold cannot be read: {error!r}")
            continue
        gathered.add(stem, Picture(path) if path else None, elements, _document(stem), _slices(page, stem))
    gathered.leave_out_pictures(found, named)
    for category, count in sorted(unknown.items()):
        gathered.leave_out(f"category {category}", f"{count} blocks of it are not scored: it is not known")
    return Benchmark(adapter.name, version, adapter.licence, adapter.source, gathered.sorted(), gathered.left_out)


def _gold(folder: Path) -> Sequence[Page]:
    """The list of pages: of the JSON files directly in the folder the one that holds such a list."""
    faults = []
    for path in sorted(folder.glob("*.json")):
        try:
            found = read_json(path)
        except SourceError as error:
            faults.append(str(error))
            continue
        if isinstance(found, list) and all(isinstance(page, dict) and "layout_dets" in page for page in found):
            return found
    raise SourceError(faults[0] if faults else f"{folder} has no .json file with pages of layout_dets")


def _stem(page: Page) -> str | None:
    info = page.get("page_info")
    name = info.get("image_path") if isinstance(info, dict) else None
    return Path(name).stem if isinstance(name, str) and name else None


def _elements(page: Page, picture: Path | None, unknown: Counter[str]) -> PageElements:
    info = page["page_info"]
    width, height = info.get("width"), info.get("height")
    if not (width and height):
        width, height = _size(picture) if picture else (1, 1)
    blocks = [_element(block, width, height, unknown) for block in page["layout_dets"]]
    return PageElements(tuple(_joined(blocks, page)), float(width), float(height))


def _element(block: Mapping[str, Any], width: float, height: float, unknown: Counter[str]) -> Element:
    category = block["category_type"]
    masked = category.endswith(_MASK)
    if category not in element_scores.KINDS and not masked:
        unknown[category] += 1
    poly = block["poly"]
    (left, right), (top, bottom) = sorted((poly[0], poly[2])), sorted((poly[1], poly[5]))
    return Element(
        str(block.get("anno_id", "")),
        category,
        (left / width, top / height, right / width, bottom / height),
        block.get("order"),
        block.get("text") or "",
        block.get("html") or "",
        block.get("latex") or "",
        ignored=bool(block.get("ignore")) or masked or category not in element_scores.KINDS,
    )


def _joined(blocks: Sequence[Element], page: Page) -> list[Element]:
    """The blocks with paragraphs that a column or page cut in two as one, at the place of their first part."""
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
    return [first.get(block.id, block) for block in blocks if block.id not in gone]


def _size(picture: Path) -> tuple[int, int]:
    from PIL import Image

    with Image.open(picture) as image:
        return image.size


def _document(stem: str) -> str:
    """Pages of one PDF, and photographs of one page, are of one document."""
    part = _PDF_PAGE.match(stem) or _PHOTOGRAPH.match(stem)
    return part[1] if part else stem


def _slices(page: Page, stem: str) -> dict[str, str]:
    attributes = page["page_info"].get("page_attribute") or {}
    slices = {name: str(attributes[key]).lower() for key, name in _ATTRIBUTES.items() if attributes.get(key)}
    return slices | ({"capture": "photograph"} if _PHOTOGRAPH.match(stem) else {})


def _is_korean(page: Page) -> bool:
    attributes = page["page_info"].get("page_attribute") or {}
    return str(attributes.get("language", "")).lower() in ("korean", "ko")


OMNIDOCBENCH = Adapter(
    "omnidocbench",
    "OmniDocBench v1.5: 1,355 Chinese and English pages with all their blocks",
    "OmniDocBench.json and the pictures, in folders of any name",
    "https://huggingface.co/datasets/opendatalab/OmniDocBench (OpenDataLab, CVPR 2025)",
    "for research only, not for commercial use",
    load_omnidocbench,
    element_scores.score,
    element_scores.METRICS,
    ("page_edit", "teds"),
    element_scores.whole,
)
MDPBENCH = replace(
    OMNIDOCBENCH,
    name="mdpbench",
    says="MDPBench, the public half: digital and photographed pages in 17 languages",
    expects="MDPBench_public.json and the pictures, in folders of any name",
    source="https://huggingface.co/datasets/Delores-Lin/MDPBench (arXiv 2603.28130)",
    licence="MIT; the pages are of their publishers",
    load=load_mdpbench,
)
MDPBENCH_KO = replace(
    MDPBENCH, name="mdpbench_ko", says="The Korean pages of MDPBench, the public half", load=load_mdpbench_ko
)
