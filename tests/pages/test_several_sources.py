"""Several sources are added, replaced, removed and renamed without loss or repeated work."""

import hashlib
import json
import random
import re
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kopub
from kopub.api.sources.home import HomeSource
from kopub.cli.commands.plan import forecast_of_everything
from kopub.errors import SourceError
from kopub.folders import SAMPLES
from kopub.pages.corpus import Corpus
from kopub.pages.documents.pool import RenderPool
from kopub.pages.documents.text_layer import Failure
from kopub.pages.indexing import Others, index, remove, retry_failed
from kopub.pages.manifest import Manifest
from kopub.pages.page_reader import Origin, origins
from kopub.processes import ChildWorker, LostAnswer
from kopub.states import State
from kopub.store.table_source import FooterCache
from kopub.tables.lineage import chain
from kopub.tables.plan import survey
from tests.support.harness import STANDARD, Platform
from tests.support.sources.corpora import page_image, pages, query, table, write_corpus
from tests.support.sources.pdf_files import pdf, sheet

MADE = ("raw_pages", "layout_regions")

pytestmark = pytest.mark.usefixtures("one_process")


class Sources:
    """A home and the folders beside it that are indexed into it."""

    def __init__(self, place: Path) -> None:
        self.place, self.home, self.lines = place, place / "home", list[str]()
        self.platform = Platform(self.home)

    def pdf(self, name: str, seed: int, count: int = 1) -> Path:
        """Write a PDF whose pages are unlike those of any other seed."""
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = (b"0 0 0 rg 0 %d %d 9 re f" % (at, 5 + seed % 50) for at in range(count))
        path.write_bytes(pdf(*(sheet(each, box=f"0 0 {60 + seed} 80") for each in drawn)))
        return path

    def shard(self, name: str, *ids: str) -> Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table([(each, page_image(hash_of(each))) for each in ids]), path)
        return path

    def index(self, name: str, others: Others = Others.ADD, max_pages: int | None = None) -> Manifest:
        self.lines = []
        return index(str(self.place / name), self.home, self.lines.append, 72, others, max_pages)

    def remove(self, name: str) -> Manifest:
        return remove(name, self.home, self.lines.append)

    def make(self) -> list[str]:
        """Make all pages and layouts, and return the pages whose layout was computed."""
        before = len(self.computed)
        self.platform.make(*MADE)
        return sorted(self.computed[before:])

    @property
    def computed(self) -> list[str]:
        return self.platform.diary("layout").pages

    @property
    def rows(self) -> dict[str, list[str]]:
        """The ids of the pages by shard."""
        corpus = Corpus(home=str(self.home))
        return {key: [row.page_id for row in corpus.rows(key)] for key in corpus.manifest.keys}

    @property
    def states(self) -> dict[str, str]:
        keys = Manifest.load(self.home).keys
        return {page: state for key in keys for page, state in self.platform.states("raw_pages", key).items()}

    @property
    def left_out(self) -> list[list[str]]:
        path = self.home / "left_out.txt"
        return [line.split("\t") for line in path.read_text().split("\n") if line] if path.exists() else []


def hash_of(text: str) -> int:
    return int.from_bytes(text.encode()) % 100_003


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    return Sources(tmp_path)


# Adding, replacing and taking out


def test_another_source_is_refused_unless_it_is_said_what_becomes_of_the_first(sources: Sources) -> None:
    sources.pdf("A/a.pdf", 1)
    sources.pdf("B/b.pdf", 2)
    sources.index("A", Others.REFUSE)
    before = (sources.home / "shards.json").read_bytes()
    with pytest.raises(SourceError, match=r"home holds .*/A: --add adds .*/B to it, --replace replaces it, --home DIR"):
        sources.index("B", Others.REFUSE)
    assert (sources.home / "shards.json").read_bytes() == before
    assert sources.index("A", Others.REFUSE) == Manifest.load(sources.home)
    assert [source.name for source in sources.index("B").sources] == ["A", "B"]
    assert sources.rows == {"shard_00": ["a_1"], "shard_01": ["b_1"]}
    assert sources.index("B", Others.REPLACE).location == str(sources.place / "B")
    assert sources.rows == {"shard_01": ["b_1"]}


def test_the_samples_are_no_corpus_that_is_asked_about(sources: Sources) -> None:
    sources.pdf("A/a.pdf", 1)
    assert Manifest.load(sources.home).index.folder == SAMPLES
    assert sources.index("A", Others.REFUSE).name == "A"


@pytest.mark.slow
def test_a_source_that_is_taken_out_leaves_its_files_and_the_keys_of_the_others(sources: Sources) -> None:
    for at, name in enumerate("ABC"):
        sources.pdf(f"{name}/{name.lower()}.pdf", at)
        sources.index(name)
    assert sources.make() == ["a_1", "b_1", "c_1"]
    assert sources.remove("B").keys == ["shard_00", "shard_02"]
    assert (sources.place / "B" / "b.pdf").exists()
    assert sources.make() == []
    assert sources.index("B").keys == ["shard_00", "shard_01", "shard_02"]
    assert sources.rows["shard_01"] == ["b_1"]
    assert sources.make() == []


