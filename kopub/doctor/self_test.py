"""The self-test: the loaded engines process the samples and are compared with expected results.

Each engine is judged separately: the layout by the model's own code, the recognizer by the printed text, the embedder
on the printed texts. Only the recognizer needs the result of another engine: the regions.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np

from kopub.diff.compare import match
from kopub.doctor.checks import Finding, Level, ok, problem, warning
from kopub.embedding.base import Embedder, Embedding
from kopub.engine import Engine
from kopub.errors import EngineError, counted
from kopub.evaluation.characters import character_errors
from kopub.folders import SAMPLES
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.arrow import open_pages
from kopub.pages.corpus import Query, from_table, read_table
from kopub.pages.manifest import Manifest
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.known_texts import PageToRead, known_texts, read_unknown
from kopub.states import MADE, TRIES_AGAIN, State, phrase
from kopub.store.run_records import SelfTest, keep
from kopub.texts.markdown import page_text

GOLD = SAMPLES / "gold"


@dataclass(frozen=True, slots=True)
class Samples:
    """Pages, their texts by page id, and queries."""

    pages: Sequence[Page]
    texts: dict[str, str]
    queries: Sequence[Query]


def read_samples() -> Samples:
    """Return the twelve pages that come with the project. Raises `SourceError`."""
    manifest = Manifest.load(SAMPLES)
    pages, queries = [], []
    table = read_table(SAMPLES / manifest.queries.file) if manifest.queries else None
    for shard in manifest.shards:
        file = open_pages(SAMPLES / shard.file, shard.format)
        for row in map(file.row, range(shard.rows)):
            if row.id is not None and row.image is not None:
                pages.append(Page(row.id, bytes(row.image)))
        queries += from_table(table, shard.key) if table is not None else []
    texts = {page.page_id: (GOLD / f"{page.page_id}.txt").read_text("utf-8") for page in pages}
    return Samples(pages, texts, queries)


ALIKE, ALIKE_DOUBTFUL = 0.75, 0.9
"""Share of regions that match those of the model's own code. In half precision, about one box in twenty, near the
threshold, appears or disappears; another model, or broken weights, share few regions."""
SAME_BOX = 0.8
"""Least IoU at which two boxes are the same; between precisions, the region of a line of text moves by less."""
CER, CER_DOUBTFUL = 0.3, 0.1
"""Character error rates: Tesseract has 0.05 on these pages, and the text of other pages has 0.9 or more."""
COSINE = 0.99
"""Least cosine to the vector of float32; rounding to bfloat16 costs less than a thousandth."""
RECALL, RECALL_DOUBTFUL, AT = 0.7, 0.8, 5
"""Share of questions that find their page among the first five: 0.875 by hashed n-grams, 0.42 by a random order."""
_REFERENCE_TEXT = 300
"""Characters of the text whose vector is compared with the model's own."""

Step = Callable[[str, int, int], None]
"""A callback for progress: what is being done, how many are done, and of how many."""


@dataclass(slots=True)
class Judgement:
    """The judgement of one engine: its findings, and its figures by name."""

    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Engines:
    """The engines of a profile, as the same objects that a run would use."""

    layout: LayoutDetector
    recognition: Recognizer
    embedding: Embedder


def self_test(
    engines: Engines,
    samples: Samples,
    home: Path,
    step: Step = lambda *_: None,
    judged_one: Callable[[str], None] = lambda _: None,
) -> Iterator[Finding]:
    """Test the three engines, keep their results in `home`, and yield findings.

    `judged_one` is called with each section that was judged, before the next engine begins. For an engine that cannot
    run, no result is kept, because none of its rows is in doubt. Raises `StoreError` if a result cannot be kept.
    """
    layouts: dict[str, Layout] = {}
    tests: list[tuple[str, Engine, Callable[[Judgement], None]]] = [
        ("layout", engines.layout, partial(_test_layout, engines.layout, samples, layouts, step)),
        ("recognition", engines.recognition, partial(_test_recognition, engines.recognition, samples, layouts, step)),
        ("embedding", engines.embedding, partial(_test_embedding, engines.embedding, samples, step)),
    ]
    well: set[str] = set()
    for section, engine, test in tests:
        judged = Judgement()
        if section == "recognition" and "layout" not in well:
            yield warning(section, "it was not judged: the regions that it reads are the layout's", "fix that first")
            continue
        try:
            test(judged)
        except EngineError as error:
            yield problem(section, "it cannot run: {reason}", "fix that, and run `kopub doctor` again", reason=error)
            continue
        wrong = [finding.says for finding in judged.findings if finding.level is Level.PROBLEM]
        if not wrong:
            well.add(section)
        keep(home, SelfTest.now(section, engine.recipe(), judged.figures, wrong))
        yield from judged.findings
        judged_one(section)


