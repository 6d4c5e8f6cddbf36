"""Facts about pages, one line of JSON each: olmOCR-bench, KDoc-OCRBench, users' own facts.

They are loaded, parsed, and tested against the text that was read.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rapidfuzz import fuzz

from kopub.errors import SourceError
from kopub.evaluation.benchmark import (
    OWN_PAGES,
    Adapter,
    Benchmark,
    Fact,
    FactList,
    Sample,
    SamplePicture,
    SampleReading,
    SampleScore,
    Tools,
)
from kopub.evaluation.benchmarks.folders import SampleCollector, page_rows, pictures, read_lines, with_suffix
from kopub.evaluation.characters import composed
from kopub.evaluation.tables import CellGrid, tables_of


def score(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `FactList`.

    Facts that cannot be tested here do not count; a page with only such facts is skipped.
    """
    assert isinstance(sample.gold, FactList)
    verdicts = [(fact, check(fact, reading.markdown)) for fact in sample.gold.facts]
    results = [(fact, verdict) for fact, verdict in verdicts if verdict.holds is not None]
    if not results:
        return [SampleScore(sample.id, "facts", None, len(verdicts), verdicts[0][1].why)]
    broken = tuple(f"{fact.id}: {verdict.why}" for fact, verdict in results if not verdict.holds)
    return [SampleScore(sample.id, "facts", 1 - len(broken) / len(results), len(results), notes=broken)]


def whole(read: Sequence[tuple[Sample, SampleReading]], scores: Sequence[SampleScore]) -> list[SampleScore]:
    """Return `facts_by_file`, olmOCR-bench's own mean, in which each file counts the same."""
    outcomes: defaultdict[str, list[bool]] = defaultdict(list)
    for sample, reading in read:
        assert isinstance(sample.gold, FactList)
        for fact in sample.gold.facts:
            verdict = check(fact, reading.markdown).holds
            if verdict is not None:
                outcomes[fact.group].append(verdict and not reading.lost)
    if not outcomes:
        return [SampleScore(None, "facts_by_file", None, 0, "no fact can be told here")]
    shares = [sum(of_file) / len(of_file) for of_file in outcomes.values()]
    return [SampleScore(None, "facts_by_file", sum(shares) / len(shares), len(shares))]


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
"""The text fields that a fact of each type must have."""
_OPTIONAL: Mapping[str, type] = {
    **dict.fromkeys(("first_n", "last_n", "max_length", "max_repeats"), int),
    **dict.fromkeys(("case_sensitive", "check_disallowed_characters", "ignore_markdown_tables"), bool),
    **dict.fromkeys(("up", "down", "left", "right", "top_heading", "left_heading"), str),
    **dict.fromkeys(("appears_before_marker", "appears_after_marker"), str),
}
_BASELINE = "baseline"


