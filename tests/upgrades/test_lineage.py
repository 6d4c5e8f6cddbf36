"""The lineage of a page or vector: the bytes, boxes, models and runs behind it."""

import hashlib
import json
import shutil
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from kopub.cli.main import app
from kopub.config.settings import load_settings
from kopub.errors import KopubError, StorageAway
from kopub.pages import page_reader
from kopub.pages.indexing import index
from kopub.store import ledger
from kopub.store.rows import LINEAGE, lineage_rows
from kopub.store.table_store import ShardStore
from tests.doubles.engines import SlowReader
from tests.support.harness import Platform
from tests.support.sources.corpora import pages, query

PAGES = pages("a_1", "a_2")
TABLES = (
    "raw_pages,layout_regions,ocr_results,parsed_texts,corpus_text_embeddings,corpus_image_embeddings,query_embeddings"
)
Kopub = Callable[..., Result]


class PinnedReader(SlowReader):
    revision: str = "r1"

    def weights(self) -> dict[str, str]:
        return {"model": "someone/reader", "revision": self.revision, "vllm": "0.32.0"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Platform:
    platform = Platform.of(tmp_path_factory.mktemp("built"), [PAGES, pages("b_1")], [query("q1", "무엇인가?", "a_1")])
    read_by(platform, "r1")
    assert platform.run(TABLES, last="shard_01").success
    return platform


@pytest.fixture
def platform(built: Platform, tmp_path: Path) -> Platform:
    """Return a copy of the built platform for a test to change."""
    shutil.copytree(built.home, tmp_path / "home")
    return Platform(tmp_path / "home", recorded=built.instance)


@pytest.fixture
def kopub(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Kopub:
    """Return the command line, set to the platform's home."""
    monkeypatch.setenv("KOPUB_HOME", str(platform.home))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, words)


def read_by(platform: Platform, revision: str, prompt: str = "read") -> None:
    diary = str(platform.home / "recognition.diary")
    platform.engines["recognition"] = PinnedReader(diary=diary, revision=revision, prompt=prompt)


def told(kopub: Kopub, *words: str) -> dict[str, Any]:
    result = kopub("lineage", *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def step(chain: dict[str, Any], asset: str) -> dict[str, Any]:
    return next(step for step in chain["steps"] if step["asset"] == asset)


def test_a_page_tells_its_bytes_boxes_models_prompts_and_runs(kopub: Kopub, platform: Platform):
    chain = told(kopub, "a_2")
    assert (chain["kind"], chain["shard"]) == ("page", "shard_00")
    source = chain["source"]
    assert Path(source["file"]).name == "data-0.arrow"
    assert source["row"] == 1
    assert source["sha256"] == source["sha256_now"] == hashlib.sha256(PAGES[1][1] or b"").hexdigest()
    assert source["unchanged"]
    (region,) = chain["regions"]
    assert region["label"] == "text"
    assert region["bbox"] == [0, 0, 160, 220]
    assert region["score"] == pytest.approx(0.9)
    assert region["content"] == "read a_2"

    reading = step(chain, "ocr_results")
    assert (reading["model"], reading["revision"]) == ("someone/reader", "r1")
    assert reading["parameters"]["prompt"] == "read"
    assert reading["versions"]["vllm"] == "0.32.0"
    assert reading["state"] == "ok"
    assert reading["fingerprint"] == platform.rows("ocr_results")["a_2"]["fingerprint"]
    assert reading["recipe"] == platform.store.metadata("ocr_results", "shard_00")["recipe"]
    assert reading["run_id"] in [run.run_id for run in platform.instance.get_runs()]
    assert reading["made_at"]
    assert step(chain, "corpus_text_embeddings")["vector"]["dimensions"] == 4
    assert not any(each["stale"] for each in chain["steps"])


def test_a_person_reads_the_same(kopub: Kopub):
    shown = kopub("lineage", "a_2").stdout
    for said in ("data-0.arrow, row 1", "hashed again just now", "someone/reader at r1", "prompt", "read a_2"):
        assert said in shown


def test_a_query_tells_its_vector(kopub: Kopub):
    (vector,) = told(kopub, "q1")["steps"]
    assert (vector["asset"], vector["query"], vector["vector"]["norm"]) == ("query_embeddings", "무엇인가?", 1.0)
    assert told(kopub, "query_embeddings/q1")["steps"][0]["fingerprint"] == vector["fingerprint"]


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("a_22", "there is no page or query 'a_22'; did you mean a_2?"),
        ("nothing", "there is no page or query 'nothing': see `kopub status` for what was made"),
        ("raw_pages/c_1", "there is no page or query 'c_1'; did you mean a_1 or b_1?"),
        ("query_embeddings/a_1", "query_embeddings has no row for 'a_1'"),
    ],
)
def test_an_id_that_does_not_exist_names_its_neighbours(kopub: Kopub, given: str, line: str):
    result = kopub("lineage", given)
    assert result.exit_code == 1
    assert str(result.exception).startswith(line)


