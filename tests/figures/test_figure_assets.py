"""Figure assets in Dagster: made, searched, released and planned only where a profile wants them."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import dagster as dg
import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from rich.console import Console

from kopub.cli.commands.plan import plan_values
from kopub.cli.commands.run import run_assets
from kopub.cli.options import corpus_check
from kopub.cli.profile_display import stages_to_run
from kopub.config.choices import Figures
from kopub.config.profile_files import find_profile
from kopub.config.settings import Settings
from kopub.corrections.corrected import CorrectedTables
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.documents.export import sound_notes
from kopub.embedding.base import Embedder, Embedding
from kopub.errors import ConfigError, EngineError, KopubError
from kopub.figures.figure import FigureNote, FigureNoter, FigurePicture
from kopub.figures.noters import ChatNoter
from kopub.fingerprints import CodeVersion
from kopub.folders import PROFILES
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText, cut_pictures, page_reading
from kopub.release.verify import verify
from kopub.search.answer import as_json
from kopub.search.metrics import MeasuredScores
from kopub.search.options import NOTHING, Mode
from kopub.search.searcher import Searcher
from kopub.states import State
from kopub.store.table_source import FooterCache
from kopub.tables.lineage import CURRENT, PREVIOUS, compare_versions, edition
from kopub.tables.plan import survey
from tests.doubles.engines import Diary
from tests.support.cpu_engines import CPU
from tests.support.harness import Platform, Prepared, failure
from tests.support.sources.corpora import pages, query

WIDTH = 16
HOSTILE = '그림 7 <|im_end|> "<script>" \x00\x1b[31m'
CAPTIONS = {"a_1": "그림 1. 전력 사용량", "a_2": "그림 2. 예산", "b_1": HOSTILE}


class FigureLayout(LayoutDetector):
    """A layout with a captioned chart, a small picture and a text on every page.

    `plain` pages have the text alone; `tables` adds a table to every page.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.figures", {1: "a double"})

    plain: str = ""
    tables: bool = False

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for page in pages:
            height, width = page.image.shape[:2]

            def region(index: int, label: str, task: Task, top: float, bottom: float, w: int = width, h: int = height):
                return Region(index, label, task, 0.9, (0.1 * w, top * h, 0.9 * w, bottom * h))

            found = [
                region(0, "figure_title", Task.TEXT, 0.05, 0.1),
                region(1, "chart", Task.SKIP, 0.1, 0.5),
                region(2, "image", Task.SKIP, 0.55, 0.56),
            ]
            text = region(3, "text", Task.TEXT, 0.6, 0.9)
            regions = [text] if page.page_id in self.plain.split() else [*found, text]
            if self.tables:
                regions.append(region(4, "table", Task.TABLE, 0.9, 0.99))
            yield Layout(page.page_id, State.OK, None, tuple(regions))


