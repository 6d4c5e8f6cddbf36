"""`kopub.open` of a home and of its release, which give the same, and its errors."""

import copy
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kopub
from benchmarks.finding import package
from kopub.api.sources.source import ParquetRows
from kopub.cli.options import require_indexed
from kopub.documents.export import write_documents
from kopub.errors import KopubError
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading
from kopub.release.local import LocalRelease
from tests.doubles.engines import OneRegionLayout, SlowReader, UnitEmbedder
from tests.doubles.hubs.writable_hub import REPO, WritableHub
from tests.support.harness import STANDARD, Platform
from tests.support.released import ReleasedCorpus, page_tables, release_of
from tests.support.sources.corpora import pages

BOTH = ("store", "release")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    """Return two shards of three documents, with an undecodable page and a failed layout."""
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


def test_a_document_has_chunks_and_tables_with_their_places(corpus: kopub.Corpus):
    (chunk,) = corpus.documents["a"].chunks()
    assert chunk.text == "read a_1\n\nread a_1\n\nread a_2\n\nread a_2"
    assert [(place.page_id, place.page, place.region) for place in chunk.places] == [
        ("a_1", 1, 0), ("a_1", 1, 1), ("a_2", 2, 0), ("a_2", 2, 1),
    ]  # fmt: skip
    pieces = list(corpus.documents["a"].chunks(2, count_tokens=lambda text: len(text.split())))
    assert [piece.tokens for piece in pieces] == [2, 2, 2, 2]
    assert corpus.documents["a"].tables == []


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
    assert list(steps) == [table for table in STANDARD if table not in ("query_embeddings", "hf_release")]
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
    with pytest.raises(kopub.KopubError, match="there is no state 'bad'; there are ok, partial, blank, failed"):
        corpus.pages.where("bad")
    with pytest.raises(kopub.KopubError, match="there is no shard 'shard_7'; did you mean shard_0"):
        corpus.pages.where(shard="shard_7")
    with pytest.raises(kopub.KopubError, match="max_tokens is 0"):
        corpus.documents[0].chunks(0)
    with pytest.raises(kopub.KopubError, match=r"embed takes a list of texts: embed\(\[text\]\)"):
        corpus.embed("one text")
    with pytest.raises(kopub.KopubError, match="text 1 is None, and must be a string"):
        corpus.embed(["one text", None])  # type: ignore[list-item]
    with pytest.raises(kopub.KopubError, match=r"not a PNG, JPEG|b_3 has no image in the release"):
        _ = broken.image