def load_tests(
    folder: Path,
    adapter: Adapter,
    version: str = "1",
    baselines: bool = False,
    hanja: bool = False,
    labels: str = "",
    slices: Callable[[str], Mapping[str, str]] = lambda pdf: {},
) -> Benchmark:
    """Load every test of a folder in olmOCR's form; the file `labels` contains none.

    With `baselines`, every PDF without a `baseline` fact gets one. With `hanja`, a fact forbids characters only if it
    says so. `slices` returns the slices of a PDF, given its name.
    """
    gathered = SampleCollector()
    pages: defaultdict[tuple[str, int], list[Fact]] = defaultdict(list)
    ids: set[str] = set()
    files = [path for path in with_suffix(folder, ".jsonl") if path.name != labels]
    if not files:
        raise SourceError("{folder} has no .jsonl file of facts", folder)
    for file in files:
        for where, record in read_lines(file, gathered):
            try:
                fact = parse({"check_disallowed_characters": False, **record} if hanja else record, file.stem)
            except ValueError as error:
                gathered.leave_out(where, str(error))
                continue
            if fact.id in ids:
                gathered.leave_out(where, f"the fact {fact.id} is there twice: the first one counts")
                continue
            ids.add(fact.id)
            pages[record["pdf"], record["page"]].append(fact)
    if baselines:
        with_one = {pdf for (pdf, _), facts in pages.items() if any(fact.type == _BASELINE for fact in facts)}
        for pdf in sorted({pdf for pdf, _ in pages} - with_one):
            pages[pdf, 1].append(Fact(f"{pdf}_baseline", _BASELINE, _BASELINE, {"type": _BASELINE}))
    images = _pictures(folder)
    used = set()
    for (pdf, page), facts in pages.items():
        name = _name(pdf)
        place = next((key for key in ((name, page), (name, None)) if key in images), None)
        if place is not None:
            used.add(place)
        picture = None if place is None else images[place]
        if place is not None and picture is not None and picture.path.suffix.lower() == ".pdf":
            picture = replace(picture, page=page)
        gathered.add(f"{name}_{page}", picture, FactList(tuple(facts)), document=name, slices=slices(pdf))
    for name, _ in sorted({key for key in images if key not in used}, key=str):
        gathered.leave_out(name, "there is no fact about it")
    return gathered.benchmark(adapter, version)


def parse(record: Mapping[str, Any], group: str) -> Fact:
    """Return the fact in the object of a line. Raises `ValueError` with the fault."""
    kind = record.get("type")
    if not isinstance(kind, str) or kind not in _CHECKS:
        raise ValueError(f"{kind!r} is no type of fact; use one of {', '.join(sorted(_CHECKS))}")
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


def _pictures(folder: Path) -> dict[tuple[str, int | None], SamplePicture]:
    """Return the pictures by name and page, which is None for PDFs and image files."""
    images: dict[tuple[str, int | None], SamplePicture] = {}
    for row in page_rows(folder):
        images[_name(row.document), row.page_number] = row.picture
    for path in pictures(folder):
        images[composed(path.stem), None] = SamplePicture(path)
    for path in with_suffix(folder, ".pdf"):
        place = path.relative_to(folder).as_posix().removeprefix("pdfs/")
        images[_name(place), None] = SamplePicture(path)
    return images


def _name(pdf: str) -> str:
    """Return a PDF's path in NFC as part of an id, without slashes."""
    return composed(pdf).removesuffix(".pdf").replace("/", "__")


OLMOCR = Adapter(
    "olmocr_bench",
    "olmOCR-bench: 7,010 facts about 1,403 English pages",
    "the .jsonl files and pdfs/ of bench_data",
    "https://huggingface.co/datasets/allenai/olmOCR-bench (Allen Institute for AI)",
    "ODC-BY-1.0; the pages by their own terms",
    # As in the authors' code, every PDF gets a `baseline` fact.
    lambda folder: load_tests(folder, OLMOCR, baselines=True),
    score,
    ("facts",),
    whole,
    ("fuzzysearch",),
)
KOREAN = replace(
    OLMOCR,
    name="facts",
    says="Facts of your own about pages, in the form of olmOCR-bench; Hanja and kana are allowed",
    expects="files of facts (.jsonl) and the pages: PDFs, pictures, or Arrow or Parquet files with ids",
    source="written by hand: docs/scorers.md has the form",
    licence=OWN_PAGES,
    # They forbid no character, since Korean pages may have Hanja.
    load=lambda folder: load_tests(folder, KOREAN, hanja=True),
)


_LABELS = "categories.jsonl"


def load_kdoc(folder: Path) -> Benchmark:
    """Load KDoc-OCRBench, with the kind of document (Statistics, Reports, Manuals, Notices) as a slice.

    Its authors count with the code of olmOCR-bench, so every PDF gets a `baseline` test, which forbids Hanja.
    """
    lines = SampleCollector()
    labels: dict[str, str] = {}
    for path in folder.rglob(_LABELS):
        for _, record in read_lines(path, lines):
            if record.get("category"):
                labels[Path(str(record.get("pdf"))).name] = str(record["category"])

    def slices(pdf: str) -> dict[str, str]:
        label = labels.get(Path(pdf).name)
        return {"kind": label} if label else {}

    benchmark = load_tests(folder, KDOC, "3", baselines=True, labels=_LABELS, slices=slices)
    return replace(benchmark, left_out=[*benchmark.left_out, *lines.left_out])


