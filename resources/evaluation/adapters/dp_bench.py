"""DP-Bench: one-page PDFs with their elements in `reference.json`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from resources.errors import SourceError
from resources.evaluation.adapter import Adapter
from resources.evaluation.adapters.folders import Gathered, pictures, read_json, with_suffix
from resources.evaluation.benchmark import Benchmark, Picture
from resources.evaluation.gold import Element, PageElements
from resources.evaluation.sample_scores import dp_bench as dp_bench_scores

_CATEGORIES = frozenset(
    ("caption", "chart", "equation", "figure", "footer", "footnote", "header", "heading1", "index", "list", "paragraph")
) | {"table"}


def load(folder: Path) -> Benchmark:
    path = next((path for path in with_suffix(folder, ".json") if path.name == "reference.json"), None)
    if path is None:
        raise SourceError(f"{folder} has no reference.json")
    reference = read_json(path)
    if not isinstance(reference, dict):
        raise SourceError(f"{path} is no object of PDFs")
    found = {file.name: file for file in [*pictures(folder), *with_suffix(folder, ".pdf")]}
    gathered = Gathered()
    unknown: set[str] = set()
    for name, page in reference.items():
        try:
            elements = [_element(at, each, unknown) for at, each in enumerate(page["elements"])]
        except (KeyError, TypeError, AttributeError) as error:
            gathered.leave_out(name, f"its gold cannot be read: {error!r}")
            continue
        gathered.add(Path(name).stem, _picture(found.get(name)), PageElements(tuple(elements), 1.0, 1.0))
    gathered.leave_out_pictures(found.values(), [found[name] for name in reference if name in found])
    for category in sorted(unknown):
        gathered.leave_out(f"category {category}", "it is not known: its text is scored as a paragraph's")
    return Benchmark(ADAPTER.name, "1", ADAPTER.licence, ADAPTER.source, gathered.sorted(), gathered.left_out)


def _picture(path: Path | None) -> Picture | None:
    if path is None:
        return None
    return Picture(path, 1 if path.suffix.lower() == ".pdf" else None)


def _element(at: int, element: Mapping[str, Any], unknown: set[str]) -> Element:
    category, content = element["category"], element["content"]
    if category.lower() not in _CATEGORIES:
        unknown.add(category)
    return Element(
        str(element.get("id", at)),
        category,
        _box(element.get("coordinates") or ()),
        at,
        content.get("text") or "",
        content.get("html") or "",
    )


def _box(corners: Sequence[Mapping[str, float]]) -> tuple[float, float, float, float]:
    """The box around corners, in the unit of the benchmark; nothing is scored by it."""
    if not corners:
        return 0.0, 0.0, 0.0, 0.0
    xs, ys = [corner["x"] for corner in corners], [corner["y"] for corner in corners]
    return min(xs), min(ys), max(xs), max(ys)


ADAPTER = Adapter(
    "dp_bench",
    "DP-Bench: 200 English pages of PDFs with text, tables and layout",
    "reference.json and the PDFs, in folders of any name",
    "https://huggingface.co/datasets/upstage/dp-bench (Upstage)",
    "MIT",
    load,
    dp_bench_scores.score,
    dp_bench_scores.METRICS,
    ("nid", "teds"),
)
