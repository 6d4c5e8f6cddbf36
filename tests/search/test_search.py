"""Search through its interfaces: hits, errors, and answers that are never stale."""

import json
import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from kopub.embedding.base import Embedding
from kopub.embedding.hashed import HashedEmbedder
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.processes import ChildWorker
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText
from kopub.search import morphemes, words
from kopub.search.answer import LONGEST, CannotSearch, QueryWords, as_json, best_passage
from kopub.search.options import Mode
from kopub.search.searcher import Searcher
from kopub.search.vectors import ShardVectors, Vectors
from kopub.states import State
from tests.cli.test_cli import run, run_anew
from tests.support.harness import Platform
from tests.support.processes import forked
from tests.support.sources.corpora import pages

TEXTS = {
    "a_1": "화면 밝기를 조절하려면 시스템 메뉴를 누릅니다.",
    "a_2": "프린터 용지가 걸렸을 때는 뒷면 덮개를 엽니다.",
    "b_1": "네트워크 연결이 끊기면 공유기를 다시 시작합니다.",
    "b_2": "",
}


class Typist(Recognizer):
    """A recognizer that reads the given text from each page."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.typist", {1: "a double"})
    texts: dict[str, str]

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for page, regions in pages:
            texts = tuple(RegionText(r.index, r.label, self.texts[page.page_id]) for r in regions)
            yield PageReading(page.page_id, State.OK, None, texts)


class TwoWayEmbedder(HashedEmbedder):
    """An embedder whose image vectors come from texts, so that queries match both."""

    queries_match: ClassVar[frozenset[str]] = frozenset({"text", "image"})
    says: dict[str, str]

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        yield from self.embed_texts([(page.page_id, self.says[page.page_id]) for page in pages])


SEARCHED = "raw_pages,layout_regions,ocr_results,parsed_texts,corpus_text_embeddings"


def made(home: Path, select: str = SEARCHED, **texts: str) -> Platform:
    platform = Platform.of(home, [pages("a_1", "a_2"), pages("b_1", "b_2", first=2)], [])
    platform.engines = {"embedding": HashedEmbedder(), "recognition": Typist(texts={**TEXTS, **texts})}
    platform.make(*select.split(","))
    return platform


def searcher(platform: Platform, embedding: HashedEmbedder | None = None) -> Searcher:
    shards, folder = ["shard_00", "shard_01"], platform.home / "search"
    return Searcher(platform.store, shards, embedding or HashedEmbedder(), "cpu", folder, mode=Mode.TEXT)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    return made(tmp_path_factory.mktemp("search"))


def test_the_page_that_answers_comes_first_with_its_passage(platform: Platform):
    answer = searcher(platform).search("밝기는 어떻게 조절하나요?")
    best = answer.hits[0]
    assert (best.page.page_id, best.page.doc_id, best.page.page_no, answer.mode) == ("a_1", "a", 1, Mode.TEXT)
    passage = best.match.passage
    assert [passage.text[start:end] for start, end in passage.marks] == ["밝기", "조절하"]
    assert best.match.regions == (0,)
    assert len(answer.hits) == 3, "a page without text has no vector"
    assert [hit.score for hit in answer.hits] == sorted((hit.score for hit in answer.hits), reverse=True)


def test_hangul_typed_as_letters_is_the_same_question(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    """Some systems type single letters, for which a model has other tokens than for syllables."""
    heard: list[str] = []
    embed = HashedEmbedder.embed_texts

    def embed_and_note(self: HashedEmbedder, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        asked = list(texts)
        heard.extend(text for _, text in asked)
        return embed(self, asked)

    monkeypatch.setattr(HashedEmbedder, "embed_texts", embed_and_note)
    syllables = "화면 밝기"
    letters = unicodedata.normalize("NFD", syllables)
    answers = [as_json(searcher(platform).search(query)) for query in (syllables, letters)]
    assert answers[0] == answers[1]
    assert answers[0]["hits"][0]["marks"]
    assert heard == [syllables, syllables]
    one, other = HashedEmbedder().embed_queries([("s", syllables), ("l", letters)])
    assert np.array_equal(np.asarray(one.vector), np.asarray(other.vector))


def test_scores_are_those_of_the_vectors(platform: Platform):
    answer = searcher(platform).search("공유기 시작")
    query = next(iter(HashedEmbedder().embed_queries([("q", "공유기 시작")]))).vector
    assert query is not None
    stored = platform.rows("corpus_text_embeddings", "shard_01")["b_1"]["vector"]
    assert answer.hits[0].score == pytest.approx(float(np.asarray(stored, np.float32) @ query), abs=1e-3)


def test_top_bounds_the_hits(platform: Platform):
    assert len(searcher(platform).search("프린터", top=1).hits) == 1


@pytest.mark.parametrize(
    ("query", "line"),
    [("", "the query is empty"), (" \n", "the query is empty"), ("?!…", "has no letters or digits")],
)
def test_a_query_that_says_nothing_is_told(platform: Platform, query: str, line: str):
    with pytest.raises(CannotSearch, match=line):
        searcher(platform).search(query)


def test_a_query_of_20000_characters_is_answered(platform: Platform):
    assert searcher(platform).search("화면 밝기 조절 " * 2223).hits[0].page.page_id == "a_1"


def test_image_vectors_that_no_query_matches_are_refused(platform: Platform):
    with pytest.raises(CannotSearch, match="profile cpu cannot search by image; choose fusion or bm25 or text"):
        searcher(platform).search("화면", mode=Mode.IMAGE)


def test_images_and_texts_are_fused(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1", "b_2", first=2)], [])
    seen = {"a_1": "표지", "a_2": "밝기 화면", "b_1": "그래프 밝기", "b_2": "사진"}
    embedder = TwoWayEmbedder(says=seen)
    platform.engines = {"embedding": embedder, "recognition": Typist(texts=TEXTS)}
    platform.make(*SEARCHED.split(","), "corpus_image_embeddings")
    modes = (Mode.VECTORS, Mode.TEXT, Mode.IMAGE)
    ranked = {mode: searcher(platform, embedder).search("화면 밝기", mode=mode) for mode in modes}
    assert ranked[Mode.VECTORS].mode is Mode.VECTORS
    assert ranked[Mode.TEXT].hits[0].page.page_id == "a_1"
    assert ranked[Mode.IMAGE].hits[0].page.page_id == "a_2"
    fused = {hit.page.page_id: hit.score for hit in ranked[Mode.VECTORS].hits}
    places = [[hit.page.page_id for hit in ranked[mode].hits] for mode in (Mode.TEXT, Mode.IMAGE)]
    for page, score in fused.items():
        assert score == pytest.approx(sum(1 / (61 + order.index(page)) for order in places if page in order))


def test_no_vectors_yet(tmp_path: Path):
    with pytest.raises(CannotSearch, match="no text vectors yet: run `kopub run`"):
        searcher(made(tmp_path, select="raw_pages")).search("화면")


def test_vectors_of_another_width_or_engine_are_refused(platform: Platform):
    with pytest.raises(CannotSearch, match="have 2048 dimensions, those of profile cpu 64: run `kopub run`"):
        searcher(platform, HashedEmbedder(dim=64)).search("화면")
    other = type(
        "HashedEmbedder", (HashedEmbedder,), {"code_version": CodeVersion("embedding.hashed", {1: "one", 2: "two"})}
    )
    with pytest.raises(CannotSearch, match="made with another engine, or another version of it"):
        searcher(platform, other()).search("화면")


def test_a_shard_of_another_engine_is_left_out_and_named(tmp_path: Path):
    platform = made(tmp_path)
    platform.engines["embedding"] = HashedEmbedder(dim=64)
    assert platform.run("corpus_text_embeddings", first="shard_01").success
    answer = searcher(platform).search("공유기를 다시 시작")
    assert {hit.page.shard for hit in answer.hits} == {"shard_00"}
    assert answer.notes == ("shard_01 is not searched: its text vectors have 64 dimensions, those of profile cpu 2048",)


def test_a_shard_that_is_not_made_yet_is_told(tmp_path: Path):
    platform = made(tmp_path)
    (tmp_path / "store" / "corpus_text_embeddings" / "shard_01.parquet").unlink()
    answer = searcher(platform).search("화면")
    assert answer.notes == ("1 of 2 shards have no text vectors yet",)


def test_no_answer_is_stale(tmp_path: Path):
    platform = made(tmp_path)
    long_lived = searcher(platform)
    assert long_lived.search("프린터 용지").hits[0].page.page_id == "a_2"
    platform.engines["recognition"] = Typist(texts={**TEXTS, "b_1": "프린터 용지", "a_2": "달력"})
    platform.make(*SEARCHED.split(","))
    for now in (long_lived, searcher(platform)):
        best = now.search("프린터 용지").hits[0]
        assert (best.page.page_id, best.match.passage.text) == ("b_1", "프린터 용지")
    kept = sorted(path.name.partition(".")[0] for path in (tmp_path / "search" / "pages").glob("*.arrow"))
    assert kept == ["shard_00", "shard_01"], "what was replaced is gone"


@pytest.mark.parametrize("damage", ["cut", "zeros", "empty", "flipped"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: str):
    platform = made(tmp_path)
    before = as_json(searcher(platform).search("화면 밝기"))
    for path in (tmp_path / "search").rglob("*.arrow"):
        content = bytearray(path.read_bytes())
        middle = len(content) // 2
        content[middle] ^= 0xFF
        kinds = {"cut": content[:middle], "zeros": bytes(len(content)), "empty": b"", "flipped": content}
        path.write_bytes(kinds[damage])
    assert as_json(searcher(platform).search("화면 밝기")) == before
    assert all(path.stat().st_size for path in (tmp_path / "search").rglob("*.arrow"))


def test_a_build_that_was_killed_leaves_nothing_that_is_used(tmp_path: Path):
    platform = made(tmp_path)
    expected = as_json(searcher(platform).search("화면 밝기"))
    for path in list((tmp_path / "search").rglob("*.arrow")):
        path.with_name(f".{path.name}.1234abcd.tmp").write_bytes(path.read_bytes()[:100])
        path.unlink()
    assert as_json(searcher(platform).search("화면 밝기")) == expected


def test_two_at_once_build_the_same(tmp_path: Path):
    platform = made(tmp_path)
    answers = []
    threads = [Thread(target=lambda: answers.append(as_json(searcher(platform).search("화면 밝기")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    assert all(answer == answers[0] for answer in answers)
    assert len(list((tmp_path / "search").rglob("*.arrow"))) == 4


def test_tables_that_are_gone_leave_the_hit(tmp_path: Path):
    platform = made(tmp_path)
    for asset in ("raw_pages", "ocr_results"):
        (tmp_path / "store" / asset / "shard_00.parquet").unlink()
    best = searcher(platform).search("화면 밝기").hits[0]
    assert (best.page.page_id, best.page.doc_id, best.match.passage.text) == ("a_1", None, "")


def vector_table(shard: str, matrix: np.ndarray) -> pa.Table:
    column = pa.FixedSizeListArray.from_arrays(pa.array(matrix.astype(np.float16).ravel()), matrix.shape[1])
    return pa.table({"page_id": [f"{shard}_{row}" for row in range(len(matrix))], "vector": column})


def random_parts() -> list[ShardVectors]:
    chance = np.random.default_rng(0)
    parts = []
    for shard in ("shard_00", "shard_01", "shard_02"):
        matrix = chance.standard_normal((100, 32)).astype(np.float32)
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        parts.append(ShardVectors(shard, "v1", vector_table(shard, matrix)))
    return parts


def nearest(vectors: Vectors, query: np.ndarray, count: int = 5) -> list[str]:
    return [neighbour.page_id for neighbour in vectors.nearest(query, count)]


def test_exact_search_is_the_dot_product():
    parts = random_parts()
    query = parts[1].matrix[7].astype(np.float32)
    scores = {f"{p.shard}_{row}": float(p.matrix[row].astype(np.float32) @ query) for p in parts for row in range(100)}
    expected = sorted(scores, key=lambda page: -scores[page])[:5]
    assert nearest(Vectors(parts), query) == expected
    assert len(Vectors(parts).nearest(query, 1000)) == 300


def test_equal_pages_come_in_corpus_order():
    parts = random_parts()
    matrices = {part.shard: part.matrix.copy() for part in parts}
    same = {"shard_00": [7, 20, 50], "shard_02": [3, 10, 30, 44, 45, 90]}
    for shard, rows in same.items():
        matrices[shard][rows] = matrices["shard_00"][50]
    parts = [ShardVectors(part.shard, "v1", vector_table(part.shard, matrices[part.shard])) for part in parts]
    query = matrices["shard_00"][50].astype(np.float32)
    expected = [f"{shard}_{row}" for shard, rows in same.items() for row in rows]
    assert nearest(Vectors(parts), query, 9) == expected


@pytest.mark.parametrize(
    ("query", "text", "marked"),
    [
        ("설치하려면", "재설치하는 방법", ["설치하"]),
        ("USB 설치", "usb 메모리, USBIP, 설치", ["usb", "설치"]),
        ("빵", "빵을 먹는 제빵사", ["빵"]),
        ("<b>", "a <b> c", ["b"]),
        ("ＵＳＢ", "USB", ["USB"]),
    ],
)
def test_words_are_found_by_their_beginnings(query: str, text: str, marked: list[str]):
    assert [text[start:end] for start, end, _ in QueryWords.of(query).marks(text)] == marked


def test_a_query_of_one_endless_word_is_looked_for_by_its_beginnings_alone():
    assert max(map(len, QueryWords.of("가나다라 " + "가나다라마" * 4000).stems), default=0) <= LONGEST
    assert max(map(len, QueryWords.of("가" * 300).stems)) == LONGEST


def test_a_long_region_is_cut_around_its_words():
    text = "앞말 " * 300 + "화면 밝기를 조절합니다. " + "뒷말 " * 300
    found = best_passage(QueryWords.of("밝기 조절"), ["딴말", text])
    passage = found.passage
    assert found.regions == (1,)
    assert [passage.text[start:end] for start, end in passage.marks] == ["밝기", "조절"]
    assert passage.text.startswith("… ")
    assert passage.text.endswith(" …")
    assert len(passage.text) <= LONGEST + 4


def test_without_a_word_in_common_the_page_begins():
    assert best_passage(QueryWords.of("무지개"), ["첫 줄", "둘째\n줄"]).passage.text == "첫 줄 둘째 줄"


@pytest.mark.services
@pytest.mark.smoke
def test_the_command_line(platform: Platform):
    found = run(platform.home, "kopub", "search", "화면 밝기", "--top", "1", "--json", "--mode", "text")
    assert found.returncode == 0, found.stderr
    hit = json.loads(found.stdout)["hits"][0]
    assert (hit["page_id"], hit["doc_id"], hit["page_no"], hit["shard"]) == ("a_1", "a", 1, "shard_00")
    assert [hit["passage"][start:end] for start, end in hit["marks"]] == ["화면", "밝기"]
    assert hit["regions"][0]["text"] == TEXTS["a_1"]

    shown = run(platform.home, "kopub", "search", "화면 밝기", FORCE_COLOR="1", TERM="xterm")
    assert "a_1" in shown.stdout
    assert "\x1b[1;4;32m밝기\x1b[0m" in shown.stdout


@pytest.mark.services
def test_the_command_line_says_what_is_wrong_in_one_line(platform: Platform):
    for arguments, line in (
        (["?"], "Error: the query has no vector: the text has no letters or digits to compare"),
        (
            ["화면", "--mode", "image"],
            "Error: profile cpu cannot search by image; choose fusion or bm25 or vectors or text or meaning",
        ),
        (["화면", "--document", "aa"], "Error: there is no document 'aa'"),
        (["\udcb8\udce9"], "Error: the query is not valid Unicode: type it in a terminal with a UTF-8 locale"),
        (["화면", "--shard", "shard_0"], "Error: there is no shard shard_0; did you mean shard_00 or shard_01?"),
    ):
        refused = run(platform.home, "kopub", "search", *arguments)
        assert (refused.returncode, refused.stderr) == (1, f"{line}\n")


@pytest.mark.services
def test_what_a_page_says_cannot_steer_the_terminal(tmp_path: Path):
    hostile = "화면 \x1b]0;owned\x07 \x1b[31m[bold]빨강[/bold] \u202e거꾸로"
    platform = made(tmp_path, a_1=hostile)
    shown = run(platform.home, "kopub", "search", "화면 빨강", "--top", "1")
    assert shown.returncode == 0, shown.stderr
    assert not {"\x1b", "\x07", "\u202e"} & set(shown.stdout)
    assert "[bold]빨강[/bold]" in shown.stdout


@pytest.mark.services
def test_two_processes_share_the_folder(tmp_path: Path):
    platform = made(tmp_path)
    code = (
        "import sys; from kopub.search.searcher import Searcher;"
        "from kopub.embedding.hashed import HashedEmbedder;"
        "from kopub.store.table_store import ShardStore;"
        "from pathlib import Path; home = Path(sys.argv[1]);"
        "s = Searcher(ShardStore(url=str(home / 'store')), ['shard_00', 'shard_01'], HashedEmbedder(), 'cpu',"
        " home / 'search'); print(s.search('화면', mode=s.choices[2]).hits[0].page.page_id)"
    )
    with ThreadPoolExecutor() as at_once:
        both = list(at_once.map(lambda _: forked.run(["python", "-c", code, str(platform.home)], os.environ), range(2)))
    assert [process.stdout for process in both] == ["a_1\n", "a_1\n"]


def test_words_that_take_long_are_told_and_found_once(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(words, "_MANY", 2)
    said: list[str] = []
    for _ in range(2):
        Searcher(platform.store, ["shard_00", "shard_01"], None, "cpu", tmp_path, say=said.append).words()
    about = "splitting the pages into words, once for these texts: shard_0{} of 2 shards"
    assert said == [about.format(0), about.format(1)]


def test_of_a_shard_that_changed_only_new_texts_are_split_into_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    platform = made(tmp_path)
    search = searcher(platform)
    assert search.search("화면 밝기", mode=Mode.BM25).hits[0].page.page_id == "a_1"
    split: list[str] = []

    def tokenise(texts: pa.Table) -> pa.Table:
        split.extend(texts["text"].to_pylist())
        return tokenise_all(texts)

    tokenise_all = words.tokenise
    monkeypatch.setattr(words, "tokenise", tokenise)
    platform.engines["recognition"] = Typist(texts={**TEXTS, "a_2": "안개가 짙다"})
    platform.make("ocr_results", "parsed_texts")
    assert search.search("안개", mode=Mode.BM25).hits[0].page.page_id == "a_2"
    assert search.search("화면 밝기", mode=Mode.BM25).hits[0].page.page_id == "a_1"
    assert split == ["안개가 짙다"]


@pytest.mark.parametrize("main", ["kopub.search.morphemes:answer_queries", "a process that answers nothing"])
def test_the_first_words_of_a_process_are_found_by_another(main: str, monkeypatch: pytest.MonkeyPatch):
    query = "밝기 조절, 2,310건"
    expected = next(morphemes.query_tokens([query]))
    monkeypatch.setattr(morphemes.korean_analyser, "cache_info", lambda: SimpleNamespace(currsize=0))
    monkeypatch.setattr(morphemes, "ChildWorker", lambda _, seconds: ChildWorker(main, seconds))
    assert morphemes.query_words(query)() == expected


def test_where_nothing_can_be_written_the_search_works_and_says_so_once(tmp_path: Path):
    platform = made(tmp_path)
    (tmp_path / "search").write_text("in the way of the folder, as a read-only home would be")
    search = searcher(platform)
    answers = [search.search("화면 밝기") for _ in range(2)]
    assert [answer.hits[0].page.page_id for answer in answers] == ["a_1", "a_1"]
    assert len(answers[0].notes) == 1
    assert answers[0].notes[0].startswith("what was read is kept in memory only, so every start takes longer: ")
    assert answers[1].notes == ()


MOST_MODULES = 70
LOADED = """
import sys
from kopub.cli.entry import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*(name for name, module in sys.modules.items() if not hasattr(module, "__path__")), file=sys.stderr)
"""


@pytest.mark.smoke
@pytest.mark.services
def test_a_search_loads_no_model_server_and_little_else(platform: Platform):
    done = run_anew(platform.home, "python", "-c", LOADED, "search", "화면 밝기", "--json")
    assert done.returncode == 0, done.stderr
    product = ("kopub.", "kopub_assets.", "resources.")
    loaded = {name for name in done.stderr.split() if name.startswith(product)}
    assert len(loaded) <= MOST_MODULES, sorted(loaded)
    servers = ("kopub.vllm.", "kopub.recognition.vlm.", "kopub.release.versions", "kopub_assets.", "resources.")
    assert not {name for name in loaded if name.startswith(servers)}
    assert {name for name in loaded if name.startswith("kopub.cli.commands.")} == {"kopub.cli.commands.search"}