KDOC = replace(
    OLMOCR,
    name="kdoc_ocrbench",
    says="KDoc-OCRBench-V2: 56,197 tests of 849 pages of the Korean public sector",
    expects="text_present.jsonl, tables.jsonl, header_footer_tests.jsonl, categories.jsonl and pdfs/",
    source="https://huggingface.co/datasets/ONTHEIT/KDoc-OCRBench-V2 (ONTHEIT)",
    licence="CC-BY-4.0",
    load=load_kdoc,
)


_BREAK, _BLANKS = re.compile(r"<br/?>"), re.compile(r"\s+")
_MARKUP = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\*\*(.*?)\*\*", r"\1"),
        (r"__(.*?)__", r"\1"),
        (r"</?b>", ""),
        (r"</?i>", ""),
        (r"(\*\*|__)(.*?)\1", r"\2"),
        (r"(\*|_)(.*?)\1", r"\2"),
    )
]
_ASCII = str.maketrans({**dict.fromkeys("‘’‚", "'"), **dict.fromkeys("“”„", '"'), **dict.fromkeys("–—‑‒−", "-")})
_OTHER = str.maketrans({"＿": "_", "\u00b5": "\u03bc"})
_FOREIGN = re.compile("[\u4e00-\u9fff\u3040-\u30ff\U0001f600-\U0001f64f\U0001f300-\U0001f6ff\U0001f1e0-\U0001f1ff]")
_PICTURE = re.compile(r"!\[.*?\]\(.*?\)")
_SHOWN = 40
_REPEATED = 5
"""Most characters of a part whose repetition at the end of a text is counted."""
FORMATS: Mapping[str, tuple[re.Pattern[str], ...]] = {
    "heading": (
        re.compile(r"^#{1,6}\s+(.+?)$", re.MULTILINE),
        re.compile(r"<h[1-6][^>]*>(.*?)</h[1-6]>", re.IGNORECASE | re.DOTALL),
    ),
    "bold": (
        re.compile(r"\*\*(.*?)\*\*", re.DOTALL),
        re.compile(r"__(.*?)__", re.DOTALL),
        re.compile(r"<b[^>]*>(.*?)</b>", re.IGNORECASE | re.DOTALL),
        re.compile(r"<strong[^>]*>(.*?)</strong>", re.IGNORECASE | re.DOTALL),
    ),
    "italic": (
        re.compile(r"(?<!\*)\*(?!\*)(.*?)(?<!\*)\*(?!\*)", re.DOTALL),
        re.compile(r"(?<!_)_(?!_)(.*?)(?<!_)_(?!_)", re.DOTALL),
        re.compile(r"<i[^>]*>(.*?)</i>", re.IGNORECASE | re.DOTALL),
        re.compile(r"<em[^>]*>(.*?)</em>", re.IGNORECASE | re.DOTALL),
    ),
}
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
_BESIDE_NOTE = 200
"""Characters on each side of a footnote's mark in which its neighbouring text is searched."""


@dataclass(frozen=True, slots=True)
class FactVerdict:
    """The result of testing a fact; `holds` is None if it cannot be tested here.

    `why` is empty if the fact holds.
    """

    holds: bool | None
    why: str = ""


def check(fact: Fact, markdown: str) -> FactVerdict:
    """Return the verdict on a fact, given the markdown of its page."""
    return _CHECKS[fact.type](fact.fields, markdown)


