"""The dataset for others to load: Parquet files by configuration, and a card."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pydantic import Field

from kopub.config.settings import Resources
from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.log import CorrectionLog
from kopub.engine import Engine, Resource
from kopub.errors import ClosedGate, SourceError, StoreError, counted
from kopub.evaluation.reading_scores import headline_changes as reading_changes
from kopub.fingerprints import CodeVersion, fingerprint
from kopub.pages.manifest import LEFT_OUT
from kopub.pages.page_reader import origins
from kopub.release.base import ReleaseDescription, ReleasedFile, ReleaseInput, page_images
from kopub.release.files import CONFIGS, INCOMPLETE, Inventory, list_parts
from kopub.release.fitness import Fitness, fitness
from kopub.release.local import LocalRelease
from kopub.release.publishing import describe, publish
from kopub.release.remote import publish_to
from kopub.release.versions import available_shards, replace_release, require_place
from kopub.search.metrics import headline_changes as finding_changes
from kopub.search.scores import change_lines, pages_by_state
from kopub.states import State, joined, phrase
from kopub.store import ledger, schemas
from kopub.store.corpus_tables import BENCHMARKS, OCR_SCORES, RELEASED_FILES, SCORES, Table
from kopub.store.table_source import SOURCE, FooterCache
from kopub.tables.asset import Metadata, PublishedShard, RunContext, ShardAsset
from kopub.tables.checks import Check
from kopub.tables.document_chunks import DocumentChunks
from kopub.tables.embeddings import CorpusImageEmbeddings, CorpusTextEmbeddings, PassageEmbeddings, QueryEmbeddings
from kopub.tables.figures import FigureEmbeddings, FigureNotes
from kopub.tables.metadata import Account, Link
from kopub.tables.ocr_and_texts import OcrResults, ParsedTexts
from kopub.tables.pages_and_layout import LayoutRegions, RawPages
from kopub.tables.progress import watcher
from kopub.tables.provenance import Provenance, footer_of
from kopub.tables.rows import Work

EVERY_PAGE_RELEASED = Check("every_page_released", "Every page of the shard is in the release, with its state.")
VERIFIED = Check("verified", "Files, hashes, counts, columns and joins are right, and it loads.")
WHOLE = Check(
    "corpus_is_whole",
    "No page of the corpus is lost or read in part, reading and finding got no worse, and no gate is closed. Its "
    "sentence counts every page of the corpus once.",
    blocking=False,
)
PUBLISH_TAG = "kopub/publish"
"""Run tag that requests a push like the field `push`; for backfills, whose runs share one configuration."""


class Publishing(Resource):
    """The run's choice to push the release to the repository that the profile configures."""

    push: bool = Field(default=False, description="Push the release to hub.repo once it is made.")
    tag: str = Field(default="", description="Tag of the pushed release; by default made from its contents.")