def test_a_region_of_a_page_that_was_not_read_has_the_state_of_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(reader: SlowReader, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        return (PageReading(page.page_id, kopub.State.FAILED, "asked to fail", ()) for page, _ in pages)

    monkeypatch.setattr(SlowReader, "read", refuse)
    platform = Platform.of(tmp_path, [pages("a_1")], [])
    platform.make("raw_pages", "layout_regions", "ocr_results")
    (region,) = kopub.open(tmp_path).page("a_1").regions
    assert (region.state is kopub.State.FAILED, region.reason) == (True, "asked to fail")


def test_a_document_says_why_a_page_is_lost_as_an_export_does(corpus: kopub.Corpus, made: Platform, tmp_path: Path):
    write_documents(made.store, ["shard_00", "shard_01"], tmp_path / "out", ["markdown"])
    for document in corpus.documents:
        assert document.to_markdown() == (tmp_path / "out" / f"{document.id}.md").read_text("utf-8")
    assert "> Page 1 could not be read (failed): asked to fail" in corpus.documents["b"].to_markdown()


def test_a_home_and_its_release_are_the_same(made: Platform):
    home, release = kopub.open(made.home), kopub.open(made.home / "release")
    assert home.catalogue.equals(release.catalogue)
    for one, other in zip(home.pages, release.pages, strict=True):
        for what in ("regions", "text", "markdown", "reason", "states", "doubts", "sha256", "license", "pictures"):
            assert getattr(one, what) == getattr(other, what), (one.id, what)
        assert [step.fingerprint for step in one.lineage] == [step.fingerprint for step in other.lineage]
    # Its texts and tables are made of the same regions, which know where their texts come from.
    document, _ = home.page("a_1").document.structured[0]
    assert document.pages[0].regions == home.page("a_1").regions


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
    with pytest.raises(kopub.NoSuchPage, match="there is no page 1"):
        corpus.page(1)  # type: ignore[arg-type]


def test_pages_are_left_out_by_id_or_page_and_chosen_by_one_number(corpus: kopub.Corpus):
    pages = corpus.pages
    others = [page_id for page_id in pages.ids if page_id != "a_1"]
    for left_out in ("a_1", ["a_1"], (each for each in ["a_1"]), [pages["a_1"]], pages[:1]):
        assert pages.without(left_out).ids == others
    assert pages.without("not a_1").ids == pages.ids, "a part of a string is another id"
    assert pages[np.int64(1)] == pages[1]
    for wrong in ([1], np.arange(len(pages)) == 1):
        with pytest.raises(TypeError):
            _ = pages[wrong]  # type: ignore[call-overload]


def test_the_same_document_is_equal_and_has_one_place(corpus: kopub.Corpus):
    documents = corpus.documents
    assert documents["b"] == documents[1] != documents["a"]
    assert documents.index(documents["c"]) == 2
    assert {documents["b"], corpus.page("b_1").document} == {documents["b"]}
    assert kopub.Document("b", documents["b"].pages[:1]) != documents["b"]


def test_a_corpus_and_what_is_of_it_says_that_it_cannot_be_pickled(corpus: kopub.Corpus):
    page = corpus.page("a_1")
    for each in (corpus, corpus.pages, page, corpus.documents, page.document):
        with pytest.raises(TypeError, match="a corpus cannot be pickled or copied deeply: send ids"):
            pickle.dumps(each)
        with pytest.raises(TypeError, match="a corpus cannot be pickled or copied deeply: send ids"):
            copy.deepcopy(each)
    assert copy.copy(corpus) is corpus
    assert copy.copy(page) == page
    assert pickle.loads(pickle.dumps(page.regions)) == page.regions


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


def test_tables_may_be_in_object_storage(made: Platform):
    fs, store = fsspec.filesystem("memory"), made.home / "store"
    fs.put(str(store), "/package/store", recursive=True)
    page, local = kopub.open(made.home, store="memory://package/store").page("a_2"), kopub.open(made.home).page("a_2")
    assert (page.regions, page.text, page.lineage) == (local.regions, local.text, local.lineage)


def test_a_relative_store_and_index_are_below_the_current_folder(made: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(made.home)
    assert len(kopub.open(made.home, store="store", index=".").pages) == 6
    assert len(kopub.open(made.home, store=(made.home / "store").as_uri()).pages) == 6


@pytest.mark.parametrize("option", ["store", "index"])
@pytest.mark.parametrize("place", ["stroe", "memory://nothing/here"])
def test_a_mistyped_store_or_index_is_one_line(made: Platform, option: str, place: str):
    with pytest.raises(kopub.KopubError, match=rf"{place}.*has no .*: correct {option}="):
        kopub.open(made.home, **{option: place})


def test_opening_reads_ids_and_states_alone(corpus: kopub.Corpus, monkeypatch: pytest.MonkeyPatch):
    read: set[str] = set()

    def noted(rows: ParquetRows, columns: Sequence[str]) -> pa.Table:
        read.update(columns)
        return whole(rows, columns)

    whole = ParquetRows.read
    monkeypatch.setattr(ParquetRows, "read", noted)
    monkeypatch.setattr(ParquetRows, "slice", lambda *_: pytest.fail("a page was read"))
    assert len(corpus.pages) == 6
    assert corpus.documents["b"].states[kopub.State.OK] == 1
    assert corpus.page("b_2").previous == corpus.page("b_1")
    assert read == {"page_id", "doc_id", "page_no", "state", "doubt"}


def test_a_page_is_read_from_its_row_group_alone(tmp_path: Path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"page_id": list("abcdef"), "value": range(6)}), path, row_group_size=2)
    file = pq.ParquetFile(path)
    groups: list[Sequence[int]] = []
    read = file.read_row_groups
    file.read_row_groups = lambda chosen, columns: (groups.append(chosen), read(chosen, columns))[1]  # type: ignore[method-assign]
    rows = ParquetRows(file, "rows")
    assert rows.row(3, "page_id", "d", ["value"]) == {"page_id": "d", "value": 3}
    assert rows.slice(1, 3, ["value"])["value"].to_pylist() == [1, 2, 3]
    assert groups == [[1], [0, 1]]
    assert rows.row(0, "page_id", "f", ["value"]) == {"page_id": "f", "value": 5}, "a table of another order"
    assert rows.row(9, "page_id", "x", ["value"]) is None