def normalized(text: str) -> str:
    """Return the text in NFC, without emphasis, with single blanks and ASCII quotes and dashes."""
    text = _BREAK.sub(" ", text)
    for mark, replacement in _MARKUP:
        text = mark.sub(replacement, text)
    return composed(_BLANKS.sub(" ", text)).translate(_ASCII).translate(_OTHER)


def _share(fields: Mapping[str, Any], text: str) -> float:
    """Return the least similarity that counts as found, as `max_diffs` characters may differ."""
    return 1.0 - fields.get("max_diffs", 0) / (len(text) or 1)


def _presence(fields: Mapping[str, Any], markdown: str) -> FactVerdict:
    wanted, page = normalized(fields["text"]), normalized(markdown)
    if not fields.get("case_sensitive", True):
        wanted, page = wanted.lower(), page.lower()
    first, last = fields.get("first_n"), fields.get("last_n")
    if first and last:
        page = page[:first] + page[-last:]
    elif first:
        page = page[:first]
    elif last:
        page = page[-last:]
    least, best = _share(fields, wanted), fuzz.partial_ratio(wanted, page) / 100.0
    is_there = best >= least
    if is_there == (fields["type"] == "present"):
        return FactVerdict(True)
    what = "not found" if fields["type"] == "present" else "found, though it must not be there"
    return FactVerdict(False, f"{_excerpt(wanted)} {what}: similarity {best:.3f}, {least:.3f} counts as found")


def _order(fields: Mapping[str, Any], markdown: str) -> FactVerdict:
    from fuzzysearch import find_near_matches

    page, most = normalized(markdown), fields.get("max_diffs", 0)
    places = []
    for part in ("before", "after"):
        text = normalized(fields[part])
        matches = find_near_matches(text, page, max_l_dist=most)
        if not matches:
            return FactVerdict(False, f"{_excerpt(text)} not found with at most {most} edits")
        places.append([match.start for match in matches])
    if min(places[0]) < max(places[1]):
        return FactVerdict(True)
    before, after = (_excerpt(normalized(fields[part])) for part in ("before", "after"))
    return FactVerdict(False, f"{before} does not come before {after}")


def _table(fields: Mapping[str, Any], markdown: str) -> FactVerdict:
    tables = tables_of(markdown, pipes=not fields.get("ignore_markdown_tables", False))
    if not tables:
        return FactVerdict(False, "there is no table")
    wanted = normalized(fields["cell"])
    least = max(0.5, _share(fields, wanted))
    reasons = []
    for table in tables:
        for cell, text in table.texts.items():
            if fuzz.ratio(wanted, normalized(text)) / 100.0 < least:
                continue
            wrong: list[str] = []
            for side, find in _SIDES.items():
                beside = normalized(fields.get(side) or "")
                if not beside:
                    continue
                texts = [normalized(table.texts[neighbour]) for neighbour in sorted(find(table, cell))]
                enough = max(0.5, _share(fields, beside))
                if not any(fuzz.ratio(beside, neighbour) / 100.0 >= enough for neighbour in texts):
                    printed = " or ".join(map(_excerpt, texts)) or "nothing"
                    wrong.append(f"{side} of it is {printed}, not {_excerpt(beside)}")
            if not wrong:
                return FactVerdict(True)
            reasons.extend(wrong)
    if not reasons:
        return FactVerdict(False, f"no table has a cell {_excerpt(wanted)}")
    return FactVerdict(False, f"the cell {_excerpt(wanted)} is there, but {'; '.join(dict.fromkeys(reasons))}")


_SIDES: Mapping[str, Callable[[CellGrid, tuple[int, int]], set[tuple[int, int]]]] = {
    "up": lambda table, cell: table.up[cell],
    "down": lambda table, cell: table.down[cell],
    "left": lambda table, cell: table.left[cell],
    "right": lambda table, cell: table.right[cell],
    "left_heading": lambda table, cell: table.headings(cell, table.left),
    "top_heading": lambda table, cell: table.headings(cell, table.up),
}


