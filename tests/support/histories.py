"""A home whose corpus changes between runs, and the invariants that hold at every moment."""

import json
import shutil
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import kopub.pages.page_reader
from kopub.cli.commands.plan import plan_values
from kopub.cli.commands.status import status_values
from kopub.cli.options import first_look_lines
from kopub.config.settings import Settings
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.errors import DamagedTable, KopubError
from kopub.pages import page as page_images
from kopub.pages.corpus import Corpus as IndexedCorpus
from kopub.pages.indexing import Others, index, remove
from kopub.states import MADE, State
from kopub.store.append_log import AppendLog
from kopub.store.rows import is_setting
from kopub.store.table_store import ShardStore
from kopub.store.versions import Versions
from kopub.tables.asset import RETRY_PARTIAL_TAG, PublishedShard, RunContext, ShardAsset
from kopub.tables.checks import Problems
from kopub.tables.graph import GRAPH
from kopub.tables.provenance import SOURCE, footer_of
from kopub.tables.shard_loop import make_shards
from tests.doubles.witness_engines import (
    WitnessEmbedder,
    WitnessLayout,
    WitnessReader,
    sha256,
    witnessed_box,
    witnessed_text,
    witnessed_vector,
)
from tests.support.harness import STANDARD, Platform
from tests.support.sources.corpora import page_image, query, write_corpus

TABLES = STANDARD[:-1]
"""All tables but the release."""
BROKEN, BOMB = -1, -2
"""The variants of a page whose bytes are no image, and of one that claims to be as large as a town."""
REVISIONS = ("r1", "r2")
"""Revisions of the engines."""
PAPERS = ("c_1", "d_1", "e_1")
"""The pages of the folder of pictures that is added to the corpus, of files such as c.png."""
Corpus = list[list[tuple[str, int]]]
"""The pages of each shard as (id, variant); each variant has different bytes."""
Row = dict[str, Any]
Rows = dict[str, Row]


class KilledRun(BaseException):
    """Stands for the death of the process, so nothing in the product may catch it."""


@cache
def encoded(page_id: str, variant: int) -> bytes:
    if variant == BROKEN:
        return f"no image of {page_id}".encode()
    if variant == BOMB:
        small = page_image(int(sha256(page_id)[:6], 16), size=(16, 24))
        head = b"IHDR" + struct.pack(">II", 2_000_000_000, 2_000_000_000) + small[24:29]
        return small[:12] + head + struct.pack(">I", zlib.crc32(head)) + small[33:]
    return page_image(int(sha256(page_id)[:6], 16) + variant, size=(16, 24))


@contextmanager
def killed_after(writes: int) -> Iterator[None]:
    """Let the process die in the next change of the store after `writes` of them.

    It changes nothing from then on. If it dies while it clears a journal, that stays half cleared.
    """
    left = [writes]

    def dying(method: Any) -> Any:
        def call(self: Any, *args: Any, **named: Any) -> Any:
            left[0] -= 1
            if left[0] == -1 and method is clear and self.names():
                self.remove(self.names()[:1])
            if left[0] < 0:
                raise KilledRun
            return method(self, *args, **named)

        return call

    clear = AppendLog.clear
    places = [(ShardStore, "_put"), (AppendLog, "clear"), (Versions, "keep"), (Versions, "remove")]
    patches = [patch.object(owner, name, dying(getattr(owner, name))) for owner, name in places]
    for each in patches:
        each.start()
    try:
        yield
    except KilledRun:
        return
    finally:
        for each in patches:
            each.stop()


@contextmanager
def memory_is_short(left: int) -> Iterator[None]:
    """Raise `MemoryError` when a page is examined, except for the first `left`."""
    looks = iter([True] * left)
    look = page_images._refuse_several

    def looked(*given: Any, **named: Any) -> Any:
        if not next(looks, False):
            raise MemoryError("Unable to allocate 412. MiB for an array")
        return look(*given, **named)

    with patch.object(page_images, "_refuse_several", looked):
        yield


