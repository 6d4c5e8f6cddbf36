"""DP-Bench: one-page PDFs, scored by NID for text and TEDS for tables.

The elements of the pages are in `reference.json`.
"""

from collections.abc import Iterable
from pathlib import Path

from kopub.errors import SourceError
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
from kopub.evaluation.benchmarks.folders import SampleCollector, by_name, pictures, read_json, with_suffix
from kopub.evaluation.benchmarks.tables_and_formulas import pair_answers, plain_table, read_tables, teds_scores
from kopub.layout.regions import Task
from kopub.states import LOST

NO_TEXT = frozenset({"figure", "table", "chart"})
"""Categories, in lower case, whose text the benchmark ignores."""


def score(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `ElementList` with DP-Bench's categories."""
    assert isinstance(sample.gold, ElementList)
    elements = [element for element in sample.gold.elements if not element.ignored]
    gold = _join(element.text for element in elements if element.category.lower() not in NO_TEXT)
    text = _join(
        r.content or "" for r in reading.regions if r.task in (Task.TEXT, Task.FORMULA) and r.state not in LOST
    )
    scores = [
        SampleScore(sample.id, "nid", characters.nid(gold, text), len(gold)),
        SampleScore(sample.id, "bag_f1", characters.bag_f1(gold, text)),
    ]
    tables = [plain_table(element.html) for element in elements if element.category.lower() == "table" and element.html]
    if tables:
        scores += teds_scores(sample.id, pair_answers(tables, [*map(plain_table, read_tables(reading))]), tools.teds)
    return scores


def _join(texts: Iterable[str]) -> str:
    """Join texts as the benchmark does: a blank after each, and no line breaks."""
    return "".join(f"{characters.composed(text)} " for text in texts).replace("\n", "")


_CATEGORIES = frozenset(
    ("caption", "chart", "equation", "figure", "footer", "footnote", "header", "heading1", "index", "list", "paragraph")
) | {"table"}


def load(folder: Path) -> Benchmark:
    path = next((path for path in with_suffix(folder, ".json") if path.name == "reference.json"), None)
    if path is None:
        raise SourceError("{folder} has no reference.json", folder)
    reference = read_json(path)
    if not isinstance(reference, dict):
        raise SourceError("{path} is no object of PDFs", path)
    files = by_name([*pictures(folder), *with_suffix(folder, ".pdf")])
    gathered = SampleCollector()
    unknown: set[str] = set()
    for name, page in reference.items():
        elements: list[Element] = []
        try:
            for at, element in enumerate(page["elements"]):
                category, content = element["category"], element["content"]
                if category.lower() not in _CATEGORIES:
                    unknown.add(category)
                # The box around the corners is in the benchmark's unit; no score uses it.
                corners = element.get("coordinates") or ()
                box = (0.0, 0.0, 0.0, 0.0)
                if corners:
                    xs, ys = zip(*((corner["x"], corner["y"]) for corner in corners), strict=True)
                    box = (min(xs), min(ys), max(xs), max(ys))
                id, text, html = str(element.get("id", at)), content.get("text") or "", content.get("html") or ""
                elements.append(Element(id, category, box, at, text, html))
        except (KeyError, TypeError, AttributeError) as error:
            gathered.leave_out(name, f"its gold cannot be read: {error!r}")
            continue
        file = files.get(characters.composed(name))
        picture = None if file is None else SamplePicture(file, 1 if file.suffix.lower() == ".pdf" else None)
        gathered.add(Path(name).stem, picture, ElementList(tuple(elements), 1.0, 1.0))
    named = set(map(characters.composed, reference))
    gathered.leave_out_pictures(files.values(), [files[name] for name in named & files.keys()])
    for category in sorted(unknown):
        gathered.leave_out(f"category {category}", "it is not known: its text is scored as a paragraph's")
    return gathered.benchmark(ADAPTER)


ADAPTER = Adapter(
    "dp_bench",
    "DP-Bench: 200 English pages of PDFs with text, tables and layout",
    "reference.json and the PDFs, in folders of any name",
    "https://huggingface.co/datasets/upstage/dp-bench (Upstage)",
    "MIT",
    load,
    score,
    ("nid", "teds"),
    packages=("apted",),
)