def _test_layout(
    engine: LayoutDetector, samples: Samples, layouts: dict[str, Layout], step: Step, judged: Judgement
) -> None:
    for done in engine.detect(samples.pages):
        layouts[done.page_id] = done
        step("layout", len(layouts), len(samples.pages))
    bare = [page.page_id for page in samples.pages if not _regions(layouts, page.page_id)]
    regions = sum(len(done.regions) for done in layouts.values())
    if bare:
        reason = layouts[bare[0]].reason if bare[0] in layouts else "no answer"
        form = "{count} of {pages} pages have no regions ({page}: {reason})"
        says = phrase(form, len(bare), len(samples.pages), bare[0], reason)
        judged.findings.append(problem("layout", says, _WEIGHTS))
        return
    page = samples.pages[0]
    step("layout: the model's own code", 0, 1)
    expected = engine.reference(page)
    if expected is None:
        says = "{regions} regions on {pages} pages"
        judged.findings.append(ok("layout", says, regions=regions, pages=len(samples.pages)))
        return
    # The share of regions with a matching partner, or 1 without any regions.
    own = _regions(layouts, page.page_id)
    pairs = match([region.bbox for region in own], [region.bbox for region in expected.regions])
    same = sum(own[i].label == expected.regions[j].label and overlap >= SAME_BOX for i, j, overlap in pairs)
    total = len(own) + len(expected.regions)
    alike = 2 * same / total if total else 1.0
    judged.figures["regions alike"] = alike
    form = "{regions} regions on {pages} pages; {alike:.0%} as the model's own code finds them"
    says = phrase(form, regions, len(samples.pages), alike)
    judged.findings.append(_grade("layout", says, alike >= ALIKE_DOUBTFUL, alike >= ALIKE, _WEIGHTS))


def _test_recognition(
    engine: Recognizer, samples: Samples, layouts: dict[str, Layout], step: Step, judged: Judgement
) -> None:
    texts: dict[str, str] = {}
    lost: dict[str, str] = {}
    reread = {Task(task) for task in engine.reread}
    pages: list[PageToRead] = []
    for page in samples.pages:
        regions = _regions(layouts, page.page_id)
        pages.append(PageToRead(page, regions, known_texts(regions, reread)))
    for done in read_unknown(engine.read, pages):
        texts[done.page_id] = page_text(done.regions)
        if done.state is not State.OK:
            lost[done.page_id] = phrase("{page} is {state}: {reason}", done.page_id, done.state, done.reason)
        step("recognition", len(texts), len(samples.pages))
    if lost:
        do = "see the reason; a run would report each such page"
        reason = next(iter(lost.values()))
        says = phrase("{count} pages were not read whole ({reason})", len(lost), reason)
        judged.findings.append(warning("recognition", says, do))
    # What a limit of time cut off says nothing about the weights.
    late = {page_id for page_id, reason in lost.items() if TRIES_AGAIN in reason}
    whole = {page.page_id: samples.texts[page.page_id] for page in samples.pages if page.page_id not in late}
    if not whole:
        do = "try again when the machine has less to do, or give its limit of time more seconds"
        judged.findings.append(problem("recognition", "every page took too long", do))
        return
    rate = character_error_rate(texts, whole)
    judged.figures["CER"] = rate
    says = phrase("character error rate {rate:.3f} of all characters on {pages}", rate, counted(len(whole), "page"))
    if rate >= CER:
        says = phrase("it reads rubbish: {reason}", says)
    judged.findings.append(_grade("recognition", says, rate < CER_DOUBTFUL, rate < CER, _WEIGHTS))