def test_a_page_and_a_query_of_one_id_are_told_apart(tmp_path: Path, kopub: Kopub, platform: Platform):
    platform.reindex([PAGES, pages("b_1")], [query("a_1", "무엇인가?", "a_1")])
    assert platform.run("query_embeddings").success
    assert "say raw_pages/a_1 or query_embeddings/a_1" in str(kopub("lineage", "a_1").exception)
    assert told(kopub, "raw_pages/a_1")["kind"] == "page"
    assert told(kopub, "query_embeddings/a_1")["kind"] == "query"


def test_an_image_that_is_not_the_one_that_was_read_is_shown_loudly(kopub: Kopub, platform: Platform):
    source = platform.home / "source" / "corpus" / "data-0.arrow"
    image = PAGES[1][1] or b""
    source.write_bytes(source.read_bytes().replace(image, image[:-20] + bytes(20)))
    result = kopub("lineage", "a_1")
    assert result.exit_code == 1
    assert "THE SOURCE CANNOT BE READ" in result.stdout
    assert "changed since it was indexed" in result.stdout
    index(str(platform.home / "source"), platform.home)
    load_settings.cache_clear()
    result = kopub("lineage", "a_2")
    assert result.exit_code == 1
    assert "THE IMAGE IN THE SOURCE IS NOT THE ONE THAT WAS READ" in result.stdout
    assert kopub("lineage", "a_1").exit_code == 0


def test_a_source_that_is_gone_leaves_the_rest_of_the_chain(kopub: Kopub, platform: Platform):
    (platform.home / "source" / "corpus" / "data-0.arrow").unlink()
    result = kopub("lineage", "a_2")
    assert result.exit_code == 1
    assert "THE SOURCE CANNOT BE READ" in result.stdout
    assert "someone/reader at r1" in result.stdout


def test_a_source_in_a_storage_that_is_away_leaves_the_rest_of_the_chain(
    kopub: Kopub, platform: Platform, monkeypatch: pytest.MonkeyPatch
):
    def fetch(*where: object) -> None:
        raise StorageAway("s3://corpus/data-0.arrow cannot be read, the storage does not answer")

    monkeypatch.setattr(page_reader, "open_shard", fetch)
    result = kopub("lineage", "a_2")
    assert result.exit_code == 1
    assert "THE SOURCE CANNOT BE READ: s3://corpus/data-0.arrow" in " ".join(result.stdout.split())
    assert "someone/reader at r1" in result.stdout


def test_a_row_that_the_source_no_longer_has_is_told(kopub: Kopub, platform: Platform):
    platform.reindex([pages("a_1"), pages("b_1")])
    result = kopub("lineage", "a_2")
    assert result.exit_code == 1
    assert "THE SOURCE CANNOT BE READ" in result.stdout


@pytest.mark.parametrize("words", [("lineage", "a_2"), ("diff", "shard_00"), ("diff", "shard_00@abc")])
def test_a_table_of_another_program_is_told_in_one_line(kopub: Kopub, platform: Platform, words: tuple[str, ...]):
    path = Path(platform.store.location("corpus_text_embeddings", "shard_00"))
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    error = kopub(*words).exception
    assert isinstance(error, KopubError)
    assert "materialize corpus_text_embeddings again" in str(error) or "no version 'abc'" in str(error)


@pytest.mark.parametrize("table", ["", "raw_pages/"])
def test_a_korean_page_is_found_in_single_letters(kopub: Kopub, platform: Platform, table: str):
    """As macOS passes the names of files."""
    platform.reindex([pages("보고서_1")])
    platform.make("raw_pages")
    assert told(kopub, table + unicodedata.normalize("NFD", "보고서_1"))["id"] == "보고서_1"
    refused = kopub("lineage", unicodedata.normalize("NFD", "보고_9")).exception
    assert "there is no page or query '보고_9'" in str(refused)


def test_pictures_of_the_page_and_its_regions(kopub: Kopub, tmp_path: Path):
    folder = tmp_path / "crops"
    assert kopub("lineage", "a_2", "--crop", str(folder)).exit_code == 0
    assert (folder / "a_2.png").read_bytes() == PAGES[1][1]
    with Image.open(folder / "a_2_0.png") as crop:
        assert crop.size == (160, 220)

    one = tmp_path / "one.png"
    assert kopub("lineage", "a_2", "--crop", str(one), "--region", "0").exit_code == 0
    assert one.read_bytes() == (folder / "a_2_0.png").read_bytes()
    assert "a_2 has no region 7; it has 1" in str(
        kopub("lineage", "a_2", "--crop", str(one), "--region", "7").exception
    )
    assert "it is a query" in str(kopub("lineage", "q1", "--crop", str(one)).exception)

    # The file of a whole page holds the kind of picture that its name says, too.
    assert kopub("lineage", "a_2", "--crop", str(tmp_path / "page.jpg")).exit_code == 0
    with Image.open(tmp_path / "page.jpg") as page:
        assert page.format == "JPEG"
    assert kopub("lineage", "a_2", "--crop", str(one)).exit_code == 0
    assert one.read_bytes() == PAGES[1][1]


