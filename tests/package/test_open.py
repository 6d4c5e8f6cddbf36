"""`kopub.open`: what a home and a release of it give, that both are the same, and what is said of what cannot be."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import kopub
from kopub_assets.graph import GRAPH
from resources.release.local import LocalRelease
from tests.doubles.engines import OneRegionLayout
from tests.support.corpora import pages
from tests.support.harness import Platform
from tests.support.released import page_tables, release_of

BOTH = ("store", "release")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    """Two shards of two documents; one page has no picture that can be decoded, and one has lost its regions."""
    home = tmp_path_factory.mktemp("package")
    platform = Platform.of(home, [pages("a_1", "b_2", "a_2"), [*pages("b_1", "c_1"), ("b_3", b"no picture")]], [])
    platform.engines = {
        "layout": OneRegionLayout(diary=str(home / "layout.diary"), regions=2, fail_on="b_1"),
        "release": LocalRelease(folder=str(home / "release"), page_images=True),
    }
    assert platform.run("*", "shard_00", "shard_01").success
    return platform


@pytest.fixture(params=BOTH)
def corpus(made: Platform, request: pytest.FixtureRequest) -> kopub.Corpus:
    return kopub.open(made.home if request.param == "store" else made.home / request.param)


def test_documents_have_their_pages_by_number_with_counts_and_states(corpus: kopub.Corpus):
    assert corpus.documents.ids == ["a", "b", "c"]
    assert [page.id for page in corpus.documents["b"].pages] == ["b_1", "b_2", "b_3"], "over two shards"
    assert len(corpus.documents["b"]) == 3
    states = {state: count for state, count in corpus.documents["b"].states.items() if count}
    assert states == {kopub.State.OK: 1, kopub.State.FAILED: 1, kopub.State.QUARANTINED: 1}
    assert [page.id for page in corpus.pages] == ["a_1", "b_2", "a_2", "b_1", "c_1", "b_3"], "in corpus order"


def test_a_page_knows_its_neighbours_in_the_document(corpus: kopub.Corpus):
    page = corpus.page("b_2")
    assert (page.document.id, page.number, page.shard, page.row) == ("b", 2, "shard_00", 1)
    assert page.previous == corpus.page("b_1")
    assert page.next == corpus.page("b_3")
    assert corpus.page("b_1").previous is None
    assert corpus.page("b_3").next is None


def test_a_page_has_picture_regions_texts_vectors_and_lineage(corpus: kopub.Corpus, made: Platform):
    page = corpus.page("a_2")
    assert page.image.size == (page.width, page.height) == (160, 220)
    assert [(region.index, region.label, region.text, region.state) for region in page.regions] == [
        (0, "text", "read a_2", kopub.State.OK),
        (1, "text", "read a_2", kopub.State.OK),
    ]
    assert page.regions[0].box == (0.0, 0.0, 160.0, 220.0)
    assert page.text == page.markdown == "read a_2\n\nread a_2"
    stored = made.rows("corpus_text_embeddings")["a_2"]["vector"]
    assert np.array_equal(page.vectors["text"], np.array(stored, np.float16))
    assert set(page.vectors) == {"text", "image"}
    steps = {step.asset: step for step in page.lineage}
    assert list(steps) == [table for table in GRAPH.names if table not in ("query_embeddings", "hf_release")]
    assert steps["ocr_results"].engine == "slow_reader"
    assert steps["ocr_results"].run_id
    assert page.states["parsed_texts"] is kopub.State.OK


def test_a_page_that_was_lost_says_why(corpus: kopub.Corpus):
    failed, broken = corpus.page("b_1"), corpus.page("b_3")
    assert (failed.state, failed.reason) == (kopub.State.FAILED, "layout_regions: asked to fail")
    assert broken.state is kopub.State.QUARANTINED
    assert broken.reason
    assert broken.reason.startswith("raw_pages: not a")
    assert (failed.regions, failed.text, dict(failed.vectors)) == ((), "", {"image": failed.vectors["image"]})
    assert [page.id for page in corpus.pages.where(["failed", "quarantined"])] == ["b_1", "b_3"]
    assert [page.id for page in corpus.pages.where("ok", shard="shard_01")] == ["c_1"]
    with pytest.raises(kopub.KopubError):
        _ = broken.image


def test_a_home_and_its_release_are_the_same(made: Platform):
    home, release = kopub.open(made.home), kopub.open(made.home / "release")
    assert home.catalogue.equals(release.catalogue)
    for one, other in zip(home.pages, release.pages, strict=True):
        for what in ("regions", "text", "markdown", "reason", "states", "doubts", "sha256", "license", "pictures"):
            assert getattr(one, what) == getattr(other, what), (one.id, what)
        assert [step.fingerprint for step in one.lineage] == [step.fingerprint for step in other.lineage]


def test_pictures_of_regions_come_with_their_page(tmp_path: Path):
    release_of(tmp_path / "release", page_tables(0), page_tables(1))
    corpus = kopub.open(tmp_path / "release")
    (picture,) = corpus.page("doc1_2").pictures
    assert (picture.path, picture.label, picture.image.size) == ("crops/doc1_2_0.jpg", "image", (20, 10))
    assert corpus.page("doc1_3").pictures == ()
    with pytest.raises(kopub.KopubError, match="holds no page images: open the home"):
        _ = corpus.page("doc1_2").image


def test_ids_that_are_not_there_name_near_ones(corpus: kopub.Corpus):
    with pytest.raises(kopub.NoSuchPage, match=r"^there is no page 'c_2'; did you mean"):
        corpus.page("c_2")
    with pytest.raises(KeyError, match="there is no document 'd'"):
        _ = corpus.documents["d"]
    with pytest.raises(kopub.NoSuchPage, match="is not among these 2"):
        _ = corpus.documents["a"].pages["b_1"]
    assert "a_1" in corpus.documents["a"].pages
    assert "b_1" not in corpus.documents["a"].pages


def test_tables_that_are_replaced_are_seen_by_a_refresh(made: Platform, tmp_path: Path):
    shutil.copytree(made.home, tmp_path / "home")
    shutil.rmtree(tmp_path / "home" / "store" / "parsed_texts")
    corpus = kopub.open(tmp_path / "home")
    assert corpus.refreshed() is corpus
    assert (corpus.page("a_1").text, corpus.page("a_1").markdown) == ("", "read a_1\n\nread a_1")
    platform = Platform(tmp_path / "home", made.engines)
    platform.make("parsed_texts")
    assert corpus.refreshed().page("a_1").text == "read a_1\n\nread a_1"


def test_tables_of_another_corpus_are_left_out_and_named(made: Platform, tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("x_1"), pages("y_1")], [])
    platform.make("raw_pages")
    for shard in ("shard_00", "shard_01"):
        shutil.copy(made.home / f"store/raw_pages/{shard}.parquet", tmp_path / f"store/raw_pages/{shard}.parquet")
    corpus = kopub.open(tmp_path)
    assert len(corpus.pages) == 0
    assert corpus.notes[0] == "raw_pages of 2 shards is left out: it is of another corpus than the indexed one"


def test_a_damaged_table_is_one_line(made: Platform, tmp_path: Path):
    shutil.copytree(made.home / "release", tmp_path / "release")
    path = tmp_path / "release" / "data" / "regions" / "shard_00.parquet"
    path.write_bytes(path.read_bytes()[:100])
    page = kopub.open(tmp_path / "release").page("a_1")
    assert page.markdown
    with pytest.raises(kopub.KopubError, match="cannot be read"):
        _ = page.regions


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_what_is_no_corpus_is_said_in_one_line(tmp_path: Path, kind: str):
    place = tmp_path / kind
    if kind == "empty":
        place.mkdir()
    if kind == "file":
        place.write_text("x")
    with pytest.raises(kopub.KopubError) as told:
        kopub.open(place)
    assert "\n" not in str(told.value)
    assert ("run `kopub run`" if kind == "empty" else "name a home or a release folder") in str(told.value)


def imported_by(code: str) -> Iterator[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return (name for name in done.stdout.split() if "." not in name)


def test_importing_and_reading_load_no_dagster_torch_or_vllm(made: Platform):
    heavy = {"dagster", "torch", "vllm", "transformers", "datasets", "huggingface_hub", "pandas", "cv2"}
    assert not (heavy | {"pyarrow", "numpy", "pydantic"}) & set(imported_by("import kopub"))
    reading = f"import kopub; p = kopub.open({str(made.home / 'release')!r}).page('a_1'); p.regions, p.markdown"
    assert not heavy & set(imported_by(reading))
    home = f"import kopub; p = kopub.open({str(made.home)!r}).page('a_1'); p.regions, p.markdown"
    assert not (heavy - {"pandas"}) & set(imported_by(home))