def test_what_cannot_be_taken_out_is_one_line(sources: Sources) -> None:
    with pytest.raises(SourceError, match="has no corpus of its own"):
        sources.remove("A")
    sources.pdf("A/a.pdf", 1)
    sources.index("A")
    with pytest.raises(SourceError, match="there is no source B; the corpus has A"):
        sources.remove("B")
    with pytest.raises(SourceError, match="A is the only source"):
        sources.remove("A")


def test_folders_of_one_name_are_told_apart(sources: Sources) -> None:
    sources.pdf("one/scans/a.pdf", 1)
    sources.pdf("two/scans/b.pdf", 2)
    sources.index("one/scans")
    assert [source.name for source in sources.index("two/scans").sources] == ["scans", "scans-2"]
    assert sources.remove(str(sources.place / "one" / "scans")).name == "scans-2"


@pytest.mark.slow
def test_a_source_that_is_not_there_hinders_no_other_one(sources: Sources) -> None:
    sources.pdf("A/a.pdf", 1)
    sources.pdf("B/b.pdf", 2)
    sources.index("A")
    shutil.rmtree(sources.place / "A")
    sources.index("B")
    assert sources.make() == ["a_1", "b_1"]


def test_two_sources_that_moved_are_indexed_one_after_the_other(sources: Sources) -> None:
    for name in "AB":
        sources.shard(f"{name}/{name}.parquet", f"{name}_1")
        sources.index(name)
    sources.make()
    for name in "AB":
        (sources.place / name / f"{name}.parquet").rename(sources.place / name / "moved.parquet")
    sources.index("A")
    assert any(line.startswith("shard_01 of B cannot be read (") for line in sources.lines)
    assert sources.index("B").keys == ["shard_00", "shard_01"]
    assert sources.make() == []


# One document in two sources, two documents of one name


@pytest.mark.slow
def test_a_document_in_two_sources_is_one_and_said_so(sources: Sources) -> None:
    sources.pdf("A/a.pdf", 1)
    shutil.copytree(sources.place / "A", sources.place / "B")
    (sources.place / "B" / "a.pdf").rename(sources.place / "B" / "same.pdf")
    sources.pdf("B/b.pdf", 2)
    sources.index("A")
    manifest = sources.index("B")
    assert manifest.rows == 2
    assert sources.left_out == [["same.pdf", "the same file as a.pdf of A", "B"]]
    assert "left out: same.pdf (the same file as a.pdf of A)" in sources.lines
    # What A no longer provides is taken from B.
    sources.remove("A")
    assert sorted(sources.rows["shard_01"] + sources.rows.get("shard_02", [])) == ["b_1", "same_1"]
    assert sources.left_out == []


def test_files_of_two_sources_that_cannot_be_read_are_not_copies_of_each_other(sources: Sources) -> None:
    for seed, name in enumerate("ab"):
        sources.pdf(f"{name}/{name}.pdf", seed)
        (sources.place / name / f"lost {name}.pdf").symlink_to(sources.place / "nothing")
        sources.index(name)
    assert sources.rows == {"shard_00": ["a_1", "lost a.pdf"], "shard_01": ["b_1", "lost b.pdf"]}
    assert sources.left_out == []


def test_files_left_out_of_a_source_whose_name_breaks_lines_stay_listed(sources: Sources) -> None:
    for name in ("2024\u2028보고서", "B"):
        sources.pdf(f"{name}/a {name[:1]}.pdf", ord(name[0]))
        (sources.place / name / "notes.log").write_bytes(b"x")
        sources.index(name)
    assert len(sources.left_out) == 2


@pytest.mark.slow
def test_a_document_that_a_source_lost_comes_in_from_the_other(sources: Sources) -> None:
    sources.pdf("A/a.pdf", 1)
    sources.pdf("A/x.pdf", 3)
    sources.pdf("B/b.pdf", 2)
    shutil.copy(sources.place / "A" / "a.pdf", sources.place / "B" / "copy.pdf")
    sources.index("A")
    sources.index("B")
    (sources.place / "A" / "a.pdf").unlink()
    sources.index("A")
    assert sorted(page for ids in sources.rows.values() for page in ids) == ["b_1", "copy_1", "x_1"]


def test_a_source_that_is_all_in_the_corpus_is_refused(sources: Sources) -> None:
    sources.pdf("A/a.pdf", 1)
    sources.shard("P/p.parquet", "p_1")
    sources.index("A")
    sources.index("P")
    for name in ("A", "P"):
        shutil.copytree(sources.place / name, sources.place / f"{name}2")
        with pytest.raises(SourceError, match=f"all of .*{name}2 is in the corpus already, of {name}"):
            sources.index(f"{name}2")


