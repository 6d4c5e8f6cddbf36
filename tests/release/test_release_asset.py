"""`hf_release` in a run: checked, with lineage, and pushed only if the run asks."""

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kopub.cli.commands.status import status_values
from kopub.pages.corpus import Corpus
from kopub.release.gates import Gates
from kopub.release.hub import HubTarget
from kopub.release.local import LocalRelease
from kopub_assets.running.engines import range_tags
from resources.profile import dagster_resources
from tests.doubles.hubs.writable_hub import READER, REPO, WRITER, WritableHub
from tests.support.harness import QUIET, STANDARD, Platform, Prepared, failure
from tests.support.released import contents, load
from tests.support.sources.corpora import page_image, pages, query

PUSH = {"ops": {"hf_release": {"config": {"push": True}}}}


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    return _indexed(tmp_path / "home")


def _indexed(home: Path) -> Platform:
    return Platform.of(home, [pages("a_1", "a_2"), pages("b_1", "b_2")], [query("q1", "무엇인가?", "a_1")])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    platform = _indexed(tmp_path_factory.mktemp("released") / "home")
    assert run(platform).success
    return Prepared(platform)


@pytest.fixture
def built(prepared: Prepared) -> Platform:
    """Return a platform with everything made and released to a folder, but not pushed."""
    return prepared.renewed()


def run(
    platform: Platform,
    config: Any = None,
    tags: dict[str, str] | None = None,
    selection: list[str] | None = None,
    **resources: Any,
) -> dg.ExecuteInProcessResult:
    """Run all assets, or a selection, over both shards, with a repository configured."""
    release = LocalRelease(folder=str(platform.home / "release"), license="cc-by-4.0")
    # The test engines read one line per page, which the gate would rightly doubt.
    chosen = {"hub": HubTarget(repo=REPO), "release": release, "gates": Gates(max_doubtful_share=1), **resources}
    return dg.materialize(
        platform.assets,
        selection=selection,
        tags=range_tags("shard_00", "shard_01") | (tags or {}),
        resources=dagster_resources(platform.resources() | chosen),
        run_config={**QUIET, **(config or {})},
        instance=platform.instance,
        raise_on_error=False,
    )


def released(platform: Platform) -> dict[str, Any]:
    """Return the metadata of the newest materialization of a shard."""
    event = platform.instance.fetch_materializations(dg.AssetKey("hf_release"), limit=1).records[0]
    assert event.asset_materialization
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.mark.slow
def test_selecting_everything_pushes_nothing(built: Platform, hub: WritableHub):
    assert run(built).success
    assert not hub.asked
    assert released(built)["keeps_it_off_the_hub"] == "nothing"