def _test_embedding(engine: Embedder, samples: Samples, step: Step, judged: Judgement) -> None:
    questions = {query.query_id: query.query for query in samples.queries}
    total = len(samples.pages) + len(samples.texts) + len(questions)
    done = count(1)
    unsound: list[Embedding] = []

    def vectors(embeddings: Iterator[Embedding]) -> dict[str, np.ndarray]:
        by_id: dict[str, np.ndarray] = {}
        for embedding in embeddings:
            vector = embedding.vector
            if vector is not None:
                by_id[embedding.id] = vector
            if not (
                embedding.state is State.OK
                and vector is not None
                and vector.shape == (engine.dim,)
                and np.isfinite(vector).all()
                and abs(float(np.linalg.norm(vector)) - 1) < 5e-3
            ):
                unsound.append(embedding)
            step("embedding", next(done), total)
        return by_id

    images = vectors(iter(engine.embed_images(samples.pages)))
    texts = vectors(iter(engine.embed_texts(samples.texts.items())))
    queries = vectors(iter(engine.embed_queries(questions.items())))
    if unsound:
        form = "{count} of {total} vectors are not sound ({id}: {reason})"
        says = phrase(form, len(unsound), total, unsound[0].id, unsound[0].reason or "its numbers")
        judged.findings.append(problem("embedding", says, _WEIGHTS))
        return
    for kind, pages, form in (("text", texts, _BY_TEXT), ("image", images, _BY_IMAGE)):
        if kind in engine.queries_match and samples.queries:
            share = recall(pages, queries, samples.queries, AT)
            judged.figures[f"recall@{AT} of {kind} vectors"] = share
            says = phrase(form, share, len(questions), AT)
            judged.findings.append(_grade("embedding", says, share >= RECALL_DOUBTFUL, share >= RECALL, _WEIGHTS))
    _compare_vectors(engine, samples, images, step, judged)


def _compare_vectors(
    engine: Embedder, samples: Samples, images: dict[str, np.ndarray], step: Step, judged: Judgement
) -> None:
    page = samples.pages[0]
    text = samples.texts[page.page_id][:_REFERENCE_TEXT]
    step("embedding: the model's own code", 0, 1)
    try:
        expected = engine.reference(page, text)
    except EngineError as error:
        says = "the vectors were not compared with those of the model's own code: {reason}"
        do = "the vectors are sound if questions find their pages"
        judged.findings.append(warning("embedding", says, do, reason=error))
        return
    if expected is None:
        return
    text_vector = next(iter(engine.embed_texts([("text", text)]))).vector
    for kind, own, other in (("page", images[page.page_id], expected[0]), ("text", text_vector, expected[1])):
        cosine = 0.0 if own is None else float(own @ other)
        judged.figures[f"cosine of a {kind}"] = cosine
        form = _OF_PAGE if kind == "page" else _OF_TEXT
        says = phrase(form, cosine)
        judged.findings.append(_grade("embedding", says, cosine >= COSINE, cosine >= COSINE, _WEIGHTS))


_BY_TEXT = "{share:.0%} of {questions} questions find their page by text among the first {most}"
_BY_IMAGE = "{share:.0%} of {questions} questions find their page by image among the first {most}"
_OF_PAGE = "the vector of a page has cosine {cosine:.4f} to that of the model's own code"
_OF_TEXT = "the vector of a text has cosine {cosine:.4f} to that of the model's own code"
_WEIGHTS = "check the weights (`kopub pull`), and what differs from the profile as it is shipped"


def _grade(check: str, says: str, is_good: bool, is_bearable: bool, do: str) -> Finding:
    if is_good:
        return ok(check, says)
    return warning(check, says, do) if is_bearable else problem(check, says, do)


def _regions(layouts: dict[str, Layout], page_id: str) -> Sequence[Region]:
    return layouts[page_id].regions if page_id in layouts and layouts[page_id].state in MADE else ()


def character_error_rate(read: Mapping[str, str], printed: Mapping[str, str]) -> float:
    """Return the edits divided by the printed characters, over all pages together.

    Texts are compared in NFC and without white space, because lines may be broken anywhere. A lost page counts as all
    wrong.
    """
    edits = characters = 0
    for page_id, text in printed.items():
        error = character_errors(text, read.get(page_id, ""))
        edits += min(error.count, error.size)
        characters += error.size
    return edits / characters if characters else 0.0


def recall(
    pages: Mapping[str, np.ndarray], queries: Mapping[str, np.ndarray], questions: Sequence[Query], at: int
) -> float:
    """Return the share of questions with one of their pages among the first `at`.

    A tied page counts as the last of the tie, because otherwise identical vectors would seem to find pages.
    """
    if not pages or not questions:
        return 0.0
    ids, matrix = list(pages), np.stack(list(pages.values()))
    hits = 0
    for query in questions:
        if query.query_id in queries:
            scores = dict(zip(ids, matrix @ queries[query.query_id], strict=True))
            best = max((scores[page] for page in query.ground_truth if page in scores), default=None)
            hits += best is not None and sum(score >= best for score in scores.values()) <= at
    return hits / len(questions)