class HfRelease(ShardAsset):
    """The released files of a shard, with their hashes.

    They are staged, and one run puts the release in place as a whole, with the shards that other nodes released. The
    card is written last, from the contents of the release. `datasets.load_dataset(folder, config)` opens it. Nothing
    leaves this machine unless the profile names a repository and the run requests a push, by `push` or by the run tag
    `kopub/publish`.
    """

    table: ClassVar[Table] = RELEASED_FILES
    code_version: ClassVar[CodeVersion] = CodeVersion(
        "hf_release", {1: "the first release", 2: "pages say which file of their owner's they come from"}
    )
    parents = (
        RawPages,
        LayoutRegions,
        OcrResults,
        ParsedTexts,
        CorpusImageEmbeddings,
        CorpusTextEmbeddings,
        QueryEmbeddings,
        DocumentChunks,
        FigureNotes,
        FigureEmbeddings,
        PassageEmbeddings,
    )
    after: ClassVar[tuple[str, ...]] = (SCORES.name, OCR_SCORES.name, BENCHMARKS)
    engine_section: ClassVar[str | None] = "release"
    engine: LocalRelease
    needs: ClassVar[tuple[str, ...]] = (
        "layout", "recognition", "embedding", "notes", "figures", "documents", "hub", "gates", "profile",
    )  # fmt: skip
    kinds: ClassVar[frozenset[str]] = frozenset({"huggingface"})
    checks: ClassVar[tuple[Check, ...]] = (EVERY_PAGE_RELEASED, VERIFIED, WHOLE)
    config: ClassVar[type[Resource] | None] = Publishing

    def __init__(self, resources: Resources) -> None:
        super().__init__(resources)
        self._hashes: dict[str, dict[str, str]] = {}
        """The hashes of the files that this run released, by shard."""
        self._is_placed = False

    def expected_rows(self, shard: str, rows_now: int | None) -> int:
        may_lack = {DocumentChunks, FigureNotes, FigureEmbeddings, PassageEmbeddings}
        optional = len(may_lack & {*self.reads})
        of_people = self.engine.corrections != "none"
        return len(CONFIGS) + optional + of_people if rows_now is None else rows_now

    def shard_settings(self, shard: str) -> Mapping[str, str]:
        log = CorrectionLog(self.store)
        settings = log.shard_settings(shard)
        if self.engine.corrections == "none":
            return settings
        return {**settings, "corrections.released": log.marks([shard], checked=True).get(shard, "0")}

    def require_possible(self) -> None:
        """Check once per run that the release may be written to its place.

        Raises `ConfigError`.
        """
        if not self._is_placed:
            require_place(self.engine, self.corpus, self.store.url)
            self._is_placed = True

    def make_shard(self, shard: str, run: RunContext) -> PublishedShard:
        started = time.monotonic()
        self.require_possible()
        with self.store.exclusive(self.name, shard), self.store.fetched_once():
            stored = self.store.find_sound(self.name, shard)
            if stored is not None:
                self.require_not_newer(shard, stored[1].get("made_with", ""))
            stamp = self.provenance(shard)
            tables = self._tables(shard)
            run.problems.note(EVERY_PAGE_RELEASED.name, shard, self._problem(shard, tables))
            run.problems.note(VERIFIED.name, shard, None)
            run.problems.stop_at(shard)
            files = self._stage(shard, tables)
            before = set(stored[0]["sha256"].to_pylist()) if stored else set()
            changed = {(file.path, file.sha256): 1.0 for file in files if file.sha256 not in before}
            table = pa.Table.from_pylist([asdict(file) for file in files], schemas.HF_RELEASE)
            metadata = stamp.metadata(table) | self._corpus(shard)
            if stored is None or stored[1] != metadata or not stored[0].equals(table):
                self.store.write(self.name, shard, table, metadata, replaces=stored is not None)
            account = Account(self.store, self.name, run.run_id, self.recipe_hash, gpus=0)
            account.enter(shard, Work(changed, [], time.monotonic() - started), first=stored is None)
        self._hashes[shard] = {file.path: file.sha256 for file in files}
        watcher().planned(self.name, shard, len(changed))
        for _ in changed:
            watcher().computed(self.name, shard)
        if changed:
            run.log(f"{self.name} {shard}: {len(changed)} of {len(files)} files changed")
        return PublishedShard(stamp.recipe, _files(files, len(changed)))

    def keep(self, shard: str, run: RunContext, stamp: Provenance) -> PublishedShard | None:
        self.require_possible()
        stored = self.store.find_sound(self.name, shard)
        if stored is None or stored[1] != stamp.metadata(stored[0]) | self._corpus(shard):
            return None
        files = [ReleasedFile(**row) for row in stored[0].to_pylist()]
        hashes = {file.path: file.sha256 for file in files}
        if not available_shards(self.engine, {shard: hashes}).current:
            return None
        roots = {asset.table.name: asset(self.resources).source(shard) for asset in (RawPages, QueryEmbeddings)}
        if any(roots.get(root, content) != content for root, content in json.loads(stamp.sources)):
            return None
        for check in (EVERY_PAGE_RELEASED, VERIFIED):
            run.problems.note(check.name, shard, None)
        self._hashes[shard] = hashes
        return PublishedShard(stamp.recipe, _files(files, 0))

    def _corpus(self, shard: str) -> dict[str, str]:
        """Return the facts of the corpus that released files hold besides the tables."""
        if self.store.local:
            return {}
        entry = self.corpus.manifest.shard(shard)
        sources = [s.model_dump(mode="json") for s in self.corpus.manifest.sources if s.name == entry.source]
        return {"corpus": fingerprint([entry.model_dump(mode="json"), sources, sorted(self.corpus.unknown_pages)])}

    def finish(self, run: RunContext, finished: Mapping[str, PublishedShard]) -> None:
        """Put the verified release in place as a whole, publish it, and push it.

        It is published if it belongs elsewhere, and pushed on request. The card depends on what this run put into the
        release, so it is written last.
        """
        # With `datasets`, which a plan or the definitions need not load.
        from kopub.release.verify import verify

        anew = any(table.metadata["computed"] for table in finished.values())

        def require_verified(folder: Path) -> None:
            if problems := list(verify(folder, finished.keys(), load=anew)):
                for shard in finished:
                    run.problems.note(VERIFIED.name, shard, joined(problems))
                raise ClosedGate(joined(problems))

        with self.store.fetched_once():
            about = self.replace_release(run.log, run.warn, require_verified)
        inventory = list_parts(self.engine.root)
        fit = fitness(inventory, about)
        for table in finished.values():
            table.metadata["keeps_it_off_the_hub"] = "; ".join(fit.closed) or "nothing"
        self._conclude(run, finished, inventory, about, fit)
        if self.engine.url is not None:
            published = publish_to(self.engine.url, self.engine.root, run.log)
            for table in finished.values():
                table.metadata["published"] = published or "not yet: shards of the corpus are not released"
        if not (run.config.push or run.has_tag(PUBLISH_TAG)):
            return
        if len(finished) < len(run.shards):
            run.warn("not pushed: a shard of this run failed")
            return
        pushed = publish(about, self.engine, self.resources["hub"], self.store, run.config.tag or None, run.log)
        for table in finished.values():
            table.metadata.update(
                commit=Link(pushed.url),
                pushed_files=pushed.difference.files,
                pushed_bytes=pushed.difference.bytes,
                tag=pushed.tag or "none: the release lacks shards of the corpus",
            )

    def _conclude(
        self,
        run: RunContext,
        finished: Mapping[str, PublishedShard],
        inventory: Inventory,
        about: ReleaseDescription,
        fit: Fitness,
    ) -> None:
        """Report the state of the corpus at the end of a run, with a check."""
        # Without a repository nothing is published, so gates about a licence do not apply.
        closed = fit.closed if self.resources["hub"].repo else fit.closed_by_quality
        states, doubtful = Counter[str](), 0
        for part in inventory["pages"]:
            states.update(part.summary["ended"])
            doubtful += part.summary["doubtful"]
        pages = pages_by_state(states, self.corpus.manifest.rows - states.total(), doubtful)
        reading = list(chain.from_iterable(map(reading_changes, about.reading)))
        finding = [] if about.scores is None else finding_changes(about.scores)
        worse = any(change.verdict == "worse" for change in (*reading, *finding))
        lines = [pages, *change_lines(reading, finding), *(f"gate closed: {line}" for line in closed)]
        lines += [f"not judged: {line}" for line in fit.unjudged]
        # What to do about each kind of loss is for the log alone; the check's sentence says what is so.
        advice: list[str] = []
        if lost := sum(states[state] for state in INCOMPLETE):
            form = "{pages} lost or read in part: `kopub status` names them{again}"
            again = "; the next run tries the failed ones again" if states[State.FAILED] else ""
            advice.append(phrase(form, counted(lost, "page"), again))
        if doubtful:
            advice.append("need review: `kopub doubts` lists them, worst first")
        place = self.corpus.place
        # On a remote place this would cost a request in each run.
        if not place.remote and place.has(LEFT_OUT):
            files = counted(len(place.read(LEFT_OUT).splitlines()), "file")
            advice.append(phrase("{files} left out: {location} says why", files, place.location(LEFT_OUT)))
        if worse:
            advice.append("worse than the run before: `kopub diff` shows the pages that changed")
        for line in (*lines, *advice):
            run.log(line)
        for table in finished.values():
            table.metadata["pages_of_the_corpus"] = pages
        run.problems.conclude(WHOLE.name, not (lost or worse or closed), "; ".join(lines))
        watcher().judged(closed, fit.unjudged)

    def replace_release(
        self,
        log: Callable[[str], None],
        warn: Callable[[str], None],
        check: Callable[[Path], None] = lambda folder: None,
    ) -> ReleaseDescription:
        """Make the release of the shared tables, and put it in place.

        `check` raises an error to forbid it; without one, the release is verified once it is in place. Once all shards
        are released somewhere, those that other nodes released are made here from their tables. Raises `ConfigError`
        if the release may not be written there, `StoreError`, and the errors of `check`; the previous release then
        stays.
        """
        self.require_possible()
        keys = self.corpus.manifest.keys
        footers = FooterCache(self.store).tables(self.name)
        for shard in keys:
            if shard in footers:
                self.require_not_newer(shard, footers[shard].made_with)
        files = {shard: self._hashes.get(shard) or self._listed(shard) for shard in keys if shard in footers}
        here = available_shards(self.engine, files)
        if len(files) == len(keys):
            for shard in files.keys() - set(here.current):
                files[shard] = self._bring_in(shard, log, warn)
            here = available_shards(self.engine, files)
        released = {*here.current, *here.older}
        about = self.about({shard: footers[shard].made_from for shard in files if shard in released})
        replace_release(self.engine, about, files, check)
        return about

    def _bring_in(self, shard: str, log: Callable[[str], None], warn: Callable[[str], None]) -> dict[str, str]:
        """Stage the files of a shard that another node released."""
        with self.store.exclusive(self.name, shard):
            expected = self._listed(shard)
            try:
                tables = self._tables(shard)
                if problem := self._problem(shard, tables):
                    raise StoreError(problem)
                files = {file.path: file.sha256 for file in self._stage(shard, tables)}
            except (StoreError, SourceError) as error:
                warn(phrase("{shard} is not in the release: {reason}", shard, error))
                return expected
        if files == expected:
            log(f"{self.name} {shard}: made from the tables, as another machine released it")
        else:
            form = "{shard} is not in the release: its tables changed since; materialize {asset} for it"
            warn(phrase(form, shard, self.name))
        return expected

    def _listed(self, shard: str) -> dict[str, str]:
        files = self.store.read(self.name, shard, ["path", "sha256"])
        return dict(zip(files["path"].to_pylist(), files["sha256"].to_pylist(), strict=True))

    def _tables(self, shard: str) -> ReleaseInput:
        runs = {parent.table.name: ledger.read(self.store, parent.table.name, shard) for parent in self.reads}
        origin = origins(self.corpus.manifest, shard)
        tables = ReleaseInput.read(
            CorrectedTables(self.store), shard, runs, self.corpus.unknown_pages, runs.keys(), origin
        )
        if self.engine.corrections == "none":
            return tables
        corrections = CorrectionLog(self.store).lasting(tables.raw_pages["page_id"].to_pylist())
        return replace(tables, corrections=corrections)

    def _stage(self, shard: str, tables: ReleaseInput) -> list[ReleasedFile]:
        if not self.engine.page_images:
            return self.engine.staged.publish(shard, tables)
        with page_images(self.corpus, shard, tables.raw_pages) as images:
            return self.engine.staged.publish(shard, tables, images)

    def _problem(self, shard: str, tables: ReleaseInput) -> str | None:
        """Return why a shard's tables do not match the corpus, or None."""
        pages, rows = self.corpus.manifest.shard(shard).rows, tables.raw_pages.num_rows
        if rows != pages:
            return phrase("raw_pages has {rows} pages, the corpus has {pages}: materialize it again", rows, pages)
        for asset in (RawPages, QueryEmbeddings):
            made_from = footer_of(self.store, asset.table.name, shard).made_from
            if made_from[SOURCE] != asset(self.resources).source(shard):
                form = "{asset} was made from another corpus than the one that is indexed: materialize it again"
                return phrase(form, asset.table)
        return None

    def about(self, made_from: Mapping[str, dict[str, str]]) -> ReleaseDescription:
        """Return the description of the release beyond its files. Raises `StoreError`.

        `made_from` has, by released shard and asset, the contents from which its files were made.
        """
        gates, profile = self.resources["gates"], self.resources["profile"]
        sections = {parent.table.name: parent.engine_section for parent in self.reads}
        engines: dict[str, Engine] = {asset: self.resources[section] for asset, section in sections.items() if section}
        return describe(self.engine, self.corpus, self.store, engines, gates, profile, made_from)


def _files(files: list[ReleasedFile], changed: int) -> Metadata:
    """Return what the UI shows of the released files."""
    rows = size = 0
    listed: list[dict[str, Any]] = []
    for file in files:
        rows += file.rows or 0
        size += file.bytes
        listed.append({"path": file.path, "rows": file.rows or 0, "bytes": file.bytes})
    counts = {"files_released": len(files), "computed": changed, "kept": len(files) - changed}
    return {"dagster/row_count": rows, **counts, "bytes": size, "files": listed}