@pytest.mark.parametrize(
    "asks",
    [
        pytest.param({"config": PUSH}, id="field"),
        pytest.param({"tags": {"kopub/publish": "true"}}, id="run tag", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_asks_for_it_pushes_in_one_commit(built: Platform, hub: WritableHub, asks: dict[str, Any]):
    assert run(built, **asks).success
    assert len(hub.commits) == 2
    metadata = released(built)
    assert metadata["commit"] == f"{hub.url}/datasets/{REPO}/commit/{hub.head.oid}"
    assert hub.tags == {metadata["tag"]: hub.head.oid}
    assert metadata["pushed_files"] == len(hub.head.sent)
    assert metadata["pushed_bytes"] == sum(len(hub.head.files[path].content) for path in hub.head.sent)


def test_a_folder_that_is_refused_is_refused_before_the_first_page_is_read(platform: Platform):
    (platform.home / "release").mkdir()
    (platform.home / "release" / "thesis.txt").write_text("three years")
    result = run(platform)
    assert not result.success
    lines = failure(result).splitlines()
    assert lines
    assert all("release holds thesis.txt, which no release wrote" in line for line in lines)
    assert not platform.store.has("raw_pages", "shard_00")
    assert run(platform, selection=["raw_pages"]).success


def _missing(folder: Path) -> str:
    (folder / "data" / "pages" / "shard_00.parquet").unlink()
    (folder / "data" / "regions" / "shard_01.parquet").unlink()
    return "data/pages/shard_00.parquet and 1 other file: missing; kopub run --asset hf_release"


def _without_card(folder: Path) -> str:
    (folder / "README.md").unlink()
    return "README.md: missing; kopub run --asset hf_release"


def _longer(folder: Path) -> str:
    with (folder / "data" / "pages" / "shard_01.parquet").open("ab") as file:
        file.write(b"x")
    return "data/pages/shard_01.parquet: changed since the release was made; kopub verify"


def _edited_later(folder: Path) -> str:
    later = (folder / "SHA256SUMS").stat().st_mtime + 60
    os.utime(folder / "README.md", (later, later))
    return "README.md: changed since the release was made; kopub verify"


def _gone(folder: Path) -> str:
    shutil.rmtree(folder)
    return "manifest.json is missing: kopub run --asset hf_release makes the release again"


@pytest.mark.parametrize("change", [_missing, _without_card, _longer, _edited_later, _gone])
def test_status_says_in_a_line_that_the_folder_is_not_what_was_released(built: Platform, change: Callable[[Path], str]):
    assert status_values(built.settings)["release_differs"] == []
    says = change(built.home / "release")
    (line,) = status_values(built.settings)["release_differs"]
    assert says in line
    if "kopub run" in says:
        assert run(built, selection=["hf_release"]).success
        assert status_values(built.settings)["release_differs"] == []


@pytest.mark.slow
def test_status_says_that_a_release_is_older_than_the_tables(built: Platform, tmp_path: Path):
    before = shutil.copytree(built.home / "release", tmp_path / "before")
    built.reindex([pages("a_1", "a_2"), [("b_1", page_image(9)), ("b_2", page_image(1))]], [query("q1", "?", "a_1")])
    assert run(built).success
    assert status_values(built.settings)["release_differs"] == []
    shutil.rmtree(built.home / "release")
    shutil.copytree(before, built.home / "release")
    (line,) = status_values(built.settings)["release_differs"]
    assert ": older than its table; kopub run --asset hf_release" in line


def test_a_closed_gate_fails_the_run_and_leaves_the_folder(platform: Platform, hub: WritableHub):
    broken = [("b_1", b"no image"), *pages("b_2", "b_3"), ("b_4", b"no"), ("b_5", b"no")]
    platform.reindex([pages("a_1", "a_2"), broken])
    result = run(platform, PUSH)
    assert failure(result) == (
        "in the end: not published: 3 of 7 pages failed or are quarantined, more than gates.max_lost_share (1.0%); "
        "give gates.override a reason to publish it all the same"
    )
    assert not hub.asked
    assert load(platform.home / "release", "pages").num_rows == 7
    assert run(platform, PUSH, gates=Gates(max_doubtful_share=1, override="they were like that")).success
    assert "because: they were like that" in hub.head.files["README.md"].content.decode()


def test_a_run_with_a_shard_that_failed_pushes_nothing(built: Platform, hub: WritableHub):
    (built.home / "store" / "parsed_texts" / "shard_01.parquet").unlink()
    result = run(built, PUSH, selection=["hf_release"])
    assert failure(result) == "shard_01: parsed_texts of shard_01 has not been made yet: `kopub run` makes it"
    assert not hub.asked


@pytest.mark.slow
def test_answers_that_the_corpus_lacks_do_not_stop_a_release(built: Platform, hub: WritableHub):
    built.reindex([pages("a_1", "a_2"), pages("b_1", "b_2")], [query("q1", "무엇인가?", "nowhere_1", "b_1")])
    assert run(built, PUSH).success
    folder = built.home / "release"
    assert load(folder, "qrels")["corpus-id"][:] == ["b_1"]
    assert load(folder, "queries")["ground_truth"][:] == [["nowhere_1", "b_1"]]


def test_a_shard_that_lacks_pages_of_the_corpus_is_not_released(built: Platform, hub: WritableHub):
    before = contents(built.home / "release")
    built.reindex([pages("a_1", "a_2"), pages("b_1", "b_2", "b_3")])
    said = failure(run(built, selection=["hf_release"]))
    assert said == "shard_01: raw_pages has 2 pages, the corpus has 3: materialize it again"
    data = {path: content for path, content in before.items() if path.startswith("data/")}
    assert data.items() <= contents(built.home / "release").items()


@pytest.mark.slow
def test_vectors_that_were_not_measured_are_not_pushed(built: Platform, hub: WritableHub):
    assert "## How well pages are found" in (built.home / "release" / "README.md").read_text("utf-8")
    built.reindex([pages("a_1", "a_2"), pages("b_1", "b_2")], [query("q1", "어디인가?", "a_1")])
    unmeasured = list(STANDARD)
    assert "retrieval was not measured on what is released of 1 shards, shard_00 first" in failure(
        run(built, PUSH, selection=unmeasured)
    )
    assert not hub.asked
    assert "## How well pages are found" not in (built.home / "release" / "README.md").read_text("utf-8")
    assert run(built, PUSH).success


def test_what_the_hub_refuses_fails_the_run_in_one_line(
    built: Platform, hub: WritableHub, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_TOKEN", READER)
    said = failure(run(built, PUSH))
    assert said.startswith(f"in the end: {REPO}: the token may not write to it (")
    assert len(said.splitlines()) == 1
    assert load(built.home / "release", "pages").num_rows == 4


@pytest.mark.slow
def test_nothing_that_a_run_writes_holds_the_token(
    platform: Platform, hub: WritableHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    (tmp_path / "dagster").mkdir()
    with dg.DagsterInstance.local_temp(str(tmp_path / "dagster")) as instance:
        platform.recorded = instance
        assert run(platform, PUSH).success
        monkeypatch.setenv("HF_TOKEN", READER)
        platform.reindex([pages("a_1", "a_2"), pages("b_2")])
        assert not run(platform, PUSH).success
        tags = [stored.tags for stored in instance.get_runs()]
    for database in (tmp_path / "dagster").rglob("*.db"):
        sqlite3.connect(database).execute("pragma wal_checkpoint")
    written = {**contents(tmp_path), "terminal": "".join(capfd.readouterr()).encode(), "tags": repr(tags).encode()}
    assert len(written) > 20
    assert not [path for path, content in written.items() if WRITER.encode() in content or READER.encode() in content]


@pytest.mark.slow
def test_lineage_says_which_run_made_a_row_and_moves_only_with_it(built: Platform):
    (first,) = built.instance.get_runs()
    folder = built.home / "release"
    rows = load(folder, "lineage").to_list()
    assert {row["asset"] for row in rows} == {
        asset.key.path[-1] for asset in built.assets if asset.key.path[-1] in _MADE
    }
    assert {row["run_id"] for row in rows} == {first.run_id}
    assert {row["engine"] for row in rows if row["asset"] == "ocr_results"} == {"slow_reader"}
    before = contents(folder)
    assert run(built).success
    assert contents(folder) == before
    changed = [("b_1", page_image(9)), ("b_2", page_image(1))]
    built.reindex([pages("a_1", "a_2"), changed], [query("q1", "무엇인가?", "a_1")])
    third = run(built)
    after = contents(folder)
    moved = {path for path in after if path.startswith("data/") and after[path] != before[path]}
    assert {path.rpartition("/")[2] for path in moved} == {"shard_01.parquet"}
    assert {"data/pages/shard_01.parquet", "data/lineage/shard_01.parquet"} <= moved
    of_pages = [row for row in load(folder, "lineage").to_list() if row["asset"] == "ocr_results"]
    assert {row["page_id"]: row["run_id"] for row in of_pages} == {
        "a_1": first.run_id,
        "a_2": first.run_id,
        "b_1": third.run_id,
        "b_2": first.run_id,
    }


_MADE = {
    "raw_pages",
    "layout_regions",
    "ocr_results",
    "parsed_texts",
    "corpus_image_embeddings",
    "corpus_text_embeddings",
    "query_embeddings",
}


def test_page_images_are_those_of_the_source_byte_for_byte(platform: Platform, hub: WritableHub):
    platform.reindex([[*pages("a_1", "a_2"), ("a_3", b"no image")], pages("b_1")])
    release = LocalRelease(folder=str(platform.home / "release"), license="cc-by-4.0", page_images=True)
    assert run(platform, release=release).success
    folder = platform.home / "release"
    table = pq.read_table(folder / "data/pages/shard_00.parquet")
    sources = {row.page_id: row.data for row in Corpus(home=str(platform.home)).rows("shard_00")}
    images = dict(zip(table["page_id"].to_pylist(), table["image"].to_pylist(), strict=True))
    assert {page: image and image["bytes"] for page, image in images.items()} == {**sources, "a_3": None}
    rows = load(folder, "pages")
    assert rows.features["image"] == datasets.Image()
    assert rows[0]["image"].size == (160, 220)
    assert "Page images are those of the source" in (folder / "README.md").read_text("utf-8")


def test_an_image_that_is_not_the_one_that_was_read_is_not_released(built: Platform, hub: WritableHub):
    release = LocalRelease(folder=str(built.home / "release"), page_images=True)
    assert run(built, release=release).success
    stale = built.store.read("raw_pages", "shard_00")
    at = stale.schema.get_field_index("sha256")
    wrong = stale.set_column(at, stale.schema.field(at), pa.array(["0" * 64] * 2))
    built.store.write("raw_pages", "shard_00", wrong, built.store.metadata("raw_pages", "shard_00"))
    result = dg.materialize(
        built.assets,
        selection=["hf_release"],
        partition_key="shard_00",
        resources=dagster_resources(built.resources() | {"release": release}),
        instance=built.instance,
        raise_on_error=False,
    )
    assert "does not hold the bytes that raw_pages saw of 'a_1': materialize raw_pages of shard_00" in failure(result)