def _baseline(fields: Mapping[str, Any], markdown: str) -> FactVerdict:
    most = fields.get("max_length")
    counted = markdown
    if most is not None and fields.get("max_length_skips_image_alt_tags"):
        counted = _PICTURE.sub("", markdown)
    letters = sum(map(str.isalnum, counted))
    if most is not None:
        return FactVerdict(letters <= most, "" if letters <= most else f"{letters} characters on a page that is blank")
    if not letters:
        return FactVerdict(False, "the text has no letter or digit")
    # Its last character, its last two, ... may be repeated at the end, with nothing between them.
    text = _BLANKS.sub(" ", markdown)
    for size in range(1, _REPEATED + 1):
        end, count = text[-size:], 0
        place = len(text) - size
        while len(text) >= size and place >= 0 and text[place : place + size] == end:
            count += 1
            place -= size
        if count > fields.get("max_repeats", 30):
            return FactVerdict(False, f"the text ends with {count} repetitions of {size} characters")
    if fields.get("check_disallowed_characters", True) and (foreign := _FOREIGN.search(markdown)):
        return FactVerdict(False, f"the text has a character that the page cannot have: {foreign[0]}")
    return FactVerdict(True)


def _format(fields: Mapping[str, Any], markdown: str) -> FactVerdict:
    wanted = normalized(fields["text"])
    texts: list[str] = []
    for pattern in FORMATS[fields["format"]]:
        texts += map(normalized, pattern.findall(markdown))
    if not fields.get("case_sensitive", True):
        wanted, texts = wanted.lower(), [text.lower() for text in texts]
    least = _share(fields, wanted)
    if any(fuzz.partial_ratio(wanted, text) / 100.0 >= least for text in texts):
        return FactVerdict(True)
    return FactVerdict(False, f"{_excerpt(wanted)} is no {fields['format']}")


def _footnote(fields: Mapping[str, Any], markdown: str) -> FactVerdict:
    mark = fields["marker"]
    patterns = [
        re.compile(rf"\[\^{re.escape(mark)}\](?!:)"),
        re.compile(rf"<sup[^>]*>{re.escape(mark)}</sup>", re.IGNORECASE),
    ]
    if {*mark} <= {*"0123456789"}:
        patterns.append(re.compile(mark.translate(_SUPERSCRIPTS)))
    before: list[str] = []
    after: list[str] = []
    for pattern in patterns:
        for match in pattern.finditer(markdown):
            start, end = match.span()
            before.append(_alphanumeric(markdown[max(0, start - _BESIDE_NOTE) : start]))
            after.append(_alphanumeric(markdown[end : end + _BESIDE_NOTE]))
    if not before:
        return FactVerdict(False, f"there is no footnote mark {_excerpt(mark)}")
    for field, texts, near in (
        ("appears_before_marker", before, lambda text, length: text[-length:]),
        ("appears_after_marker", after, lambda text, length: text[:length]),
    ):
        if not (wanted := normalized(fields.get(field) or "")):
            continue
        plain, least = _alphanumeric(wanted), _share(fields, wanted)
        parts = [near(text, min(len(text), 2 * len(plain))) or text for text in texts if text]
        if not any(fuzz.partial_ratio(plain, part) / 100.0 >= least for part in parts):
            return FactVerdict(False, f"{_excerpt(wanted)} is not beside a footnote mark {_excerpt(mark)}")
    return FactVerdict(True)


def _alphanumeric(text: str) -> str:
    return "".join(filter(str.isalnum, normalized(text))).lower()


def _excerpt(text: str) -> str:
    return f"'{text[:_SHOWN]}{'...' if len(text) > _SHOWN else ''}'"


_CHECKS: Mapping[str, Callable[[Mapping[str, Any], str], FactVerdict]] = {
    "present": _presence,
    "absent": _presence,
    "order": _order,
    "table": _table,
    "baseline": _baseline,
    "format": _format,
    "footnote": _footnote,
    "math": lambda *_: FactVerdict(None, "formulas are compared as they are drawn, which needs a browser"),
}
