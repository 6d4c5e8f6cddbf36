"""Describes a release, and pushes a whole one to the Hub.

It pushes only if a run or a person requests it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from kopub.engine import Engine
from kopub.errors import ClosedGate, StoreError, counted
from kopub.evaluation.reading_scores import HISTORY as READING_HISTORY
from kopub.evaluation.reading_scores import guards, same_run, verdict
from kopub.evaluation.reading_scores import significant_drops as significant_reading_drops
from kopub.pages.corpus import Corpus
from kopub.release.base import RELEASE, ReleaseDescription
from kopub.release.files import DATA_PATH, list_parts
from kopub.release.fitness import Fitness, fitness
from kopub.release.gates import Gates
from kopub.release.hub import HubPush, HubTarget, LocalFile, local_files, release_digest
from kopub.release.local import LocalRelease
from kopub.search.metrics import HISTORY, SCORES, significant_drops
from kopub.search.scores import ALL, FEWEST, Contents
from kopub.states import joined, phrase
from kopub.store import run_records
from kopub.store.corpus_tables import OCR_SCORES, TABLES
from kopub.store.table_source import FooterCache
from kopub.store.table_store import ShardStore

_LOOKS = 3
"""Times to look again if another run begins to write a shard at that very moment."""

Log = Callable[[str], None]


def publish(
    about: ReleaseDescription, release: LocalRelease, hub: HubTarget, store: ShardStore, tag: str | None, log: Log
) -> HubPush:
    """Push the release to the repository, if it is whole and fit, and tag it.

    A release that lacks shards of the corpus is pushed without a tag; by default the tag is made from the contents, so
    that equal releases have the same. Raises `ClosedGate` or `StoreError` before anything is sent, and `HubError`.
    """

    def read() -> Mapping[str, LocalFile]:
        files = whole(about, release, store)
        require_fit(about, release)
        return files

    def name(files: Mapping[str, LocalFile]) -> str | None:
        there = released(files)
        missing = [shard for shard in about.shards if shard not in there]
        if missing and tag is not None:
            form = "{count} of {shards} shards are missing, {shard} first: no tag {tag}"
            raise ClosedGate(form, len(missing), len(about.shards), missing[0], tag)
        # The card counts too: with a different card it is another release.
        return None if missing else tag or f"release-{release_digest(files)[:12]}"

    hub.require_repo()
    files = read()
    name(files)  # Raises before the first request to the Hub.
    form = "{title}: {count} of {shards} shards"
    return hub.push(read, phrase(form, about.title, len(released(files)), len(about.shards)), name, log)


def whole(about: ReleaseDescription, release: LocalRelease, store: ShardStore) -> Mapping[str, LocalFile]:
    """Return the files of the release, with a present card.

    No other run may be writing one of its shards. Raises `StoreError` for a shard whose files are of two runs because
    one was killed.
    """
    files: Mapping[str, LocalFile] | None = None
    for _ in range(_LOOKS):
        for shard in about.shards:
            with store.exclusive(RELEASE, shard):
                pass
        release.finish(about)
        with release.locked() as folder, suppress(StoreError):
            files = local_files(folder)
            break
    if files is None:
        raise StoreError("{folder} is being written by another run: publish it when that is done", release.root)
    if not released(files):
        raise StoreError("{folder} holds no shard: `kopub run` makes it", release.root)
    for shard, of_shard in released(files).items():
        table = store.read(RELEASE, shard, ["path", "sha256"]).to_pylist()
        if {row["path"]: row["sha256"] for row in table} != of_shard:
            form = "the released files of {shard} are not those of one run: materialize hf_release for it"
            raise StoreError(form, shard)
    return files


def fitness_of(about: ReleaseDescription, release: LocalRelease) -> Fitness:
    """Return the fitness of the release as it lies in its folder."""
    with release.locked() as folder:
        return fitness(list_parts(folder), about)


def require_fit(about: ReleaseDescription, release: LocalRelease) -> None:
    """Raise `ClosedGate` when quality or licences keep the release off the Hub."""
    if closed := fitness_of(about, release).closed:
        raise ClosedGate("not published: {reason}", joined(closed))


def released(files: Mapping[str, LocalFile]) -> dict[str, dict[str, str]]:
    """Return the SHA-256 of each shard's data files by path."""
    by_shard: dict[str, dict[str, str]] = {}
    for path, file in files.items():
        if match := DATA_PATH.fullmatch(path):
            by_shard.setdefault(match["shard"], {})[path] = file.sha256
    return by_shard


