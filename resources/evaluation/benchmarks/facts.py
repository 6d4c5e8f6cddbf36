"""Facts about pages, a line of JSON each: olmOCR-bench and Korean facts."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from resources.errors import SourceError
from resources.evaluation.benchmark import (
    OWN_PAGES,
    Adapter,
    Benchmark,
    Fact,
    Facts,
    Picture,
    Reading,
    Sample,
    Score,
    Tools,
)
from resources.evaluation.benchmarks.fact_rules import FORMATS, TYPES, check, normalized
from resources.evaluation.benchmarks.folders import SampleCollector, page_rows, pictures, read_lines, with_suffix

METRICS = ("facts", "facts_by_file")


def score(sample: Sample, reading: Reading, tools: Tools) -> list[Score]:
    """Score a sample whose gold is `Facts`.

    Facts that cannot be told here are in no share; a page of such facts alone is skipped.
    """
    assert isinstance(sample.gold, Facts)
    verdicts = [(fact, check(fact, reading.markdown)) for fact in sample.gold.facts]
    told = [(fact, verdict) for fact, verdict in verdicts if verdict.holds is not None]
    if not told:
        return [Score(sample.id, "facts", None, len(verdicts), verdicts[0][1].why)]
    broken = tuple(f"{fact.id}: {verdict.why}" for fact, verdict in told if not verdict.holds)
    return [Score(sample.id, "facts", 1 - len(broken) / len(told), len(told), notes=broken)]


def whole(read: Sequence[tuple[Sample, Reading]], scores: Sequence[Score]) -> list[Score]:
    """`facts_by_file`: olmOCR-bench's own mean, in which each of its files counts the same."""
    held: defaultdict[str, list[bool]] = defaultdict(list)
    for sample, reading in read:
        assert isinstance(sample.gold, Facts)
        for fact in sample.gold.facts:
            verdict = check(fact, reading.markdown).holds
            if verdict is not None:
                held[fact.group].append(verdict and not reading.lost)
    if not held:
        return [Score(None, "facts_by_file", None, 0, "no fact can be told here")]
    shares = [sum(of_file) / len(of_file) for of_file in held.values()]
    return [Score(None, "facts_by_file", sum(shares) / len(shares), len(shares))]


_TEXTS: Mapping[str, tuple[str, ...]] = {
    "present": ("text",),
    "absent": ("text",),
    "order": ("before", "after"),
    "table": ("cell",),
    "math": ("math",),
    "format": ("text",),
    "footnote": ("marker",),
    "baseline": (),
}
"""The fields that a fact of each type must have, and which must hold text."""
_OPTIONAL: Mapping[str, type] = {
    **dict.fromkeys(("first_n", "last_n", "max_length", "max_repeats"), int),
    **dict.fromkeys(("case_sensitive", "check_disallowed_characters", "ignore_markdown_tables"), bool),
    **dict.fromkeys(("up", "down", "left", "right", "top_heading", "left_heading"), str),
    **dict.fromkeys(("appears_before_marker", "appears_after_marker"), str),
}
_BASELINE = "baseline"


def load_olmocr(folder: Path) -> Benchmark:
    """Load olmOCR-bench; as its authors have it, every PDF gets a `baseline` fact."""
    return _load(folder, OLMOCR, "1", baselines=True)


def load_facts(folder: Path) -> Benchmark:
    """Load facts of one's own; no character is forbidden, since Korean pages may have Hanja."""
    return _load(folder, KOREAN, "1", adjust=lambda fields: {"check_disallowed_characters": False, **fields})