@pytest.mark.parametrize("suffix", [".psd", ".h5"])
def test_a_picture_of_a_kind_that_nothing_writes_is_refused(kopub: Kopub, tmp_path: Path, suffix: str):
    one = tmp_path / f"one{suffix}"
    refused = kopub("lineage", "a_2", "--crop", str(one), "--region", "0").exception
    assert isinstance(refused, KopubError)
    assert str(refused) == f"{one} cannot be written: no {suffix} picture can be made of it; name a .png file"
    assert not one.exists()


def test_a_vector_is_traced_to_the_tables_it_was_made_from(kopub: Kopub, platform: Platform):
    read_by(platform, "r2", prompt="look")
    assert platform.run("ocr_results").success

    vector = told(kopub, "corpus_text_embeddings/a_1")
    made_by = step(vector, "ocr_results")
    assert (made_by["revision"], made_by["parameters"]["prompt"]) == ("r1", "read")
    assert made_by["replaced_since"]
    assert vector["regions"][0]["content"] == "read a_1"
    assert not vector["missing"]
    assert "corpus_image_embeddings" not in [each["asset"] for each in vector["steps"]]

    page = told(kopub, "a_1")
    assert step(page, "ocr_results")["revision"] == "r2"
    assert step(page, "parsed_texts")["stale"] == ["ocr_results"]
    assert "Stale: ocr_results has changed since this was made from it." in kopub("lineage", "a_1").stdout


def test_a_reading_of_an_older_layout_is_not_shown_as_that_of_a_region(kopub: Kopub, platform: Platform):
    layouts = platform.store.read("layout_regions", "shard_00")
    regions = [[{**region, "bbox_2d": [5, 5, 9, 9]} for region in page] for page in layouts["regions"].to_pylist()]
    at = layouts.schema.get_field_index("regions")
    moved = layouts.set_column(at, layouts.schema.field(at), pa.array(regions, layouts.schema.field(at).type))
    platform.store.write("layout_regions", "shard_00", moved, platform.store.metadata("layout_regions", "shard_00"))
    (region,) = told(kopub, "a_1")["regions"]
    assert (region["label"], region["content"]) == ("text", None)


def test_what_a_vector_was_made_from_and_is_not_kept_is_named(kopub: Kopub, platform: Platform):
    platform.engines["store"] = ShardStore(url=platform.store.url, keep_versions=0)
    read_by(platform, "r2", prompt="look")
    assert platform.run("ocr_results").success
    chain = told(kopub, "corpus_text_embeddings/a_1")
    assert "ocr_results" in chain["missing"]
    assert [each["asset"] for each in chain["steps"]] == ["raw_pages", "parsed_texts", "corpus_text_embeddings"]


def test_what_a_page_says_steers_no_terminal(kopub: Kopub, platform: Platform):
    read_by(platform, "r2", prompt="\x1b[2J[red]\u202e<script>")
    assert platform.run("ocr_results,parsed_texts").success
    shown = kopub("lineage", "a_1").stdout
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert r"\x1b[2J[red]\u202e<script> a_1" in shown


def test_the_rows_of_a_release_carry_the_same(platform: Platform):
    assets = ("raw_pages", "ocr_results", "query_embeddings")
    store = platform.store
    tables, made, runs = ({name: read(name, "shard_00") for name in assets} for read in (
        store.read, store.metadata, lambda asset, shard: ledger.read(store, asset, shard)
    ))  # fmt: skip
    lineage = lineage_rows("shard_00", tables, made, runs)
    assert lineage.schema.equals(LINEAGE)
    rows = lineage.to_pylist()
    assert [(row["asset"], row["page_id"], row["query_id"]) for row in rows] == [
        ("raw_pages", "a_1", None),
        ("raw_pages", "a_2", None),
        ("ocr_results", "a_1", None),
        ("ocr_results", "a_2", None),
        ("query_embeddings", None, "q1"),
    ]
    reading = rows[3]
    assert (reading["model"], reading["revision"], reading["state"]) == ("someone/reader", "r1", "ok")
    assert json.loads(reading["parameters"])["prompt"] == "read"
    assert all(row["run_id"] and row["made_at"] for row in rows)
    assert rows[0]["engine"] is None


def test_tables_of_before_anything_was_recorded_have_rows_too():
    table = pa.table({"page_id": ["a"], "state": ["ok"], "reason": [None], "fingerprint": ["f"]})
    (row,) = lineage_rows("shard_00", {"raw_pages": table}, {}, {}).to_pylist()
    assert (row["page_id"], row["fingerprint"], row["recipe"], row["run_id"]) == ("a", "f", None, None)