def describe(
    release: LocalRelease,
    corpus: Corpus,
    store: ShardStore,
    engines: Mapping[str, Engine],
    gates: Gates,
    profile: str,
    made_from: Contents,
) -> ReleaseDescription:
    """Return the description of the release.

    `engines` are those behind the assets, each of which states its limits. `made_from` has, by released shard and
    asset, the contents from which its files were made. Scores of other vectors, texts or readings are left out and
    reported as missing.
    """
    scores, problems = _retrieval(store, made_from)
    questions = max(scores["queries"].to_pylist(), default=0) if scores is not None else 0
    reading, reading_problems, unjudged = reading_scores(corpus, store, gates, profile, made_from)
    # A section has two engines while an upgrade is under way, and each is named once.
    footers = FooterCache(store)
    by_recipe: dict[str, run_records.SelfTest] = {}
    for asset in engines:
        for made_with in _made_with(footers, asset, corpus.manifest.keys):
            test = run_records.of_table(corpus.folder, made_with)
            if test is not None:
                by_recipe[test.recipe] = test
    tests = sorted(by_recipe.values(), key=lambda test: (test.tested_at, test.section))
    form = "the self-test of {section} {reason}"
    limits: dict[str, None] = {}
    for engine in engines.values():
        limits |= dict.fromkeys(engine.limits)
    return ReleaseDescription(
        title=release.title,
        source=corpus.manifest.name,
        profile=profile,
        shards=corpus.manifest.keys,
        left=corpus.manifest.left,
        limits=list(limits),
        license=release.license,
        publish_under=release.publish_under,
        gates=gates,
        scores=scores,
        retrieval_problems=problems,
        self_tests=[f"{test.section} ({test.engine}): {test}" for test in tests],
        engine_problems=[phrase(form, test.section, str(test)) for test in tests if not test.passed],
        reading=reading,
        reading_problems=reading_problems,
        unjudged=[*(_too_few("the questions", questions, "question") if questions else ()), *unjudged],
    )


def _retrieval(store: ShardStore, released: Contents) -> tuple[pa.Table | None, list[str]]:
    """Return the scores of the `released` vectors, and the problems with them.

    Scores of anything else are None.
    """
    if unmeasured := HISTORY.unmeasured(store, released):
        form = (
            "retrieval was not measured on what is released of {count} shards, {shard} first: materialize "
            "retrieval_scores"
        )
        return None, [phrase(form, len(unmeasured), unmeasured[0])]
    if not store.has(SCORES, ALL):
        return None, []
    scores = store.read(SCORES, ALL)
    return scores, significant_drops(scores)


_READERS = (TABLES.readings.name, TABLES.texts.name)
"""The assets whose engines and versions must be those that were evaluated; a benchmark may give its own layout."""


def reading_scores(
    corpus: Corpus, store: ShardStore, gates: Gates, profile: str, released: Contents
) -> tuple[list[pa.Table], list[str], list[str]]:
    """Return the reading scores of the corpus and of its benchmarks, with the problems.

    The corpus is scored by its own known answers; the benchmarks are those that guard it. `released` has the contents
    from which the release was made. Scores of other readings are left out and reported as missing. The third part says
    which scores are of too few documents to prove a fall.
    """
    tables: list[pa.Table] = []
    problems: list[str] = []
    unjudged: list[str] = []
    if store.has(OCR_SCORES.name, ALL):
        if unmeasured := READING_HISTORY.unmeasured(store, released):
            form = "reading was not measured on what is released of {count} shards, {shard} first: materialize {asset}"
            problems.append(phrase(form, len(unmeasured), unmeasured[0], OCR_SCORES))
        else:
            tables.append(store.read(OCR_SCORES.name, ALL))
            problems += significant_reading_drops(tables[-1])
            unjudged += _too_few_documents("the pages with known answers", store)
    for request in guards(gates.benchmarks, gates.benchmark_samples, Path(corpus.home)):
        guard, baseline = request.store(Path(corpus.home), profile), request.baseline(Path(corpus.home))
        judgement = verdict(baseline) if same_run(guard, baseline) else None
        unproved: set[str] = set()
        for asset in _READERS:
            read_by = _made_with(FooterCache(guard), asset, guard.published(asset))
            unproved |= _made_with(FooterCache(store), asset, released) - read_by
        if judgement is None or unproved:
            form = "the benchmark {benchmark} was not read by what made this release: {command}"
            problems.append(phrase(form, request.benchmark, request.command))
            continue
        tables.append(judgement.scores)
        problems += judgement.closed
        unjudged += _too_few_documents(phrase("the benchmark {benchmark}", request.benchmark), baseline)
    return tables, problems, unjudged


def _too_few_documents(what: str, store: ShardStore) -> Iterator[str]:
    run = READING_HISTORY.latest(store)
    if run is not None and run.table.num_rows:
        yield from _too_few(what, len(run.table["document"].unique()), "document")


def _too_few(what: str, count: int, one: str) -> Iterator[str]:
    """Yield a sentence if so few were measured that no fall can be proved."""
    if count < FEWEST:
        form = "{what}: {count}, fewer than the {fewest} that prove a fall: this gate cannot close"
        yield phrase(form, what, counted(count, one), FEWEST)


def _made_with(footers: FooterCache, asset: str, shards: Iterable[str]) -> set[str]:
    tables = footers.tables(asset)
    return {tables[shard].made_with for shard in shards if shard in tables}
