"""`Corpus.search` equals `kopub search`, in a home and in a release without its store."""

import pwd
from pathlib import Path

import pytest

import kopub
from kopub.cli.commands.search import searcher_of
from kopub.embedding.hashed import HashedEmbedder
from kopub.release.local import LocalRelease
from tests.search.test_search import TEXTS, Typist
from tests.support.harness import STANDARD, Platform
from tests.support.released import page_tables, release_of
from tests.support.sources.corpora import pages

QUESTION = "화면 밝기는 어떻게 조절하나요?"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    home = tmp_path_factory.mktemp("search")
    platform = Platform.of(home, [pages("a_1", "a_2"), pages("b_1", "b_2", first=2)], [])
    platform.engines = {
        "embedding": HashedEmbedder(),
        "recognition": Typist(texts=TEXTS),
        "release": LocalRelease(folder=str(home / "release")),
    }
    assert platform.run("*", "shard_00", "shard_01").success
    return platform


@pytest.mark.parametrize("mode", ["bm25", "text", "fusion", None])
def test_a_home_and_its_release_give_the_same_answers(made: Platform, mode: str | None):
    home, release = (kopub.open(made.home / folder).search(QUESTION, mode=mode) for folder in (".", "release"))
    assert [hit.page.id for hit in home] == [hit.page.id for hit in release]
    assert home[0].page.id == "a_1"
    assert [(hit.score, hit.passage, hit.marks, hit.regions) for hit in home] == [
        (hit.score, hit.passage, hit.marks, hit.regions) for hit in release
    ]
    assert (home.mode, home.matches_well, home.searched) == (release.mode, release.matches_well, release.searched)
    assert home.notes == release.notes == ()


def test_a_hit_says_where_on_the_page(made: Platform):
    answer = kopub.open(made.home).search(QUESTION, limit=1)
    (hit,) = answer
    assert [hit.passage[start:end] for start, end in hit.marks] == ["화면", "밝기", "조절하"]
    assert [region.text for region in hit.regions] == [TEXTS["a_1"]]
    assert answer.to_pandas().to_dict("records")[0]["page_id"] == "a_1"


def test_documents_and_shards_are_filters(made: Platform):
    corpus = kopub.open(made.home / "release")
    assert {hit.page.document.id for hit in corpus.search(QUESTION, documents=["b"], mode="text")} == {"b"}
    for document in ("b", corpus.documents["b"], [corpus.documents["b"]]):
        assert {hit.page.document.id for hit in corpus.search(QUESTION, documents=document, mode="text")} == {"b"}
    with pytest.raises(kopub.KopubError, match="limit is -1, and must be at least 1"):
        corpus.search(QUESTION, limit=-1)
    assert {hit.page.shard for hit in corpus.search(QUESTION, shards=["shard_01"], mode="text")} == {"shard_01"}
    assert len(corpus.search(QUESTION, has_figure=True)) == 0
    for scripts in (["HANGUL"], "hangul"):
        assert {hit.page.script for hit in corpus.search(QUESTION, scripts=scripts)} == {"HANGUL"}


def test_the_command_finds_the_same(made: Platform):
    found = searcher_of(made.settings).search(QUESTION, top=5)
    answer = kopub.open(made.home).search(QUESTION, limit=5)
    assert [(hit.page.page_id, hit.score) for hit in found.hits] == [(hit.page.id, hit.score) for hit in answer]
    assert found.mode.value == answer.mode


def test_pages_made_since_the_corpus_was_opened_are_found(made: Platform, tmp_path: Path):
    platform = Platform.of(tmp_path / "home", [pages("a_1"), pages("b_1", first=1)], [])
    platform.engines = dict(made.engines)
    names = [name for name in STANDARD if name not in ("query_embeddings", "hf_release")]
    assert platform.run(",".join(names)).success
    corpus = kopub.open(platform.home)
    assert [hit.page.id for hit in corpus.search("공유기")] == ["a_1"]
    assert platform.run(",".join(names), "shard_01").success
    assert corpus.search("공유기")[0].page.id == "b_1"
    assert len(corpus.pages) == 1
    assert len(corpus.refreshed().pages) == 2


def test_vectors_of_an_engine_that_is_not_here_leave_the_words(tmp_path: Path, cache: Path):
    release_of(tmp_path / "release", page_tables(0))
    before = sorted((tmp_path / "release").rglob("*"))
    corpus = kopub.open(tmp_path / "release")
    answer = corpus.search("본문")
    assert answer.mode == "bm25"
    assert {hit.page.id for hit in answer} == {"doc0_1", "doc0_2"}
    assert answer.notes[0].startswith("words alone are searched: the engine of profile cpu did not make the vectors")
    with pytest.raises(kopub.KopubError, match="8 dimensions"):
        kopub.open(tmp_path / "release", profile="cpu").search("본문", mode="text")
    assert sorted((tmp_path / "release").rglob("*")) == before, "a release is only read"
    assert list(cache.rglob("*.arrow"))


def test_a_user_without_a_home_folder_is_told_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def unknown(user: int) -> None:
        raise KeyError(user)

    release_of(tmp_path / "release", page_tables(0))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(kopub.KopubError, match="no home folder: set XDG_CACHE_HOME"):
        kopub.open(tmp_path / "release").search("본문")


def test_what_cannot_be_asked_is_one_line(made: Platform):
    corpus = kopub.open(made.home)
    with pytest.raises(kopub.KopubError, match=r"^there is no mode 'bm24'; did you mean bm25\?"):
        corpus.search(QUESTION, mode="bm24")
    with pytest.raises(kopub.KopubError, match="the query is empty"):
        corpus.search(" ")
    with pytest.raises(kopub.KopubError, match="the query is nan, and must be a string"):
        corpus.search(float("nan"))  # type: ignore[arg-type]
    with pytest.raises(kopub.KopubError, match="the query is not valid Unicode"):
        corpus.search("화면\ud800", mode="bm25")
    with pytest.raises(kopub.KopubError, match="there is no document 'z'"):
        corpus.search(QUESTION, documents=["z"])