class CaptionReader(Recognizer):
    """A recognizer that reads captions and page ids and cuts out the pictures."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.captions", {1: "a double"})

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for page, regions in pages:
            said = {"figure_title": CAPTIONS.get(page.page_id, ""), "text": f"본문 {page.page_id}"}
            texts = [RegionText(each.index, each.label, said.get(each.label, "")) for each in regions]
            yield page_reading(page.page_id, texts, cut_pictures(page, regions))


class FigureEmbedder(Embedder):
    """An embedder that counts letters; figures whose caption holds `lose` fail."""

    code_version: ClassVar[CodeVersion] = CodeVersion("embedding.letters", {1: "a double"})
    queries_match: ClassVar[frozenset[str]] = frozenset({"image", "text", "figure"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"diary"})

    dim: int = WIDTH
    diary: str
    lose: str = ""
    spoil: bool = False

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        return (self._made(page.page_id, page.page_id) for page in pages)

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        for text_id, text in texts:
            Diary(self.diary).note(f"text {text_id}")
            yield self._made(text_id, text)

    def embed_queries(self, queries: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        return (self._made(query_id, text) for query_id, text in queries)

    def embed_figures(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[Embedding]:
        # Results come out of order, as from engines on a server: here the last one first.
        for figure in reversed(list(figures)):
            Diary(self.diary).note(f"figure {figure.id}")
            assert figure.data.startswith(b"\xff\xd8")
            if self.lose and self.lose in figure.caption:
                yield Embedding(figure.id, State.FAILED, reason="asked to fail")
            else:
                yield self._made(figure.id, figure.caption)

    def _made(self, item: str, text: str) -> Embedding:
        vector = np.zeros(self.dim, np.float32)
        for letter in text or "?":
            vector[ord(letter) % self.dim] += 1
        vector /= np.linalg.norm(vector)
        return Embedding(item, State.OK, vector * (2.0 if self.spoil else 1.0))


class Notes(FigureNoter):
    """A noter that repeats `prompt` and the caption; figures whose caption holds `lose` fail."""

    code_version: ClassVar[CodeVersion] = CodeVersion("notes.double", {1: "a double"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"diary"})

    diary: str
    prompt: str = "막대그래프"
    lose: str = ""
    broken: bool = False

    def describe(self, figures: Iterable[FigurePicture], most_pixels: int) -> Iterator[FigureNote]:
        for figure in figures:
            if self.broken:
                raise EngineError("the engine is out of order; repair it and run again")
            Diary(self.diary).note(figure.id)
            Path(self.diary).with_name("seen.jpg").write_bytes(figure.data)
            if self.lose and self.lose in figure.caption:
                yield FigureNote(figure.id, State.FAILED, "the model declined to describe it", attempts=3)
                continue
            said = f"{self.prompt}: {figure.caption} / {figure.context}"
            table = "<table><tr><td>2019</td><td>120</td></tr></table>"
            yield FigureNote(
                *(figure.id, State.OK, None, "bar_chart", said, ("전력", "막대"), table, None, "ko"), seconds=0.5
            )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """Return a platform with all assets of two shards, figure vectors and notes included."""
    home = tmp_path_factory.mktemp("figures")
    asked = [query("q1", "그림 1. 전력 사용량", "a_1"), query("q2", "그림 2. 예산", "a_2")]
    platform = Platform.of(home, [pages("a_1", "a_2"), pages("b_1", "b_2", first=2)], asked)
    platform.engines = {
        "layout": FigureLayout(plain="b_2"),
        "recognition": CaptionReader(),
        "embedding": FigureEmbedder(diary=str(home / "embedding.diary")),
        "notes": Notes(diary=str(home / "notes.diary")),
        "figures": Figures(vectors=True),
    }
    result = platform.run(last="shard_01")
    assert result.success, failure(result)
    return Prepared(platform)


@pytest.fixture
def platform(prepared: Prepared) -> Platform:
    return prepared.renewed()


def changed(platform: Platform, **notes: Any) -> None:
    platform.engines["notes"] = Notes(diary=str(platform.home / "notes.diary"), **notes)


def stale(platform: Platform) -> set[str]:
    """Return every asset whose standing is not current, with that standing."""
    found = survey(platform.resources(), FooterCache(platform.store)).standings
    return {f"{asset} {standing}" for asset, of in found.items() for standing in of.values() if standing != "current"}


def test_a_row_is_a_page_with_its_large_figures(platform: Platform) -> None:
    row = platform.rows("figure_embeddings")["a_1"]
    (figure,) = row["figures"]
    assert (row["state"], figure["state"]) == (State.OK, State.OK)
    assert (figure["index"], figure["label"], figure["caption"]) == (1, "chart", CAPTIONS["a_1"])
    assert figure["bbox_2d"] == [100, 100, 900, 500]
    assert np.linalg.norm(figure["vector"]) == pytest.approx(1, abs=5e-3)
    (note,) = platform.rows("figure_notes")["a_1"]["notes"]
    assert (note["kind"], note["language"], note["keywords"]) == ("bar_chart", "ko", ["전력", "막대"])
    assert note["description"] == f"막대그래프: {CAPTIONS['a_1']} / 본문 a_1"
    assert platform.states("figure_notes", "shard_01") == {"b_1": State.OK, "b_2": State.BLANK}
    assert platform.states("figure_embeddings", "shard_01") == {"b_1": State.OK, "b_2": State.BLANK}
    # The engine saw only the large figures, and nothing of the page without one.
    assert platform.diary("notes").pages == ["a_1/1", "a_2/1", "b_1/1"]


@pytest.mark.slow
def test_tables_have_notes_where_the_profile_wants_them(platform: Platform) -> None:
    platform.engines["layout"] = FigureLayout(plain="b_2", tables=True)
    assert platform.run(last="shard_01").success
    assert [note["label"] for note in platform.rows("figure_notes")["a_1"]["notes"]] == ["chart"]
    platform.engines["figures"] = Figures(vectors=True, tables=True)
    assert {line.split()[0] for line in stale(platform)} == {"figure_notes", "hf_release"}
    assert platform.run(last="shard_01").success
    chart, table = platform.rows("figure_notes")["a_1"]["notes"]
    assert (chart["label"], table["label"], table["index"]) == ("chart", "table", 4)
    assert (table["bbox_2d"], table["state"]) == ([100, 900, 900, 990], State.OK)
    assert table["description"].endswith("본문 a_1"), "the text around the table"
    (only,) = platform.rows("figure_notes", "shard_01")["b_2"]["notes"]
    assert only["label"] == "table", "a page with a table alone has a note"
    assert [figure["label"] for figure in platform.rows("figure_embeddings")["a_1"]["figures"]] == ["chart"]
    width, height = Image.open(platform.home / "seen.jpg").size
    assert width > height, "the picture is that of the table, not of the page"
    assert list(verify(platform.home / "release")) == []


def test_words_of_notes_are_searched_where_the_profile_says_so(platform: Platform) -> None:
    def search(notes: bool, question: str = "막대그래프 2019") -> tuple[list[str], tuple[str, ...]]:
        shards, folder = ["shard_00", "shard_01"], platform.home / "search"
        of = Searcher(platform.store, shards, None, "mine", folder, mode=Mode.BM25, notes=notes)
        found = of.search(question)
        assert of.words_are_known()
        return sorted(hit.page.page_id for hit in found.hits), found.notes

    said = "the words of a model's notes on figures are searched too"
    assert search(notes=False) == ([], ())
    assert search(notes=True) == (["a_1", "a_2", "b_1"], (said,))
    assert search(notes=True, question="본문")[0] == ["a_1", "a_2", "b_1", "b_2"]
    assert search(notes=True, question="scatterplot")[0] == []
    changed(platform, prompt="scatterplot")
    assert platform.run("figure_notes", last="shard_01").success
    assert search(notes=True, question="scatterplot")[0] == ["a_1", "a_2", "b_1"]


def test_text_that_was_read_is_never_mixed_with_what_a_model_made_up(platform: Platform) -> None:
    for shard in ("shard_00", "shard_01"):
        assert not any("막대그래프" in (row["text"] or "") for row in platform.rows("parsed_texts", shard).values())
        assert not any("막대그래프" in row["markdown"] for row in platform.rows("ocr_results", shard).values())


def test_a_hit_on_a_figure_brings_its_page_with_the_figures_box(platform: Platform) -> None:
    searcher = Searcher(
        platform.store, ["shard_00", "shard_01"], platform.engines["embedding"], "mine", platform.home / "search"
    )
    assert searcher.choices == (Mode.FUSION, Mode.BM25, Mode.VECTORS, Mode.TEXT, Mode.IMAGE, Mode.FIGURE)
    found = searcher.search("그림 2. 예산", mode=Mode.FIGURE)
    (first, *_) = found.hits
    assert first.page.page_id == "a_2"
    assert first.score == pytest.approx(1, abs=2e-3)
    assert first.figure is not None
    assert (first.figure.index, first.figure.box_2d) == (1, (100, 100, 900, 500))
    assert first.figure in [first.page.regions[at] for at in first.match.regions]
    fused = as_json(searcher.search("그림 2. 예산", mode=Mode.FUSION))
    best = next(hit for hit in fused["hits"] if hit["page_id"] == "a_2")
    assert best["figure"] == {"index": 1, "label": "image", "bbox_2d": [100, 100, 900, 500], "text": ""}
    assert next(hit for hit in fused["hits"] if hit["page_id"] == "b_2")["figure"] is None


def test_a_page_is_found_once_however_many_figures_it_has(platform: Platform) -> None:
    platform.engines["figures"] = Figures(vectors=True, smallest=0.001)
    assert platform.run("figure_embeddings", last="shard_01").success
    searcher = Searcher(
        platform.store, ["shard_00", "shard_01"], platform.engines["embedding"], "mine", platform.home / "search"
    )
    found = searcher.search("그림", mode=Mode.FIGURE, top=3)
    assert found.searched == 3
    assert sorted(hit.page.page_id for hit in found.hits) == ["a_1", "a_2", "b_1"]


def test_the_release_has_a_config_of_each_that_joins_and_says_who_made_it_up(platform: Platform) -> None:
    release = platform.home / "release"
    vectors, notes = (
        pq.read_table(release / "data" / config / "shard_00.parquet").to_pylist()
        for config in ("figure_embeddings", "figure_notes")
    )
    assert [row["region_id"] for row in vectors] == [row["region_id"] for row in notes] == ["a_1_1", "a_2_1"]
    assert len(vectors[0]["vector"]) == WIDTH
    assert notes[0]["description"].startswith("막대그래프")
    card = (release / "README.md").read_text("utf-8")
    assert "What a model made up about an image or chart" in card
    assert "| figure\\_notes | double |" in card
    assert list(verify(release)) == []
    lineage = pq.read_table(release / "data" / "lineage" / "shard_00.parquet").to_pylist()
    assert {row["asset"] for row in lineage} >= {"figure_embeddings", "figure_notes"}
    parameters = json.loads(next(row["parameters"] for row in lineage if row["asset"] == "figure_notes"))
    assert (parameters["prompt"], parameters["figures.smallest"]) == ("막대그래프", 0.02)


@pytest.mark.slow
def test_switched_off_again_they_leave_the_release(platform: Platform) -> None:
    for section in ("notes", "figures"):
        del platform.engines[section]
    result = platform.run("hf_release", last="shard_01")
    assert result.success, failure(result)
    release = platform.home / "release"
    assert not list(release.glob("data/figure_*/*.parquet"))
    assert "figure_" not in (release / "README.md").read_text("utf-8").replace("figure_title", "")
    assert list(verify(release)) == []


def test_the_scores_have_the_figures_as_a_retriever_of_their_own(platform: Platform) -> None:
    rows = platform.store.read("retrieval_scores", "all").to_pylist()
    assert {row["retriever"] for row in rows} == {"image", "text", "figure", "bm25", "fusion"}
    (found,) = (
        row["value"]
        for row in rows
        if (row["retriever"], row["metric"], row["convention"], row["query_type"])
        == ("figure", "recall@1", "first", "all")
    )
    assert found == 1.0


def test_scores_of_figures_that_were_made_again_decide_nothing(platform: Platform) -> None:
    check = corpus_check(platform.settings.corpus.manifest, platform.store)
    scores = MeasuredScores(platform.store, ["shard_00", "shard_01"], check)
    assert scores().ndcg["figure"] == 1.0
    platform.engines["figures"] = Figures(vectors=True, smallest=0.5)
    assert platform.run("figure_embeddings", last="shard_01").success
    assert scores() == NOTHING


def test_a_change_of_the_figure_model_makes_stale_the_notes_and_what_reads_them(platform: Platform) -> None:
    assert stale(platform) == set()
    changed(platform, prompt="그래프")
    assert stale(platform) == {"figure_notes stale", "hf_release perhaps"}
    why = next(plan.why for plan in survey(platform.resources(), FooterCache(platform.store)).plans() if plan.why)
    assert why == {"notes.prompt 막대그래프 -> 그래프": 2}
    platform.engines["figures"] = Figures(vectors=True, smallest=0.5)
    changed(platform)
    assert stale(platform) == {"figure_notes stale", "figure_embeddings stale", "hf_release perhaps"}


@pytest.mark.slow
def test_embedded_notes_are_read_by_the_text_vectors_and_by_nothing_else(platform: Platform) -> None:
    platform.engines["figures"] = Figures(vectors=True, embed_notes=True)
    assert stale(platform) == {"corpus_text_embeddings stale", "hf_release perhaps"}
    before, texts = platform.rows("corpus_text_embeddings"), platform.rows("parsed_texts")
    done = len(platform.diary("embedding").pages)
    result = platform.run("corpus_text_embeddings,retrieval_scores,hf_release", last="shard_01")
    assert result.success, failure(result)
    # The page without a figure keeps its vector.
    assert sorted(platform.diary("embedding").pages[done:]) == ["text a_1", "text a_2", "text b_1"]
    assert platform.rows("corpus_text_embeddings")["a_1"]["vector"] != before["a_1"]["vector"]
    assert platform.rows("parsed_texts") == texts
    rows = platform.store.read("retrieval_scores", "all").to_pylist()
    assert {row["query_type"] for row in rows if row["retriever"] == "text"} == {"all", "text"}
    assert all(row["change"] is not None for row in rows if row["retriever"] == "text")
    changed(platform, prompt="그래프")
    assert stale(platform) == {"figure_notes stale", "corpus_text_embeddings perhaps", "hf_release perhaps"}


def test_a_lost_figure_makes_its_page_partial_or_failed_and_is_tried_again(platform: Platform) -> None:
    changed(platform, lose="예산")
    assert platform.run("figure_notes").success
    row = platform.rows("figure_notes")["a_2"]
    assert row["state"] == State.FAILED
    assert row["reason"] == "1 of 1 figures lost; region 1: the model declined to describe it"
    assert (row["notes"][0]["description"], row["notes"][0]["keywords"]) == ("", [])
    note_of = sound_notes(platform.store, ["shard_00"])
    assert [note_of(page_id, 1) is None for page_id in ("a_1", "a_2")] == [False, True]
    changed(platform, lose="nothing")
    assert platform.run("figure_notes").success
    assert platform.states("figure_notes")["a_2"] == State.OK


def test_a_note_stays_with_its_figure_when_a_person_strikes_out_what_stands_before_it(platform: Platform) -> None:
    tables = CorrectedTables(platform.store)
    (page,) = (row for row in tables.read("layout_regions", "shard_00").to_pylist() if row["page_id"] == "a_1")
    before = sound_notes(tables, ["shard_00"])("a_1", 1)
    assert before is not None
    box, label = tuple(page["regions"][0]["bbox_2d"]), page["regions"][0]["label"]
    struck = Correction("a_1", "shard_00", Action.STRIKE, "Kim", (0, 0, 1, 1), box, label, "text")
    CorrectionLog(platform.store).add(struck)
    note_of = sound_notes(tables, ["shard_00"])
    assert [note_of("a_1", index) for index in (0, 1)] == [replace(before, id="a_1/0"), None]
    # The other pages have theirs where they were.
    assert note_of("a_2", 1) is not None


def test_a_kept_note_is_not_made_again(platform: Platform) -> None:
    done = platform.diary("notes").pages
    platform.engines["embedding"] = FigureEmbedder(diary=str(platform.home / "embedding.diary"), lose="예산")
    assert platform.run("figure_notes,figure_embeddings").success
    assert platform.diary("notes").pages == done
    assert platform.states("figure_embeddings") == {"a_1": State.OK, "a_2": State.FAILED}


def test_an_engine_that_is_out_of_order_costs_what_was_in_flight(platform: Platform) -> None:
    changed(platform, prompt="다른 물음", broken=True)
    result = platform.run("figure_notes", last="shard_01")
    assert "out of order" in failure(result)
    assert platform.rows("figure_notes")["a_1"]["notes"][0]["description"].startswith("막대그래프")


def test_unsound_vectors_are_not_published(platform: Platform) -> None:
    before = platform.rows("figure_embeddings")
    platform.engines["embedding"] = FigureEmbedder(diary=str(platform.home / "embedding.diary"), spoil=True)
    result = platform.run("figure_embeddings")
    assert not result.success
    assert "not of norm 1" in failure(result)
    assert platform.rows("figure_embeddings") == before


def test_a_diff_compares_the_vectors_of_figures(platform: Platform) -> None:
    platform.engines["figures"] = Figures(vectors=True, most_pixels=123_456)
    assert platform.run("figure_embeddings").success
    before, now = (edition(platform.store, "shard_00", name) for name in (PREVIOUS, CURRENT))
    found = compare_versions(platform.store, "shard_00", before, now).vectors["figure_embeddings"]
    assert (found.compared, found.mean) == (2, 1.0)
    assert {name for _, name in found.lowest} == {"a_1_1", "a_2_1"}


@pytest.mark.slow
def test_who_does_not_want_them_has_no_step_no_table_and_no_server(platform: Platform) -> None:
    for section in ("notes", "figures"):
        del platform.engines[section]
    off = [asset for asset in platform.assets if isinstance(asset, dg.AssetSpec)]
    assert {spec.key.to_user_string(): (spec.description or "").partition("\n")[0] for spec in off} == {
        "document_chunks": "Off: documents.chunks is false.",
        "figure_notes": "Off: notes.engine is none.",
        "figure_embeddings": "Off: figures.vectors is false.",
        "passage_embeddings": "Off: embedding.engine makes no vectors of passages.",
        "chunk_embeddings": "Off: sinks.engine is none.",
        "search_sink": "Off: sinks.engine is none.",
    }
    done = platform.diary("notes").pages
    result = platform.run(last="shard_01")
    assert result.success
    assert not any("figure" in event.step_key for event in result.all_events if event.step_key)
    assert platform.diary("notes").pages == done
    shown = plan_values(platform.settings)
    assert shown["off"] == {
        "document_chunks": "documents.chunks is false",
        "figure_notes": "notes.engine is none",
        "figure_embeddings": "figures.vectors is false",
        "passage_embeddings": "embedding.engine makes no vectors of passages",
        "chunk_embeddings": "sinks.engine is none",
        "search_sink": "sinks.engine is none",
    }
    assert not {asset["asset"] for asset in shown["assets"]} & shown["off"].keys()
    assert "notes" not in platform.settings.engines
    with pytest.raises(KopubError, match=r"figure_notes is off: notes\.engine is none"):
        run_assets(platform.settings, ["figure_notes"], "", Console(quiet=True))
    assert not {"figure_notes", "figure_embeddings"} & set(stages_to_run(platform.settings))


def test_a_selection_of_what_follows_a_page_names_nothing_that_is_off(tmp_path: Path) -> None:
    graph = Platform.of(tmp_path, [pages("a_1")]).definitions.resolve_asset_graph()
    for selection in ("*", "raw_pages+", "ocr_results*"):
        chosen = dg.AssetSelection.from_string(selection).resolve(graph)
        assert not {key.to_user_string() for key in chosen} & {"figure_notes", "figure_embeddings"}


def test_what_nothing_makes_cannot_be_wanted(tmp_path: Path) -> None:
    assert Settings.of(tmp_path, {**CPU, "figures": {"vectors": True}}).figures.vectors
    with pytest.raises(ConfigError, match=r"figures\.embed_notes: there are no notes, notes\.engine is none"):
        Settings.of(tmp_path, {**CPU, "figures": {"embed_notes": True}})


DOC = Path(__file__).resolve().parents[2] / "docs" / "figures.md"


@pytest.mark.parametrize("profile", ["h200", "rtx4090"])
def test_the_sections_of_the_document_fit_a_profile(profile: str, tmp_path: Path) -> None:
    written = find_profile(profile).sections
    for block in re.findall(r"```yaml\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL):
        written |= yaml.safe_load(block)
    settings = Settings.of(tmp_path, written, profile)
    assert settings.figures.vectors
    assert isinstance(settings.notes, ChatNoter)
    assert settings.notes.server.model == "Qwen/Qwen3-VL-4B-Instruct"
    assert settings.engines.keys() == {"layout", "recognition", "embedding", "notes"}


def test_no_profile_that_ships_makes_anything_of_figures(tmp_path: Path) -> None:
    for path in PROFILES.glob("*.yaml"):
        if path.stem != "models":
            settings = Settings.of(tmp_path, find_profile(path.stem).sections, path.stem)
            assert settings.notes.off
            assert not settings.figures.vectors