def test_other_documents_of_one_name_have_other_ids_and_the_first_keeps_its_own(sources: Sources) -> None:
    for at, name in enumerate("AB"):
        sources.pdf(f"{name}/보고서.pdf", at)
        sources.index(name)
    first, second = sources.rows.values()
    assert first == ["보고서_1"]
    assert second[0].startswith("보고서~")
    documents = {row.page_id: row.doc_id for key in sources.rows for row in Corpus(home=str(sources.home)).rows(key)}
    assert list(documents.values()) == ["보고서.pdf", "B/보고서.pdf"]
    sources.make()
    # Ids stay the same whichever source is indexed again or removed.
    for name in "AB":
        sources.index(name)
        assert [*sources.rows.values()] == [first, second]
    sources.remove("A")
    sources.index("B")
    assert [*sources.rows.values()] == [second]
    assert sources.make() == []


# Queries


def test_queries_of_several_sources_are_joined(sources: Sources) -> None:
    for name in "AB":
        page = f"{name.lower()}_1"
        asked = [query(f"{name}1", "어디?", page), query(f"{name}2", "무엇?")]
        write_corpus(sources.place / name, [[(page, page_image(hash_of(page)))]], asked)
        sources.index(name)
    corpus = Corpus(home=str(sources.home))
    assert corpus.manifest.queries is not None
    assert corpus.manifest.queries.rows == 4
    asked = {key: [each.query_id for each in corpus.queries(key)] for key in corpus.manifest.keys}
    assert {"A1", "A2"} <= set(asked["shard_00"])
    assert "B1" in asked["shard_01"]
    sources.remove("A")
    corpus = Corpus(home=str(sources.home))
    assert [each.query_id for each in corpus.queries("shard_01")] == ["B1", "B2"]


@pytest.mark.parametrize("content", [None, b"PAR1"], ids=["lost", "damaged"])
def test_queries_of_several_sources_that_were_lost_are_read_again_source_by_source(
    sources: Sources, content: bytes | None
) -> None:
    for name in "AB":
        write_corpus(sources.place / name, [pages(f"{name}_1")], [query(f"{name}1", "어디?", f"{name}_1")])
        sources.index(name)
    (sources.home / "queries.parquet").unlink()
    if content is not None:
        (sources.home / "queries.parquet").write_bytes(content)
    sources.index("A")
    assert any("queries of B are lost" in line and "index it again" in line for line in sources.lines)
    assert sources.index("B").keys == ["shard_00", "shard_01"]
    asked = {key: [each.query_id for each in Corpus(home=str(sources.home)).queries(key)] for key in sources.rows}
    assert asked == {"shard_00": ["A1"], "shard_01": ["B1"]}


def test_an_index_that_cannot_be_read_is_replaced_with_a_word(sources: Sources) -> None:
    for name in "AB":
        sources.shard(f"{name}/pages.parquet", f"{name}_1")
        sources.index(name)
    (sources.home / "shards.json").write_text("{")
    assert sources.index("B").name == "B"
    says = f"{sources.home} cannot be read and is replaced by that of {sources.place / 'B'}: --add adds other sources"
    assert f"the index at {says}" in sources.lines


def test_two_queries_of_one_id_are_one_line(sources: Sources) -> None:
    for name in "AB":
        write_corpus(sources.place / name, [pages(f"{name}_1")], [query("q1", "어디?", f"{name}_1")])
    sources.index("A")
    with pytest.raises(SourceError, match="A and B both have a query with the id 'q1'"):
        sources.index("B")
    assert Manifest.load(sources.home).name == "A"


# A first look


def test_a_first_look_makes_the_first_pages_and_the_next_run_the_others(sources: Sources) -> None:
    sources.pdf("A/a.pdf", 1, 3)
    sources.pdf("A/b.pdf", 2, 4)
    look = sources.index("A", max_pages=5)
    assert (look.rows, look.sources[0].left) == (5, 2)
    assert sources.make() == ["a_1", "a_2", "a_3", "b_1", "b_2"]
    assert sources.index("A", max_pages=2).rows == 5, "pages that were looked at stay"
    whole = sources.index("A")
    assert (whole.rows, whole.sources[0].left, whole.keys) == (7, 0, look.keys)
    assert sources.make() == ["b_3", "b_4"]
    assert set(sources.states.values()) == {State.OK}
    with pytest.raises(SourceError, match="is indexed already: --max-pages is for a first look"):
        sources.index("A", max_pages=2)


def test_a_first_look_at_shards_is_at_one_of_them(sources: Sources) -> None:
    sources.shard("S/s.parquet", "s_1", "s_2")
    with pytest.raises(SourceError, match="holds shards: have a first look at one of them, with --shards"):
        sources.index("S", max_pages=1)


# Only what is new is computed


