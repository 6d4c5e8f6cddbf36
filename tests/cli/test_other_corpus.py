"""Tables of an old corpus are never used for a newly indexed one."""

import json
import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from rich.console import Console

from kopub.cli.commands.doubts import texts_by_shard
from kopub.cli.commands.status import show_status
from kopub.cli.options import require_indexed
from kopub.config.settings import Settings, what_if
from kopub.embedding.hashed import HashedEmbedder
from kopub.errors import KopubError
from kopub.release.base import ASSETS
from kopub.search.searcher import CannotSearch, Searcher
from kopub.states import State
from kopub.store.table_source import CorpusCheck
from kopub.tables.plan import sources_of
from tests.search.test_search import SEARCHED, Typist, made
from tests.support.harness import Platform, failure
from tests.support.sources.corpora import page_image, query

NEW = {"a_1": "지붕의 빗물", "a_2": "마당의 나무", "b_1": "부엌의 그릇", "b_2": "다락의 상자"}
"""Texts of different pages with the same ids."""
OTHER = [[(page_id, page_image(at + 50)) for at, page_id in enumerate(NEW) if page_id[0] == doc] for doc in "ab"]
COMMAND = "kopub run"


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("first")).home


@pytest.fixture
def platform(first: Path, tmp_path: Path) -> Platform:
    """Return a home with the tables of one corpus in which another was just indexed."""
    home = tmp_path / "home"
    shutil.copytree(first, home)
    platform = Platform(home, {"embedding": HashedEmbedder(), "recognition": Typist(texts=NEW)})
    platform.reindex(OTHER, [query("q1", "무엇?", "a_1")])
    return platform


def searcher(platform: Platform) -> Searcher:
    check = CorpusCheck(platform.store, sources_of(platform.resources()))
    return Searcher(platform.store, ["shard_00", "shard_01"], HashedEmbedder(), "cpu", platform.home / "search", check)


def settings(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))
    return what_if({})


def shown(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    console = Console(width=200, record=True, quiet=False, file=(platform.home / "shown").open("w"))
    show_status(settings(platform, monkeypatch), console)
    return console.export_text().splitlines()


def row(lines: Iterable[str], asset: str) -> list[str]:
    return next(line.split() for line in lines if line.startswith(f"{asset} "))


def test_no_page_of_the_old_corpus_is_found(platform: Platform):
    with pytest.raises(CannotSearch, match="text vectors are of another corpus than the indexed one: run `kopub run`"):
        searcher(platform).search("화면 밝기")


def test_tables_made_from_old_parents_are_old_too(platform: Platform):
    """The pages and readings are new, but the vectors are of the old texts."""
    platform.make("raw_pages", "layout_regions", "ocr_results")
    with pytest.raises(CannotSearch, match="another corpus"):
        searcher(platform).search("화면 밝기")


def test_shards_that_were_made_since_are_searched_alone(platform: Platform):
    assert platform.run(SEARCHED, first="shard_01").success
    answer = searcher(platform).search("부엌의 그릇")
    assert {hit.page.shard for hit in answer.hits} == {"shard_01"}
    assert answer.hits[0].match.passage.text == NEW["b_1"]
    assert answer.notes == (
        "1 of 2 shards have text vectors of another corpus only",
        "1 of 2 shards have texts of another corpus only",
    )


def test_a_reading_that_was_tried_again_leaves_the_vectors_usable(platform: Platform):
    """The vectors were made from a table that is gone, but of this corpus."""
    platform.make(*SEARCHED.split(","))
    table = platform.store.read("ocr_results", "shard_00")
    metadata = platform.store.metadata("ocr_results", "shard_00")
    platform.store.write("ocr_results", "shard_00", table.slice(1), {**metadata, "content": "other"})
    assert {hit.page.shard for hit in searcher(platform).search("나무").hits} == {"shard_00", "shard_01"}


def test_status_tells_old_tables_from_made_ones(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    lines = shown(platform, monkeypatch)
    assert row(lines, "raw_pages") == ["raw_pages", "0/2", "0"]
    assert row(lines, "corpus_text_embeddings")[1] == "0/2"
    text = "\n".join(lines)
    assert "10 tables in the store are of another corpus than" in text
    assert f"next     {COMMAND}  (18 tables are missing)" in text
    assert "last run" not in text
    assert "current" not in text
    assert lines[-1] == "UI       kopub ui"  # it says where, which may be another port

    platform.make("raw_pages")
    lines = shown(platform, monkeypatch)
    assert row(lines, "raw_pages") == ["raw_pages", "2/2", "4", "4"]
    assert any(line.startswith("last run") and "computed 4 rows" in line for line in lines)


def test_status_names_files_that_are_not_as_they_were_indexed(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    first, second = sorted((platform.home / "source" / "corpus").iterdir())
    content = first.read_bytes()
    assert not any(str(first) in line for line in shown(platform, monkeypatch))
    first.write_bytes(content[::-1])
    second.unlink()
    lines = shown(platform, monkeypatch)
    assert f"{first} was written since it was indexed: `kopub index` looks whether it changed" in lines
    assert f"{second} cannot be found: bring it back, or index what is there with `kopub index`" in lines


def test_pages_read_in_part_are_listed_apart_from_lost_ones(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    platform.make("raw_pages")
    store = platform.store
    table, metadata = store.read("raw_pages", "shard_00"), store.metadata("raw_pages", "shard_00")
    rows = table.to_pylist()
    rows[0] |= {"state": State.PARTIAL, "reason": "region 3 has no text"}
    rows[1] |= {"state": State.FAILED, "reason": "no answer"}
    counted = json.dumps(Counter(row["state"] for row in rows))
    store.write("raw_pages", "shard_00", type(table).from_pylist(rows, table.schema), {**metadata, "states": counted})
    lines = shown(platform, monkeypatch)
    lost = lines.index("a_2 failed in raw_pages, shard_00: no answer")
    assert lines.index("a_1 partial in raw_pages, shard_00: region 3 has no text") > lost
    assert "asset                   shards rows ok partial failed" in lines
    assert row(lines, "raw_pages") == ["raw_pages", "2/2", "4", "2", "1", "1"]
    assert any("1 row is tried again" in line for line in lines)


def test_doubts_are_of_the_new_corpus(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = settings(platform, monkeypatch)
    assert texts_by_shard(now.corpus.manifest, now.store) == {}
    assert capsys.readouterr().err.startswith("parsed_texts of 2 shards are left out, of another corpus")


def test_export_and_publish_refuse_a_mixture(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    assert platform.run(SEARCHED, first="shard_00").success
    line = r"^raw_pages of shard_01 was made from another corpus than .* run `kopub run`"
    with pytest.raises(KopubError, match=line):
        require_indexed(settings(platform, monkeypatch), ASSETS)


def test_a_table_with_one_old_parent_is_old(platform: Platform):
    """The readings are based on the old layout, although the pages are new."""
    platform.make("raw_pages")
    stale = platform.store.metadata("layout_regions", "shard_00")
    table = platform.store.read("layout_regions", "shard_00")
    platform.make("layout_regions")
    platform.store.write("layout_regions", "shard_00", table, stale)
    # The shard with inconsistent parents is refused, so its readings stay those of the old corpus.
    assert failure(platform.run("ocr_results", last="shard_01")).startswith("shard_00: layout_regions of shard_00 was")
    is_of_corpus = CorpusCheck(platform.store, sources_of(platform.resources())).look()
    assert [is_of_corpus("ocr_results", shard) for shard in ("shard_00", "shard_01")] == [False, True]