@dataclass
class CorpusHistory:
    """A platform with witness engines, and the rows of all its tables so far."""

    home: Path
    corpus: Corpus = field(default_factory=list)
    layout: dict[str, Any] = field(default_factory=dict)
    recognition: dict[str, Any] = field(default_factory=dict)
    embedding: dict[str, Any] = field(default_factory=dict)
    made: dict[tuple[str, str, str], Rows] = field(default_factory=dict)
    """The rows of every table so far by asset, shard and content hash."""
    bytes_of: dict[str, set[str]] = field(default_factory=dict)
    """The SHA-256 of all bytes that each page ever had."""
    corrected: dict[str, set[str]] = field(default_factory=dict)
    """All corrected texts that people ever entered, by page."""
    runs: int = 0
    flipped: set[tuple[str, str]] = field(default_factory=set)
    """The tables in which a bit was flipped, which a reader may find damaged."""
    failed: dict[tuple[str, str], KopubError] = field(default_factory=dict)
    """The errors of the last run by asset and shard."""
    profile: str = "cpu"

    @property
    def platform(self) -> Platform:
        """Return the platform as a process that starts now sees it."""
        engines = {
            "profile": self.profile,
            "layout": WitnessLayout(**self.layout),
            "recognition": WitnessReader(**self.recognition),
            "embedding": WitnessEmbedder(**self.embedding),
        }
        return Platform(self.home, engines)

    @property
    def settings(self) -> Settings:
        return replace(self.platform.settings, profile_name=self.profile)

    @property
    def store(self) -> ShardStore:
        return ShardStore(url=str(self.home / "store"))

    @property
    def source(self) -> Path:
        return self.home / "source"

    def write(self, corpus: Corpus) -> None:
        """Replace the files of the source folder without indexing them."""
        self.corpus = corpus
        shards = [[(page_id, encoded(page_id, variant)) for page_id, variant in pages] for pages in corpus]
        for pages in shards:
            for page_id, data in pages:
                self.bytes_of.setdefault(page_id, set()).add(sha256(data))
        first, variant = corpus[0][0]
        shutil.rmtree(self.source, ignore_errors=True)
        write_corpus(self.source, shards, [query("q1", f"무엇 {variant}?", first), query("q2", "어디?", "a_1", "b_1")])

    def index(self) -> None:
        index(str(self.source), self.home)

    def index_as(self, other: "CorpusHistory") -> None:
        """Copy another home's index of the same files, because shard keys depend on history."""
        for name in ("shards.json", "queries.parquet"):
            shutil.copy(other.home / name, self.home / name)
        for name in ("papers", "rendered"):
            if (other.home / name).exists():
                shutil.copytree(other.home / name, self.home / name)

    def look_at_papers(self, most: int | None = None) -> None:
        """Add the folder of pictures to the corpus, or only its first pages."""
        papers = self.home / "papers"
        papers.mkdir(exist_ok=True)
        for page_id in PAPERS:
            (papers / f"{page_id[0]}.png").write_bytes(encoded(page_id, 0))
            self.bytes_of.setdefault(page_id, set()).add(sha256(encoded(page_id, 0)))
        index(str(papers), self.home, others=Others.ADD, max_pages=most)

    @property
    def papers_left(self) -> int | None:
        """How many pictures a first look left; None if the folder is not in the corpus."""
        sources = IndexedCorpus(home=str(self.home)).manifest.sources
        return next((source.left for source in sources if source.name == "papers"), None)

    def remove_papers(self) -> None:
        remove("papers", self.home)

    def assert_told_what_is_left(self) -> None:
        """Assert that status and plan name the pictures that a first look left, and the command for them."""
        settings, left = self.settings, self.papers_left
        looks, lines = status_values(settings)["first_looks"], plan_values(settings)["first_looks"]
        assert [look["pages_left"] for look in looks] == ([left] if left else [])
        assert lines == first_look_lines(settings.corpus.manifest)
        assert [line.split(" of papers")[0] for line in lines] == (
            [f"unfinished: {left} {'page' if left == 1 else 'pages'}"] if left else []
        )
        for look in looks:
            assert look["command"] == f"kopub run {self.home.resolve() / 'papers'}"

    def stale(self) -> dict[str, Any]:
        """Return what a run would make of each asset, by shard."""
        return {asset["asset"]: asset["shards"] for asset in plan_values(self.settings)["assets"]}

    @contextmanager
    def drive_dropped_after(self, opened: int) -> Iterator[None]:
        """Remove the source folder after `opened` opened files, and put it back at the end."""
        left = [opened]
        open_shard = kopub.pages.page_reader.open_shard
        away = self.source.with_name("away")

        def dropping(*given: Any) -> Any:
            left[0] -= 1
            if left[0] < 0 and self.source.exists():
                self.source.rename(away)
            return open_shard(*given)

        try:
            with patch.object(kopub.pages.page_reader, "open_shard", dropping):
                yield
        finally:
            if away.exists():
                away.rename(self.source)

    def replace_file(self) -> None:
        """Replace the first file by one of the same length whose pages have other bytes."""
        file = self.source / "corpus" / "data-0.arrow"
        if not file.exists():
            return
        content = file.read_bytes()
        held = [encoded(*page) for shard in self.corpus for page in shard]
        for image in held:
            content = content.replace(image, image[:8] + image[:7:-1])
        file.write_bytes(content)

    def correct(self, page_id: str, region: int, strikes: bool) -> None:
        """Correct a region of a page at the box that the layout double gives it."""
        log, count = CorrectionLog(self.store), len(self.corrected.setdefault(page_id, set()))
        said = f"person {page_id} {region} {count}"
        self.corrected[page_id].add(said)
        box = ((0, 0, 500, 333), (0, 333, 1000, 667))[region]
        action = Action.STRIKE if strikes else Action.TEXT
        log.add(Correction(page_id, "shard_00", action, "Kim", box, box, "text", "text", after="" if strikes else said))

    def undo(self, page_id: str) -> None:
        """Undo the last correction of a page, if there is one."""
        log = CorrectionLog(self.store)
        if done := log.page(page_id).every:
            log.add(Correction(page_id, "shard_00", Action.UNDO, "Lee", after=done[-1].id))

    def correct_as(self, other: "CorpusHistory") -> None:
        if (corrections := other.home / "store" / ".corrections").exists():
            shutil.copytree(corrections, self.home / "store" / ".corrections")

    def flip_bit(self, table: int, place: float, bit: int) -> None:
        """Flip a bit of an existing table, at a relative position from 0 to 1."""
        tables = sorted((self.home / "store").glob("[a-z]*/*.parquet"))
        if tables:
            path = tables[table % len(tables)]
            content = bytearray(path.read_bytes())
            content[int(place * (len(content) - 1))] ^= 1 << bit
            path.write_bytes(content)
            self.flipped.add((path.parent.name, path.stem))

    def materialize(self, assets: Sequence[str] = TABLES, retry_partial: bool = False) -> dict[str, int]:
        """Make the assets of all shards, and return the number of computed rows by asset.

        A shard that fails does not stop the others, as in a Dagster run over a range of shards.
        """
        platform = self.platform
        declared = GRAPH.declared(platform.resources())
        shards = next(iter(declared.values())).corpus.manifest.keys
        self.runs += 1
        self.failed.clear()
        computed: dict[str, int] = {}
        for name in TABLES:
            if name in assets:
                computed[name] = self._over_shards(declared[name], shards, retry_partial)
        return computed

    def _over_shards(self, asset: ShardAsset, shards: Sequence[str], retry_partial: bool) -> int:
        tags = {RETRY_PARTIAL_TAG: str(retry_partial)}
        run = RunContext(f"run-{self.runs}", tuple(shards), Problems(asset.checks, {}), _silent, _silent, tags=tags)
        outcomes = dict(make_shards(asset, run))
        finished = {shard: made for shard, made in outcomes.items() if isinstance(made, PublishedShard)}
        self.failed |= {(asset.name, shard): made for shard, made in outcomes.items() if isinstance(made, KopubError)}
        # As in a Dagster run, where this error is one line of the log.
        with suppress(KopubError):
            asset.finish(run, finished)
        return sum(made.metadata["computed"] for made in finished.values())

    def assert_sound(self) -> None:
        """Assert that all rows were made from the page bytes that their parent tables record."""
        store = self.store
        for asset in TABLES:
            for shard in store.published(asset):
                try:
                    self._assert_sound(asset, shard)
                except DamagedTable:
                    assert (asset, shard) in self.flipped

    def _assert_sound(self, asset: str, shard: str) -> None:
        store = self.store
        store.read(asset, shard)
        footer = footer_of(store, asset, shard)
        if (asset, shard, footer.content) not in self.made:
            parents = {
                parent: self.made[parent, shard, content]
                for parent, content in footer.made_from.items()
                if parent != SOURCE and not is_setting(parent)
            }
            rows = self._sound(asset, shard, parents)
            self.made[asset, shard, footer.content] = rows

    def _sound(self, asset: str, shard: str, parents: Mapping[str, Rows]) -> Rows:
        """Return a table's rows by id, after asserting that they follow from its parents."""
        store = self.store
        table, key = store.read(asset, shard).to_pylist(), GRAPH.by_name[asset].table.key
        rows = {row[key]: row for row in table}
        assert len(rows) == len(table), f"{asset} {shard} holds a row twice"
        engines = json.loads(store.metadata(asset, shard)["made_with"])["engines"]
        parameters = engines[0]["parameters"] if engines else {}
        for parent, of_parent in parents.items():
            assert list(rows) == list(of_parent), f"{asset} {shard} has other pages than {parent}"
        for row_id, row in rows.items():
            above = {parent: of_parent[row_id] for parent, of_parent in parents.items()}
            found, wanted = self._told(asset, row, above, parameters)
            assert found == wanted, f"{asset} {shard} {row_id} says {found}, its page {wanted}"
        return rows

    def _told(self, asset: str, row: Row, above: Mapping[str, Row], parameters: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return what a row records about its source bytes, and what it should record."""
        if asset == "raw_pages":
            return self._told_of_page(row)
        if asset == "parsed_texts" and row["page_id"] in self.corrected:
            read = above["ocr_results"]["regions"] or ()
            said = {region["content"] for region in read} | self.corrected[row["page_id"]]
            return set(filter(None, (row["text"] or "").split("\n\n"))) <= said, True
        lost = [parent["state"] for parent in above.values() if parent["state"] not in MADE]
        if lost or row["state"] not in MADE:
            return row["state"], lost[-1] if lost else State.FAILED
        return _TOLD[asset](row, above, parameters)

    def _told_of_page(self, row: Row) -> tuple[Any, Any]:
        page_id = row["page_id"]
        usable = page_id in self.bytes_of
        known = self.bytes_of[page_id] if usable else set[str]().union(*self.bytes_of.values())
        broken = not usable or row["sha256"] in {sha256(encoded(page_id, variant)) for variant in (BROKEN, BOMB)}
        wanted = State.QUARANTINED if broken else State.OK
        short = row["state"] == State.FAILED and "Unable to allocate" in row["reason"]
        return (wanted if short else row["state"], row["sha256"] in known), (wanted, True)

    def tables(self) -> dict[tuple[str, str], pa.Table]:
        """Return the tables of the shards in the current index."""
        store, shards = self.store, IndexedCorpus(home=str(self.home)).manifest.keys
        return {(asset, shard): store.read(asset, shard) for asset in TABLES for shard in shards}


def _layout(row: Row, above: Mapping[str, Row], parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    return tuple(row["regions"][0]["bbox"]), witnessed_box(parameters["revision"], above["raw_pages"]["sha256"])


def _reading(row: Row, above: Mapping[str, Row], parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    digest, boxes = above["raw_pages"]["sha256"], [region["bbox"] for region in above["layout_regions"]["regions"]]
    read = [region["state"] != State.FAILED for region in row["regions"]]
    assert tuple(boxes[0]) in {witnessed_box(revision, digest) for revision in REVISIONS}, "regions of other bytes"
    texts = [
        witnessed_text(parameters["prompt"], digest, box) * was_read for box, was_read in zip(boxes, read, strict=True)
    ]
    found = [region["content"] for region in row["regions"]], row["state"]
    return found, (texts, State.OK if all(read) else State.PARTIAL)


def _text(row: Row, above: Mapping[str, Row], parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    reading = above["ocr_results"]
    read = [region["content"] for region in reading["regions"] if region["state"] != State.FAILED]
    return (row["text"], row["state"]), ("\n\n".join(read), reading["state"])


def _image_vector(row: Row, above: Mapping[str, Row], parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    return _vector(row, above["raw_pages"]["sha256"], above["raw_pages"]["state"], parameters)


def _text_vector(row: Row, above: Mapping[str, Row], parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    return _vector(row, above["parsed_texts"]["text"], above["parsed_texts"]["state"], parameters)


def _query_vector(row: Row, above: Mapping[str, Row], parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    return _vector(row, row["query"], State.OK, parameters)


def _vector(row: Row, said: str, state: str, parameters: Mapping[str, Any]) -> tuple[Any, Any]:
    wanted = witnessed_vector(parameters["revision"], said, parameters["dim"])
    return (row["vector"], row["state"]), (wanted.tolist(), state)


_TOLD = {
    "layout_regions": _layout,
    "ocr_results": _reading,
    "parsed_texts": _text,
    "corpus_image_embeddings": _image_vector,
    "corpus_text_embeddings": _text_vector,
    "query_embeddings": _query_vector,
}
"""For each table, a function that returns the found and the expected content of a row."""


def _silent(line: str) -> None:
    """Discard a log line."""