def test_a_file_in_front_and_a_renamed_one_compute_nothing_again(sources: Sources) -> None:
    for year in (2022, 2023, 2024):
        sources.shard(f"A/{year}.parquet", f"{year}_1", f"{year}_2")
    before = sources.index("A")
    assert len(sources.make()) == 6
    sources.shard("A/2021.parquet", "2021_1", "2021_2")
    after = sources.index("A")
    assert after.shards[:3] == before.shards
    assert sources.make() == ["2021_1", "2021_2"]
    (sources.place / "A" / "2024.parquet").rename(sources.place / "A" / "1999.parquet")
    assert sources.index("A").keys == after.keys
    assert sources.make() == []
    assert [row.source for row in Corpus(home=str(sources.home)).rows("shard_02")] == ["1999.parquet"] * 2


def test_files_that_change_places_keep_their_keys(sources: Sources) -> None:
    first, second = sources.shard("A/1.parquet", "a_1"), sources.shard("A/2.parquet", "b_1")
    sources.index("A")
    sources.make()
    aside = first.rename(first.with_name("aside"))
    second.rename(first)
    aside.rename(second)
    sources.index("A")
    assert sources.rows == {"shard_00": ["a_1"], "shard_01": ["b_1"]}
    assert sources.make() == []


_OTHERS = [pytest.param(how, marks=pytest.mark.slow) for how in ("divided in place", "joined in place", "dealt anew")]


@pytest.mark.parametrize("how", ["divided", "joined", *_OTHERS])
def test_pages_that_go_to_other_files_are_not_computed_again(sources: Sources, how: str) -> None:
    ids = {name: [f"{name}_{at}" for at in range(4)] for name in "ab"}
    files = {name: sources.shard(f"A/{name}.parquet", *ids[name]) for name in ids}
    sources.index("A")
    sources.platform.make(*STANDARD[:-1])
    made = {engine: sources.platform.diary(engine).pages for engine in ("layout", "recognition")}
    before = _rows_of_all(sources)
    match how:
        case "divided":
            sources.shard("A/a1.parquet", *ids["a"][:2])
            sources.shard("A/a2.parquet", *ids["a"][2:])
            files["a"].unlink()
        case "divided in place":
            sources.shard("A/a.parquet", *ids["a"][:1])
            sources.shard("A/z.parquet", *ids["a"][1:])
        case "joined":
            sources.shard("A/all.parquet", *ids["a"], *ids["b"])
            files["a"].unlink()
            files["b"].unlink()
        case "joined in place":
            sources.shard("A/a.parquet", *ids["a"], *ids["b"])
            files["b"].unlink()
        case _:
            sources.shard("A/a.parquet", *ids["a"][::2], *ids["b"][::2])
            sources.shard("A/b.parquet", *ids["a"][1::2], *ids["b"][1::2])
    sources.index("A")
    assert _rows_that_the_plan_prices(sources) == 0
    sources.platform.make(*STANDARD[:-1])
    assert {engine: sources.platform.diary(engine).pages for engine in made} == made
    assert _rows_of_all(sources) == before
    shard = next(key for key, pages in sources.rows.items() if "a_3" in pages)
    steps = chain(sources.platform.store, sources.platform.settings.corpus, "page", "a_3", shard, None)["steps"]
    assert all(step["run_id"] for step in steps)


def test_pages_that_only_have_the_ids_of_others_are_priced(sources: Sources) -> None:
    sources.shard("A/a.parquet", "a_1", "a_2", "a_3", "a_4")
    sources.index("A")
    sources.platform.make(*STANDARD[:-1])
    path = sources.shard("A/b.parquet", "a_1", "a_2")
    pq.write_table(table([("a_3", page_image(1)), ("a_4", page_image(2))]), path.with_name("c.parquet"))
    path.with_name("a.parquet").unlink()
    sources.index("A")
    assert _rows_that_the_plan_prices(sources) == 2


def _rows_that_the_plan_prices(sources: Sources) -> int:
    """Return how many pages the plan of a full run expects to be read."""
    settings = sources.platform.settings
    forecast = forecast_of_everything(settings, survey(settings.resources, FooterCache(settings.store)))
    return forecast.stages["ocr_results"].rows


def _rows_of_all(sources: Sources) -> dict[str, dict[str, Any]]:
    """Return the rows of the corpus tables by id, without the place of a page."""
    keys = Manifest.load(sources.home).keys
    store, place = sources.platform.store, {"page_idx", "source"}
    return {
        asset: {
            row["page_id"]: {name: value for name, value in row.items() if name not in place}
            for key in keys
            for row in store.read(asset, key).to_pylist()
        }
        for asset in ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_text_embeddings")
    }