def test_a_table_with_a_damaged_footer_is_no_page_without_text(made: Platform, tmp_path: Path):
    home = shutil.copytree(made.home, tmp_path / "home")
    table = home / "store" / "ocr_results" / "shard_00.parquet"
    data = bytearray(table.read_bytes())
    data[-20] ^= 0xFF
    table.write_bytes(data)
    with pytest.raises(kopub.KopubError, match=rf"{table} is damaged .*; materialize ocr_results to make it again"):
        _ = [(page.state, page.markdown) for page in kopub.open(home).pages]
    corpus = kopub.open(home)
    assert not [note for note in corpus.notes if "another corpus" in note]
    with pytest.raises(KopubError, match=rf"{table} is damaged"):
        require_indexed(Platform(home).settings, ["ocr_results"])


def test_a_damaged_table_is_one_line(made: Platform, tmp_path: Path):
    shutil.copytree(made.home / "release", tmp_path / "release")
    path = tmp_path / "release" / "data" / "regions" / "shard_00.parquet"
    path.write_bytes(path.read_bytes()[:100])
    page = kopub.open(tmp_path / "release").page("a_1")
    assert page.markdown
    with pytest.raises(kopub.KopubError, match="cannot be read"):
        _ = page.regions


@pytest.mark.parametrize("kept_open", [1, 64])
def test_a_page_of_a_release_that_was_replaced_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept_open: int
):
    monkeypatch.setattr("kopub.api.sources.source._OPEN", kept_open)
    release_of(tmp_path, page_tables(0, pages=4), page_tables(1))
    page = kopub.open(tmp_path).pages[2]
    release_of(tmp_path, page_tables(0, pages=2), page_tables(1))
    with pytest.raises(kopub.KopubError, match="open it"):
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
    assert (
        "run `kopub run`"
        if kind == "empty"
        else "name a home, a release by its folder or URL, or OWNER/NAME on the Hub"
    ) in str(told.value)


def test_vectors_in_the_middle_of_an_upgrade_are_one_line(tmp_path: Path):
    platform = Platform.of(tmp_path, [pages("a_1"), pages("b_1", first=1)], [])
    platform.make("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_text_embeddings")
    platform.engines = {"embedding": UnitEmbedder(dim=8)}
    assert platform.run("corpus_text_embeddings", "shard_01").success
    corpus = kopub.open(platform.home)
    with pytest.raises(kopub.KopubError, match="the vectors of these pages have several lengths"):
        corpus.to_arrow("text_vectors")
    assert corpus.pages.where(shard="shard_01").to_arrow("text_vectors").num_rows == 1


@pytest.mark.parametrize("option", ["store", "index", "revision"])
def test_an_option_that_a_release_or_home_does_not_have_is_refused(made: Platform, option: str):
    with pytest.raises(kopub.KopubError, match=f"which has no {option}: leave out {option}='v2'"):
        kopub.open(made.home / "release", **{option: "v2"})
    with pytest.raises(kopub.KopubError, match="is a folder, which has no revision"):
        kopub.open(made.home, revision="v2")


@pytest.mark.parametrize("place", ["~nobody_here/data", "a" * 300, "a\0b", ""], ids=["user", "long", "nul", "empty"])
def test_a_name_that_no_folder_can_have_is_one_line(made: Platform, monkeypatch: pytest.MonkeyPatch, place: str):
    monkeypatch.chdir(made.home)
    with pytest.raises(kopub.KopubError, match="is no folder: name a home"):
        kopub.open(place)
    if place.startswith("~"):
        monkeypatch.setenv("KOPUB_HOME", place)
        with pytest.raises(kopub.KopubError, match="KOPUB_HOME: '~nobody_here/data' is no folder"):
            kopub.open()