def _load(
    folder: Path,
    adapter: Adapter,
    version: str,
    baselines: bool = False,
    adjust: Callable[[dict[str, Any]], dict[str, Any]] = lambda fields: fields,
) -> Benchmark:
    gathered = SampleCollector()
    pages: defaultdict[tuple[str, int], list[Fact]] = defaultdict(list)
    seen: set[str] = set()
    files = with_suffix(folder, ".jsonl")
    if not files:
        raise SourceError(f"{folder} has no .jsonl file of facts")
    for file in files:
        for where, record in read_lines(file, gathered):
            try:
                fact = parse(adjust(record), file.stem)
            except ValueError as error:
                gathered.leave_out(where, str(error))
                continue
            if fact.id in seen:
                gathered.leave_out(where, f"the fact {fact.id} is there twice: the first one counts")
                continue
            seen.add(fact.id)
            pages[record["pdf"], record["page"]].append(fact)
    if baselines:
        with_one = {pdf for (pdf, _), facts in pages.items() if any(fact.type == _BASELINE for fact in facts)}
        for pdf in sorted({pdf for pdf, _ in pages} - with_one):
            pages[pdf, 1].append(Fact(f"{pdf}_baseline", _BASELINE, _BASELINE, {"type": _BASELINE}))
    found = _pictures(folder)
    used = set()
    for (pdf, page), facts in pages.items():
        name = _name(pdf)
        place = next((key for key in ((name, page), (name, None)) if key in found), None)
        if place is not None:
            used.add(place)
        picture = None if place is None else found[place]
        if place is not None and picture is not None and picture.path.suffix.lower() == ".pdf":
            picture = replace(picture, page=page)
        gathered.add(f"{name}_{page}", picture, Facts(tuple(facts)), document=name)
    for name, _ in sorted({key for key in found if key not in used}, key=str):
        gathered.leave_out(name, "there is no fact about it")
    return Benchmark(adapter.name, version, adapter.licence, adapter.source, gathered.sorted(), gathered.left_out)


def parse(record: Mapping[str, Any], group: str) -> Fact:
    """Return a fact of a line's object. Raises `ValueError` with what is wrong with it."""
    kind = record.get("type")
    if kind not in TYPES:
        raise ValueError(f"{kind!r} is no type of fact; use one of {', '.join(sorted(TYPES))}")
    for name in ("pdf", "id"):
        if not isinstance(record.get(name), str) or not record[name]:
            raise ValueError(f"it has no {name}")
    if not isinstance(record.get("page"), int) or isinstance(record["page"], bool) or record["page"] < 1:
        raise ValueError("its page is no number from 1")
    edits = record.get("max_diffs", 0)
    if not isinstance(edits, int) or isinstance(edits, bool) or edits < 0:
        raise ValueError("its max_diffs is no number from 0")
    for name in _TEXTS[kind]:
        text = record.get(name)
        if not isinstance(text, str) or (not normalized(text).strip() and name != "cell"):
            raise ValueError(f"it has no text in {name}")
    for name, type_ in _OPTIONAL.items():
        if record.get(name) is not None and type(record[name]) is not type_:
            raise ValueError(f"its {name} is no {type_.__name__}")
    if kind == "order" and any(edits > len(normalized(record[name])) // 2 for name in _TEXTS[kind]):
        raise ValueError("its max_diffs is more than half of a text")
    if kind == "format" and record.get("format") not in FORMATS:
        raise ValueError(f"its format is not one of {', '.join(sorted(FORMATS))}")
    if kind == "footnote" and " " in record["marker"]:
        raise ValueError("its marker has a blank")
    return Fact(record["id"], kind, group, dict(record))


def _pictures(folder: Path) -> dict[tuple[str, int | None], Picture]:
    """Return the pictures by name and page; the page of a PDF is None."""
    found: dict[tuple[str, int | None], Picture] = {}
    for row in page_rows(folder):
        found[_name(row.document), row.page_number] = row.picture
    for path in pictures(folder):
        found[path.relative_to(folder).with_suffix("").name, None] = Picture(path)
    for path in with_suffix(folder, ".pdf"):
        place = path.relative_to(folder).as_posix().removeprefix("pdfs/")
        found[_name(place), None] = Picture(path)
    return found


def _name(pdf: str) -> str:
    """Return a PDF's place as part of an id, which must not hold a slash."""
    return pdf.removesuffix(".pdf").replace("/", "__")


OLMOCR = Adapter(
    "olmocr_bench",
    "olmOCR-bench: 7,010 facts about 1,403 English pages",
    "the .jsonl files and pdfs/ of bench_data",
    "https://huggingface.co/datasets/allenai/olmOCR-bench (Allen Institute for AI)",
    "ODC-BY-1.0; the pages by their own terms",
    load_olmocr,
    score,
    METRICS,
    ("facts",),
    whole,
)
KOREAN = replace(
    OLMOCR,
    name="facts",
    says="Facts of your own about pages, in the form of olmOCR-bench; Hanja and kana are allowed",
    expects="files of facts (.jsonl) and the pages: PDFs, pictures, or Arrow or Parquet files with ids",
    source="written by hand: docs/scorers.md has the form",
    licence=OWN_PAGES,
    load=load_facts,
)