@pytest.mark.slow
def test_a_renamed_pdf_is_not_read_again(sources: Sources) -> None:
    path = sources.pdf("A/old.pdf", 1, 3)
    sources.pdf("A/other.pdf", 2)
    sources.index("A")
    assert len(sources.make()) == 4
    path.rename(path.with_name("new.pdf"))
    sources.index("A")
    assert sources.make() == []
    names = {row.page_id: row.doc_id for row in Corpus(home=str(sources.home)).rows("shard_00")}
    assert names["old_1"] == "new.pdf"
    # Another file that gets the name is another document.
    sources.pdf("A/old.pdf", 5)
    sources.index("A")
    (made,) = sources.make()
    assert made.startswith("old~")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 6))])
def test_whatever_becomes_of_sources_no_page_is_computed_twice(sources: Sources, seed: int) -> None:
    chance = random.Random(seed)
    made = iter(range(1000))
    folders = ("A", "B", "C")
    for folder in folders:
        sources.shard(f"{folder}/{next(made):03d}.parquet", f"{folder}0_1", f"{folder}0_2")
    indexed: list[str] = []

    def files(folder: str) -> list[Path]:
        return sorted((sources.place / folder).iterdir())

    for _ in range(12):
        folder = chance.choice(folders)
        what = chance.choice(["index", "remove", "file", "rename", "front", "join", "divide"])
        if what in ("file", "front"):
            number = next(made)
            name = f"{'!' if what == 'front' else ''}{number:03d}.parquet"
            sources.shard(f"{folder}/{name}", f"{folder}{number}_1")
        elif what == "rename":
            path = chance.choice(files(folder))
            path.rename(path.with_name(f"{chance.choice('!z')}{next(made)}.parquet"))
            if folder in indexed:
                sources.index(folder)
        elif what == "join" and len(files(folder)) > 1 and folder in indexed:
            one, other, *_ = files(folder)
            pq.write_table(pa.concat_tables([pq.read_table(one), pq.read_table(other)]), other)
            one.unlink()
            sources.index(folder)
        elif what == "divide" and folder in indexed:
            whole = files(folder)[0]
            content = pq.read_table(whole)
            half = content.num_rows // 2
            if half:
                pq.write_table(content.slice(half), whole.with_name(f"{next(made):03d}.parquet"))
                pq.write_table(content.slice(0, half), whole)
            sources.index(folder)
        elif what == "remove" and folder in indexed and len(indexed) > 1:
            sources.remove(folder)
            indexed.remove(folder)
        else:
            sources.index(folder)
            indexed = [*(each for each in indexed if each != folder), folder]
        if indexed:
            sources.make()
    for folder in folders:
        sources.index(folder)
    sources.make()
    assert len(sources.computed) == len(set(sources.computed))
    there = {page for folder in folders for path in files(folder) for page in pq.read_table(path)["id"].to_pylist()}
    assert {page for ids in sources.rows.values() for page in ids} == there == set(sources.computed)


# Transient failures are retried


def only(good: str) -> Any:
    """Return a `render` that fails for all documents but one, as on a lost disk."""
    render = RenderPool.render

    def rendered(self: RenderPool, asked: Any, dpi: int) -> Any:
        for path, page in asked:
            if path.name == good:
                yield next(iter(render(self, [(path, page)], dpi)))
            else:
                yield Failure("the file cannot be read: Stale file handle", may_pass=True)

    return rendered