def test_tables_are_the_same_of_a_home_and_its_release(made: Platform):
    home, release = kopub.open(made.home), kopub.open(made.home / "release")
    for table in ("pages", "regions", "text_vectors", "image_vectors"):
        assert home.to_arrow(table).equals(release.to_arrow(table)), table
    assert home.to_arrow()["page_id"].to_pylist() == home.pages.ids
    assert home.to_arrow("text_vectors")["page_id"].to_pylist() == ["a_1", "b_2", "a_2", "c_1"]


def test_tables_follow_the_order_of_the_pages(corpus: kopub.Corpus):
    some = corpus.documents["b"].pages[::-1]
    assert some.to_arrow()["page_id"].to_pylist() == ["b_3", "b_2", "b_1"]
    assert some.to_arrow("regions").select(["page_id", "index"]).to_pylist() == [
        {"page_id": "b_2", "index": 0},
        {"page_id": "b_2", "index": 1},
    ]
    frame = some.to_pandas()
    assert frame.set_index("page_id").loc["b_2", "markdown"] == "read b_2\n\nread b_2"
    assert corpus.pages[:0].to_arrow("image_vectors").num_rows == 0
    with pytest.raises(kopub.KopubError, match="there is no table 'region'; did you mean regions"):
        corpus.to_arrow("region")  # type: ignore[arg-type]


def test_a_release_on_the_hub_is_read_and_fetched_as_it_is_needed(hub: WritableHub, tmp_path: Path):
    corpus = ReleasedCorpus(tmp_path)
    corpus.put(page_tables(0), page_tables(1))
    corpus.push(REPO)
    hub.asked.clear()
    opened = kopub.open(REPO)
    assert opened.location == f"{REPO} at {hub.head.oid}"
    assert opened.documents.ids == ["doc0", "doc1"]
    fetched = {path.rpartition("/data/")[2] for method, path in hub.asked if method == "GET" and "/data/" in path}
    assert fetched == {"pages/shard_00.parquet", "pages/shard_01.parquet"}
    page, local = opened.page("doc1_2"), kopub.open(corpus.folder).page("doc1_2")
    assert page.regions == local.regions
    assert page.pictures == local.pictures
    assert opened.refreshed() is opened
    corpus.put(page_tables(0, pages=4), page_tables(1))
    corpus.push(REPO)
    assert len(opened.refreshed().pages) == 7


@pytest.mark.parametrize(("repo", "line"), [("someone/else", "neither a folder nor a dataset"), (REPO, "no release")])
def test_what_is_no_release_on_the_hub_is_one_line(hub: WritableHub, repo: str, line: str):
    with pytest.raises(kopub.KopubError, match=line) as told:
        kopub.open(repo)
    assert "\n" not in str(told.value)


def imported_by(code: str) -> Iterator[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return (name for name in done.stdout.split() if "." not in name)


@pytest.mark.slow
@pytest.mark.extras
def test_importing_and_reading_load_no_dagster_torch_or_vllm(made: Platform):
    heavy = {"dagster", "torch", "vllm", "transformers", "datasets", "huggingface_hub", "pandas", "cv2"}
    assert not (heavy | {"pyarrow", "numpy", "pydantic"}) & set(imported_by("import kopub"))
    reading = f"import kopub; p = kopub.open({str(made.home / 'release')!r}).page('a_1'); p.regions, p.markdown"
    assert not heavy & set(imported_by(reading))
    home = f"import kopub; p = kopub.open({str(made.home)!r}).page('a_1'); p.regions, p.markdown"
    assert not (heavy - {"pandas"}) & set(imported_by(home))


def test_the_benchmark_looks_at_as_many_pages_as_there_are(tmp_path: Path):
    release_of(tmp_path / "release", page_tables(0))
    assert package.looking(tmp_path / "release").keys() > set(package.PARTS)