def test_pages_of_a_drive_that_drops_are_failed_and_made_by_the_next_index(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources.pdf("A/a.pdf", 1, 3)
    sources.pdf("A/b.pdf", 2, 24)
    with monkeypatch.context() as patch:
        patch.setattr(RenderPool, "render", only("a.pdf"))
        assert sources.index("A").sources[0].failed == 24
    assert "24 of 27 pages could not be made: index again to try them once more" in sources.lines
    assert "pages 1 to 27 of 27: 3 of 27 pages made" in sources.lines
    sources.platform.make("raw_pages")
    assert [state for state in sources.states.values() if state != State.OK] == [State.FAILED] * 24
    assert retry_failed(sources.home, sources.lines.append)
    assert Manifest.load(sources.home).sources[0].failed == 0
    assert len(sources.make()) == 27
    assert set(sources.states.values()) == {State.OK}
    assert not retry_failed(sources.home, sources.lines.append)


def test_a_page_that_failed_alone_is_made_alone(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    sources.pdf("A/a.pdf", 1, 5)
    render = RenderPool.render

    def without_third(self: RenderPool, asked: Any, dpi: int) -> Any:
        for at, page in enumerate(render(self, asked, dpi)):
            yield Failure("given up after 600 seconds", may_pass=True) if at == 2 else page

    with monkeypatch.context() as patch:
        patch.setattr(RenderPool, "render", without_third)
        sources.index("A")
    sources.index("A")
    assert "pages 1 to 5 of 5: 1 of 5 pages made" in sources.lines
    assert sources.rows == {"shard_00": [f"a_{number}" for number in range(1, 6)]}


def test_a_folder_that_goes_away_while_it_is_indexed_leaves_the_index(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources.pdf("A/a.pdf", 1)
    sources.index("A")
    before = (sources.home / "shards.json").read_bytes()
    sources.pdf("A/b.pdf", 2)
    sources.pdf("A/c.pdf", 3)
    render, away = RenderPool.render, sources.place / "away"

    def gone(self: RenderPool, asked: Any, dpi: int) -> Any:
        (sources.place / "A").rename(away)
        yield from render(self, asked, dpi)

    with monkeypatch.context() as patch:
        patch.setattr(RenderPool, "render", gone)
        with pytest.raises(SourceError, match="A went away while it was indexed: bring it back and index again"):
            sources.index("A")
    assert (sources.home / "shards.json").read_bytes() == before
    away.rename(sources.place / "A")
    sources.index("A")
    assert sources.make() == ["a_1", "b_1", "c_1"]


def test_a_document_that_cannot_be_opened_now_is_failed_and_counted_later(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(worker: ChildWorker, *request: object) -> None:
        raise LostAnswer("the process ended by SIGKILL")

    sources.pdf("A/a.pdf", 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(ChildWorker, "ask", lost)
        sources.index("A")
    sources.platform.make("raw_pages")
    assert sources.states == {"a.pdf": State.FAILED}
    sources.index("A")
    assert sources.make() == ["a_1", "a_2"]


def test_pages_that_an_older_release_gave_up_are_tried_again(sources: Sources) -> None:
    sources.pdf("A/a.pdf", 1, 2)
    (sources.place / "A" / "bad.pdf").write_bytes(b"no PDF")
    manifest = sources.index("A")
    (file,) = (sources.home / "rendered").glob("pages-*")
    assert [row.problem for row in Corpus(home=str(sources.home)).rows("shard_00")][2] is not None
    made = pq.read_table(file)
    content = json.loads(pq.ParquetFile(file).metadata.metadata[b"kopub.rendered"])
    content.pop("quarantined")
    # As an older release wrote it: the second page was lost when the drive dropped.
    rows = made.drop_columns(["failed"]).to_pylist()
    rows[1] |= {"image": {"bytes": None, "path": None}, "problem": "a.pdf, page 2: the PDF cannot be read"}
    old = made.drop_columns(["failed"]).schema.with_metadata({b"kopub.rendered": json.dumps(content)})
    pq.write_table(type(made).from_pylist(rows, old), file)
    assert sources.index("A").rows == manifest.rows
    assert "pages 1 to 3 of 3: 1 of 3 pages made" in sources.lines
    assert [bool(row.problem) for row in Corpus(home=str(sources.home)).rows("shard_00")] == [False, False, True]
    sources.index("A")
    assert "pages 1 to 3 of 3: 3 pages kept" in sources.lines


# Every file that is left out is named


def test_everything_beside_shards_is_named(sources: Sources) -> None:
    sources.shard("A/a.parquet", "a_1")
    sources.shard("A/CAPITAL.PARQUET", "b_1")
    sources.shard("A/short.pq", "c_1")
    sources.shard("A/sub/b.parquet", "d_1")
    sources.pdf("A/scans/x.pdf", 1)
    for name in ("top.png", "notes.log", "scans/readme.log"):
        (sources.place / "A" / name).write_bytes(b"x")
    for name in ("train-queries.parquet", "sub/qa.parquet"):
        sources.shard(f"A/{name}", "q")
    assert sources.index("A").rows == 3
    alone = ": index it from a folder of its own"
    questions = "questions are read from one table beside the pages, called …-qa"
    assert {name: reason for name, reason, _ in sources.left_out} == {
        "sub/b.parquet": "a file of pages in another folder: index that folder too, with --add",
        "scans/x.pdf": f"a document{alone}",
        "top.png": f"beside CAPITAL.PARQUET, which holds the pages{alone}",
        "notes.log": "no PDF, image, HWP, office or text file",
        "scans/readme.log": "no PDF, image, HWP, office or text file",
        "train-queries.parquet": questions,
        "sub/qa.parquet": questions,
    }
    assert {line for line in sources.lines if line.startswith("left out")} == {
        f"left out: {name} ({reason})" for name, reason, _ in sources.left_out
    }


def test_shards_and_pictures_beside_corpus_are_named(sources: Sources) -> None:
    sources.shard("A/corpus/a.parquet", "a_1")
    for name in ("more.parquet", "gold.parquet"):
        sources.shard(f"A/{name}", "b_1")
    (sources.place / "A" / "b.png").write_bytes(b"x")
    assert sources.index("A").rows == 1
    reasons = {name: reason for name, reason, _ in sources.left_out}
    assert reasons.keys() == {"more.parquet", "gold.parquet", "b.png"}
    assert reasons["gold.parquet"] == "known answers are read from the home: copy it there"


def test_gaps_in_numbered_files_are_named(sources: Sources) -> None:
    for at in (0, 2):
        sources.shard(f"A/data-{at:05d}-of-00004.parquet", f"a_{at}")
    assert sources.index("A").rows == 2
    missing = [name for name, _, _ in sources.left_out]
    assert missing == ["data-00001-of-00004.parquet", "data-00003-of-00004.parquet"]


def test_files_that_are_numbered_from_1_or_without_zeros_have_no_gaps(sources: Sources) -> None:
    for at in range(1, 11):
        sources.shard(f"A/scan-{at}-of-10.parquet", f"a_{at}")
    for at in range(11):
        sources.shard(f"A/more-{at}-of-11.parquet", f"b_{at}")
    sources.index("A")
    assert sources.left_out == []
    (sources.place / "A" / "scan-9-of-10.parquet").unlink()
    sources.index("A")
    assert [name for name, _, _ in sources.left_out] == ["scan-9-of-10.parquet"]


def test_a_file_whose_name_has_line_breaks_is_one_line_of_the_list(sources: Sources) -> None:
    sources.shard("A/a-0-of-2\n.parquet", "a_1")
    sources.shard("A/empty\t\n1.parquet")
    sources.shard("B/copy\n.parquet", "a_1")
    sources.shard("B/b.parquet", "b_1")
    sources.index("A")
    missing = "not there, although the names of the others count it"
    found = [["a-1-of-2\\n.parquet", missing, "A"], ["empty\\t\\n1.parquet", "it has no rows", "A"]]
    assert sources.left_out == found
    assert not any("\n" in line for line in sources.lines)
    sources.index("B")
    assert sources.left_out == [*found, ["copy\\n.parquet", "the same file as a-0-of-2\\n.parquet of A", "B"]]


def test_files_that_a_saved_dataset_does_not_list_are_named(sources: Sources) -> None:
    write_corpus(sources.place / "A", [pages("a_1"), pages("b_1")])
    folder = sources.place / "A" / "corpus"
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-0.arrow"}]}))
    assert sources.index("A").rows == 1
    assert [(name, reason) for name, reason, _ in sources.left_out] == [
        ("corpus/data-1.arrow", "the file of the dataset beside it does not list it")
    ]


def test_files_that_are_attached_to_a_pdf_are_counted_and_named(sources: Sources) -> None:
    from pypdfium2 import PdfDocument

    path = sources.pdf("A/portfolio.pdf", 1)
    document = PdfDocument(path.read_bytes())
    for name in ("one.xlsx", "two.pdf"):
        document.new_attachment(name).set_data(b"content")
    document.save(path)
    sources.index("A")
    told = ["portfolio.pdf", "2 attached files in it: save them as files of their own", "A"]
    assert sources.left_out == [told]
    sources.index("A")
    assert sources.left_out == [told]


# Columns of another type


@pytest.mark.parametrize("values", [[1.0, None, 3.0], ["1", "", "3"], [1, None, 3]])
def test_page_numbers_of_other_types_are_understood(sources: Sources, values: list[Any]) -> None:
    rows = table(pages("x", "y", "z")).drop_columns(["page_number"]).append_column("page_number", [values])
    (sources.place / "A").mkdir()
    pq.write_table(rows, sources.place / "A" / "a.parquet")
    sources.index("A")
    assert [row.page_no for row in Corpus(home=str(sources.home)).rows("shard_00")] == [1, None, 3]


@pytest.mark.parametrize(
    ("column", "values", "told"),
    [
        ("page_number", [1.5, 2.0], r"the column page_number is double and holds '1.5': wanted whole numbers"),
        ("page_number", ["iv", "2"], r"the column page_number is string and holds 'iv': wanted whole numbers"),
        ("page_number", [True, False], r"the column page_number is bool and holds 'True': wanted whole numbers"),
        ("file_name", [1.5, 2.0], r"the column file_name is double and holds '1.5': wanted text"),
    ],
)
def test_a_column_of_another_type_is_one_line(sources: Sources, column: str, values: list[Any], told: str) -> None:
    rows = table(pages("x", "y")).drop_columns([column]).append_column(column, [values])
    (sources.place / "A").mkdir()
    pq.write_table(rows, sources.place / "A" / "a.parquet")
    with pytest.raises(SourceError, match=f"a.parquet: {told}"):
        sources.index("A")


# Where every page comes from


def test_every_page_says_its_file_and_how_it_was_drawn(sources: Sources) -> None:
    path = sources.pdf("A/sub/a.pdf", 1, 2)
    image = sources.place / "A" / "b.png"
    image.write_bytes(page_image(7))
    shard = sources.shard("P/p.parquet", "p_1")
    sources.index("A")
    sources.index("P")
    sources.make()
    corpus = kopub.Corpus(HomeSource(sources.home, sources.platform.store))
    origin = {page.id: page.origin for page in corpus.pages}
    drawn = origin["sub__a_2"]
    assert drawn is not None
    assert (drawn.source, drawn.file, drawn.page, drawn.dpi) == ("A", "sub/a.pdf", 2, 72)
    assert drawn.sha256 == sha256(path)
    assert drawn.renderer is not None
    assert re.fullmatch(r"pypdfium2 .+, PDFium .+", drawn.renderer)
    assert origin["b_1"] == Origin("A", "b.png", sha256(image), 1)
    assert origin["p_1"] == Origin("P", "p.parquet", sha256(shard))
    shown = chain(sources.platform.store, Corpus(home=str(sources.home)), "page", "sub__a_2", "shard_00", None)
    assert shown["source"]["origin"] == {**asdict(drawn), "path": str(path)}


@pytest.mark.slow
def test_a_release_says_the_source_and_the_file_of_each_page_and_no_path_of_the_machine(sources: Sources) -> None:
    path = sources.pdf("A/a.pdf", 1)
    sources.pdf("B/b.pdf", 2)
    sources.index("A")
    sources.index("B")
    assert sources.platform.run(last="shard_01").success
    release = sources.home / "release"
    released = pq.read_table(release / "data" / "pages" / "shard_00.parquet").to_pylist()
    assert released[0]["origin"]["sha256"] == sha256(path)
    assert (released[0]["origin"]["source"], released[0]["origin"]["file"]) == ("A", "a.pdf")
    corpus = kopub.open(release)
    assert [page.origin.source for page in corpus.pages if page.origin] == ["A", "B"]
    assert str(sources.place) not in (release / "README.md").read_text()


def test_an_index_of_an_older_release_says_it_too(sources: Sources) -> None:
    path = sources.pdf("A/a.pdf", 1)
    sources.index("A")
    (file,) = (sources.home / "rendered").glob("pages-*")
    made = pq.read_table(file).drop_columns(["failed"])
    content = pq.ParquetFile(file).metadata.metadata[b"kopub.rendered"]
    pq.write_table(made.replace_schema_metadata({b"kopub.rendered": content}), file)
    found = origins(Manifest.load(sources.home), "shard_00")(0)
    assert (found.file, found.sha256, found.page, found.dpi) == ("a.pdf", sha256(path), 1, 72)


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# Manifests of the previous format


def test_a_manifest_of_the_format_before_is_one_source(sources: Sources) -> None:
    sources.shard("A/a.parquet", "a_1")
    written = sources.index("A")
    path = sources.home / "shards.json"
    content = json.loads(path.read_text())
    shards = [{name: value for name, value in each.items() if name != "source"} for each in content["shards"]]
    older = {"version": 1, "source": content["sources"][0]["place"], "revision": None, "queries": None}
    path.write_text(json.dumps({**older, "shards": shards}))
    loaded = Manifest.load(sources.home)
    assert (loaded.shards, loaded.location, loaded.name) == (written.shards, written.location, "A")
    sources.pdf("B/b.pdf", 1)
    assert sources.index("B").keys == ["shard_00", "shard_01"]


def test_a_search_is_limited_to_a_source_and_the_room_names_the_source_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from starlette.testclient import TestClient
    from typer.testing import CliRunner

    from kopub.cli.main import app
    from kopub.cli.options import corpus_check
    from kopub.web.app import reading_room
    from kopub.web.room import Room
    from tests.search.test_search import Typist, searcher

    sources = Sources(tmp_path)
    for at, name in enumerate(("reports", "letters")):
        write_corpus(tmp_path / name, [[(f"{name}_1", page_image(at))]])
        sources.index(name)
    sources.platform.engines["recognition"] = Typist(texts={"reports_1": "화면 밝기", "letters_1": "화면 밝기"})
    made = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_text_embeddings")
    sources.platform.make(*made)
    settings = sources.platform.settings
    check = corpus_check(settings.corpus.manifest, settings.store)
    browser = TestClient(reading_room(Room(settings, searcher(sources.platform), check)), base_url="http://127.0.0.1")
    for address in ("/documents", "/", "/search?q=화면&mode=bm25"):
        shown = browser.get(address).text
        assert re.findall(r"<span[^>]*>(reports|letters)</span>", shown) == ["reports", "letters"], address
    of_one = browser.get("/search?q=화면&mode=bm25&source=letters").text
    assert re.findall(r"<span[^>]*>(reports|letters)</span>", of_one) == ["letters"]
    assert (
        "there is no source letter; did you mean letters" in browser.get("/search?q=화면&mode=bm25&source=letter").text
    )

    monkeypatch.setenv("KOPUB_HOME", str(sources.home))

    def found(*words: str) -> Any:
        return CliRunner().invoke(app, ["search", "화면", "--mode", "bm25", "--json", *words])

    assert [hit["source"] for hit in json.loads(found("--source", "letters").stdout)["hits"]] == ["letters"]
    both = json.loads(found("--source", "letters", "--source", "reports").stdout)["hits"]
    assert {hit["source"] for hit in both} == {"letters", "reports"}
    assert "there is no source letter; did you mean letters" in str(found("--source", "letter").exception)
    assert "shard_00 is not of letters" in str(found("--source", "letters", "--shard", "shard_00").exception)
