"""`kopub verify` finds nothing in a sound release, and reports each problem in a line."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import datasets
import datasets.config
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from huggingface_hub import DatasetCard, constants

from kopub.files import file_sha256
from kopub.release import dataset
from kopub.release.dataset import write_parquet
from kopub.release.files import SUMMARY
from kopub.release.local import LocalRelease
from kopub.release.row_counts import count, count_apart
from kopub.release.verify import notes_on, verify
from tests.doubles.hubs.writable_hub import WritableHub
from tests.support.processes import commands
from tests.support.released import ReleasedCorpus, about, page_tables, release_of
from tests.support.waiting import SOON


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release") / "r"
    release_of(folder, page_tables(0), page_tables(1))
    return folder


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared, tmp_path / "r")


def rewrite(folder: Path, config: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Apply `change` to a file, and describe the release anew."""
    path = folder / "data" / config / "shard_01.parquet"
    table = pq.read_table(path)
    pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if f"{config}/shard_01" not in line))
    LocalRelease(folder=str(folder)).finish(about("shard_00", "shard_01"))


def write_card(folder: Path, text: str) -> None:
    """Replace the card and its hash."""
    (folder / "README.md").write_text(text, "utf-8")
    sums = folder / "SHA256SUMS"
    others = [line for line in sums.read_text().splitlines(True) if not line.endswith("  README.md\n")]
    sums.write_text("".join(others) + f"{file_sha256(folder / 'README.md')}  README.md\n")


def test_a_sound_release_has_no_problems(folder: Path):
    assert list(verify(folder)) == []


@pytest.mark.parametrize("place", ["README.md", "data/pages/shard_01.parquet", "data/regions", "data"])
def test_no_link_out_of_the_release_is_followed(folder: Path, tmp_path: Path, place: str):
    (folder / place).rename(tmp_path / "outside")
    (folder / place).symlink_to(tmp_path / "outside")
    assert list(verify(folder)) == [f"{place} is a link that leads out of the release: put the file there"]


def test_a_link_to_a_folder_is_no_file_of_a_release(folder: Path, tmp_path: Path):
    (folder / "more").symlink_to(tmp_path)
    assert list(verify(folder)) == ["more is no file of a release: move it out"]


def test_the_links_of_the_hub_s_cache_to_its_own_files_are_followed(folder: Path, tmp_path: Path):
    snapshot, blobs = tmp_path / "datasets--a--b" / "snapshots" / ("0" * 40), tmp_path / "datasets--a--b" / "blobs"
    snapshot.parent.mkdir(parents=True)
    blobs.mkdir()
    folder.rename(snapshot)
    (snapshot / "README.md").rename(blobs / "1")
    (snapshot / "README.md").symlink_to("../../blobs/1")
    assert list(verify(snapshot, load=False)) == []


def test_a_release_may_be_the_folder_one_is_in(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(folder)
    assert list(verify(Path("."), load=False)) == []
    monkeypatch.chdir(folder.parent)
    assert "is no release" in next(iter(verify(Path("."))))


def test_a_path_that_looks_like_a_pattern_is_one_folder(tmp_path: Path):
    starred, other = tmp_path / "data*" / "r [1]", tmp_path / "data2" / "r [1]"
    for home in (starred, other):
        release_of(home, page_tables(0))
    assert list(verify(starred)) == []


def test_a_release_without_queries_or_pictures_is_sound(tmp_path: Path):
    made = page_tables(0)
    release_of(tmp_path / "r", type(made)(**{**made.tables, "query_embeddings": made.query_embeddings.slice(0, 0)}))
    assert list(verify(tmp_path / "r")) == []


def test_a_release_that_is_being_made_may_ask_about_pages_to_come(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    made = page_tables(0)
    queries = made.query_embeddings.set_column(
        5, made.query_embeddings.schema.field(5), pa.array([["doc0_1", "doc9_9"]])
    )
    release.publish("shard_00", type(made)(**{**made.tables, "query_embeddings": queries}))
    release.finish(about("shard_00", "shard_09"))
    assert list(verify(tmp_path / "r", ["shard_00"])) == []
    assert list(verify(tmp_path / "r")) == [
        "1 of 2 shards of the corpus are not in the release, shard_09 first: run `kopub run --asset hf_release`"
    ]
    release.finish(about("shard_00"))
    assert list(verify(tmp_path / "r")) == ["shard_00: qrels has pages that are not there: 1 (doc9_9)"]


def _renamed(column: str) -> Callable[[pa.Table], pa.Table]:
    """Return a change of a column's first id to an unknown one with terminal escapes."""

    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(column)
        return table.set_column(at, table.schema.field(at), pa.array(["\x1b[31mno\n", *table[column].to_pylist()[1:]]))

    return change


def _without_pictures(table: pa.Table) -> pa.Table:
    at = table.schema.get_field_index("image")
    return table.set_column(at, table.schema.field(at), pa.nulls(table.num_rows, table.schema.field(at).type))


JOINS = {
    "text_embeddings": (
        _renamed("page_id"),
        "text_embeddings has vectors of pages that are not there or were not made: 1 (\\x1b[31mno)",
    ),
    "image_embeddings": (lambda t: t.slice(1), "image_embeddings lacks the vectors of pages: 1 (doc1_1)"),
    "pages": (lambda t: pa.concat_tables([t, t.slice(0, 1)]), "pages has ids twice: 1 (doc1_1)"),
    "regions": (lambda t: t.slice(1), "shard_01: regions has not as many as pages says: 1 (doc1_1)"),
    "crops": (
        _renamed("page_id"),
        "crops has pictures of regions that are not there: 1 (crops/doc1_1_0.jpg)",
    ),
    "qrels": (_renamed("query-id"), "shard_01: qrels has queries that are not there: 1 (\\x1b[31mno)"),
    "lineage": (lambda t: t.filter(pc.field("page_id") != "doc1_2"), "lineage lacks pages of raw_pages: 1 (doc1_2)"),
}


@pytest.mark.parametrize("config", JOINS)
def test_what_does_not_join_is_a_line(folder: Path, config: str):
    change, expected = JOINS[config]
    rewrite(folder, config, change)
    found = list(verify(folder, load=False))
    assert any(expected in line for line in found), found
    assert all(line.isprintable() for line in found)


def test_a_crop_without_its_picture_is_a_line(folder: Path):
    rewrite(folder, "crops", _without_pictures)
    assert "shard_01: crops has rows without a picture: 2 (crops/doc1_1_0.jpg, crops/doc1_2_0.jpg)" in list(
        verify(folder, load=False)
    )


def test_a_file_that_was_changed_removed_or_added_is_a_line(folder: Path):
    pages = folder / "data/pages/shard_00.parquet"
    content = bytearray(pages.read_bytes())
    content[100] ^= 1
    pages.write_bytes(content)
    (folder / "data/qrels/shard_01.parquet").unlink()
    (folder / "data/crops/shard_07.parquet").write_bytes((folder / "data/crops/shard_00.parquet").read_bytes())
    found = list(verify(folder))
    assert "data/pages/shard_00.parquet has another SHA-256 than SHA256SUMS says" in found
    assert "data/qrels/shard_01.parquet is missing" in found
    assert "data/crops/shard_07.parquet is not listed in manifest.json" in found


def test_a_file_of_other_columns_is_a_line(folder: Path):
    rewrite(folder, "qrels", lambda table: table.drop_columns(["score"]))
    assert "data/qrels/shard_01.parquet does not have the columns that README.md says" in list(verify(folder))


@pytest.mark.parametrize("said", [b"no JSON", b"[" * 100_000, b"[]", b"\xff"], ids=["text", "deep", "list", "no text"])
def test_a_file_whose_summary_cannot_be_read_is_a_line(folder: Path, said: bytes):
    table = pq.read_table(path := folder / "data/pages/shard_01.parquet")
    pq.write_table(table.replace_schema_metadata({**(table.schema.metadata or {}), SUMMARY: said}), path)
    (line,) = verify(folder)
    assert "data/pages/shard_01.parquet is no file of a release: delete it" in line


def test_columns_that_joins_need_are_missed_in_a_line(folder: Path):
    rewrite(folder, "qrels", lambda table: table.drop_columns(["corpus-id"]))
    assert list(verify(folder)) == ["data/qrels/shard_01.parquet does not have the columns that README.md says"]


@pytest.mark.parametrize("card", ["---\nconfigs: [\n---\n", "---\n- 1\n---\n"])
def test_a_card_that_cannot_be_read_is_a_line(folder: Path, card: str):
    write_card(folder, card)
    (line,) = verify(folder)
    assert line.startswith("README.md is not that of a release (")


def test_a_config_that_datasets_cannot_open_is_a_line(folder: Path):
    card = (folder / "README.md").read_text("utf-8")
    write_card(folder, card.replace("data/regions/*.parquet", "data/elsewhere/*.parquet"))
    assert [line.partition(":")[0] for line in verify(folder)] == ["datasets cannot open regions"]


def test_a_release_that_datasets_cannot_open_is_opened_once(folder: Path, monkeypatch: pytest.MonkeyPatch):
    opened: list[str] = []

    def refuse(path: str) -> None:
        opened.append(path)
        raise ValueError("no data")

    monkeypatch.setattr("kopub.release.row_counts.dataset_module_factory", refuse)
    assert count(folder, {"pages": [], "regions": []}) == dict.fromkeys(["pages", "regions"], "ValueError: no data")
    assert len(opened) == 1


def test_the_card_is_parsed_once_for_all_configs(folder: Path, monkeypatch: pytest.MonkeyPatch):
    parsed: list[str] = []
    parse = DatasetCard.load
    monkeypatch.setattr(DatasetCard, "load", lambda path: parsed.append(path) or parse(path))
    assert count(folder, {"pages": ["shard_00"], "regions": ["shard_00"], "queries": []}).keys() >= {"pages", "regions"}
    assert len(parsed) == 1


def test_rows_that_datasets_does_not_give_are_a_line(folder: Path):
    card = (folder / "README.md").read_text("utf-8")
    write_card(folder, card.replace("data/crops/*.parquet", "data/crops/shard_00.parquet"))
    assert list(verify(folder)) == ["datasets gives 2 rows of crops, its files hold 4"]
    assert list(verify(folder, ["shard_01"])) == ["datasets gives 0 rows of crops, its files hold 2"]
    assert list(verify(folder, ["shard_00"])) == []


def test_a_release_of_two_vector_widths_is_not_sound(folder: Path):
    release = LocalRelease(folder=str(folder))
    release.publish("shard_01", page_tables(1, dim=16))
    release.finish(about("shard_00", "shard_01"))
    assert [line.partition(" has other")[0] for line in verify(folder)] == [
        "image_embeddings loads 2 of 4 rows: shard_01",
        "text_embeddings loads 2 of 4 rows: shard_01",
        "queries loads 1 of 2 rows: shard_01",
    ]
    # A shard's own run is sound, whatever the other shards are.
    assert list(verify(folder, ["shard_01"])) == []


@pytest.mark.parametrize(("dies", "expected"), [("after", 6), ("before", "the process ended with -6: no message")])
def test_a_process_is_judged_by_its_answer_and_not_by_its_death(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str, expected: object
):
    python = tmp_path / "python"
    answer = f'"{sys.executable}" "$@"' if dies == "after" else "true"
    python.write_text(f"#!/bin/sh\n{answer}\nkill -ABRT $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert count_apart(folder, {"pages": ["shard_00", "shard_01"]}) == {"pages": expected}


def test_rows_are_counted_without_torch(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "torch.py").write_text("raise AssertionError('torch is imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(datasets.config, "TORCH_AVAILABLE", True)
    assert count(folder, {"pages": ["shard_00", "shard_01"]}) == {"pages": 6}
    assert datasets.config.TORCH_AVAILABLE


def test_a_release_that_is_written_meanwhile_is_looked_at_again(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """A run writes a shard during verification, so files do not match for a while."""
    half, verified = Event(), Event()

    def slow(table: pa.Table, path: Path, images: object) -> None:
        write_parquet(table, path)
        if "regions" in path.parts:
            half.set()
            # Gives the verification time to see the mismatch.
            verified.wait(1)

    monkeypatch.setattr(dataset, "write_parquet", slow)
    run = Thread(target=LocalRelease(folder=str(folder)).publish, args=("shard_01", page_tables(1, pages=5)))
    run.start()
    assert half.wait(SOON)
    assert list(verify(folder, load=False)) == []
    verified.set()
    run.join()
    assert list(verify(folder, load=False)) == []


def test_a_shard_that_a_run_was_killed_in_is_still_a_problem(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def killed(table: pa.Table, path: Path, images: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dataset, "write_parquet", killed)
    with pytest.raises(KeyboardInterrupt):
        LocalRelease(folder=str(folder)).publish("shard_01", page_tables(1))
    assert list(verify(folder, load=False)) == ["SHA256SUMS and manifest.json do not list the same files and hashes"]


def test_lists_that_do_not_agree_are_a_line(folder: Path):
    path = folder / "manifest.json"
    listed = json.loads(path.read_text())
    listed["files"]["data/pages/shard_00.parquet"]["rows"] = 4
    path.write_text(json.dumps(listed))
    assert "data/pages/shard_00.parquet has 3 rows" in "\n".join(verify(folder))
    path.write_text("{}")
    assert list(verify(folder)) == ["manifest.json is not that of a release (KeyError)"]


def test_only_the_files_of_the_shards_that_are_asked_for_are_read(folder: Path):
    pages = folder / "data/regions/shard_00.parquet"
    content = bytearray(pages.read_bytes())
    content[100] ^= 1
    pages.write_bytes(content)
    assert list(verify(folder, ["shard_01"], load=False)) == []
    assert list(verify(folder, ["shard_00"], load=False))


def test_another_run_that_writes_a_shard_does_not_make_the_others_unsound(folder: Path):
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "shard_00" not in line))
    (folder / "data/crops/shard_02.parquet").write_bytes((folder / "data/crops/shard_00.parquet").read_bytes())
    assert list(verify(folder, ["shard_01"], load=False)) == []
    found = list(verify(folder, load=False))
    assert "SHA256SUMS and manifest.json do not list the same files and hashes" in found
    assert "data/crops/shard_02.parquet is not listed in manifest.json" in found


@pytest.mark.parametrize("name", ["README.md", "ATTRIBUTION.md", "manifest.json"])
def test_a_text_that_says_something_else_is_a_line(folder: Path, name: str):
    text = (folder / name).read_text("utf-8")
    (folder / name).write_text(f"{text}\n", "utf-8")
    assert list(verify(folder)) == [f"{name} has another SHA-256 than SHA256SUMS says"]
    assert list(verify(folder, ["shard_00"]))


def test_a_text_whose_hash_was_taken_out_is_a_line(folder: Path):
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "README.md" not in line))
    assert list(verify(folder)) == ["SHA256SUMS has no hash of README.md"]


def test_the_system_s_own_program_proves_a_release_too(folder: Path):
    checked = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True, check=True)
    assert {"README.md: OK", "ATTRIBUTION.md: OK", "manifest.json: OK"} <= set(checked.stdout.splitlines())


def test_a_release_of_an_older_version_is_sound_with_a_word_about_its_card(folder: Path):
    assert notes_on(folder) == []
    sums = folder / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "  data/" in line))
    assert list(verify(folder)) == []
    assert notes_on(folder) == [
        "SHA256SUMS is of an older version and has no hash of README.md, ATTRIBUTION.md, manifest.json: "
        "release again to add them"
    ]


@pytest.mark.parametrize("name", ["evil.py", "extra.parquet", "data/pages/more.csv", "data/own/shard_00.parquet"])
def test_a_file_that_is_not_of_the_release_is_a_line(folder: Path, name: str):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("import os")
    assert list(verify(folder)) == [f"{name} is no file of a release: move it out"]


def test_what_git_and_the_hub_keep_beside_a_release_is_none_of_it(folder: Path):
    for name in (".gitattributes", ".git/config", ".cache/huggingface/download/README.md.metadata"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    assert list(verify(folder)) == []


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ("[" * 100_000, "manifest.json is not that of a release (RecursionError)"),
        ('{"shards": [], "files": {}}', "its list of shards is empty, or names what is none"),
        ('{"shards": ["../x"], "files": {}}', "its list of shards is empty, or names what is none"),
        (
            '{"shards": ["shard_00"], "files": {"../../../etc/passwd": {"sha256": "x", "rows": 1, "bytes": 1}}}',
            "it lists ../../../etc/passwd, which is no data file",
        ),
        (
            '{"shards": ["shard_00"], "files": {"data/pages/../x.parquet": {"sha256": "x", "rows": 1, "bytes": 1}}}',
            "it lists data/pages/../x.parquet, which is no data file",
        ),
    ],
    ids=["nested", "no shards", "a path as a shard", "a path outside", "a path through a folder"],
)
def test_a_hostile_manifest_is_one_line(folder: Path, manifest: str, expected: str):
    (folder / "manifest.json").write_text(manifest)
    (line,) = verify(folder)
    assert line.startswith("manifest.json is not that of a release")
    assert line.endswith(expected)


def kopub(home: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return commands.kopub({"KOPUB_HOME": str(home)}, *command)


@pytest.mark.slow
def test_the_command_says_what_is_wrong_and_fails(folder: Path, tmp_path: Path, hub: WritableHub):
    sound = kopub(tmp_path, "verify", str(folder))
    assert (sound.returncode, sound.stdout) == (0, f"{folder} is sound\n")
    (folder / "data/qrels/shard_01.parquet").unlink()
    broken = kopub(tmp_path, "verify", str(folder))
    assert (broken.returncode, broken.stdout) == (1, "data/qrels/shard_01.parquet is missing\n")
    nothing = kopub(tmp_path, "verify", str(tmp_path / "nothing"))
    assert nothing.returncode == 1
    assert nothing.stderr.startswith(f"Error: {tmp_path}/nothing is neither a folder, a URL nor a repository")


@pytest.mark.slow
def test_a_repository_is_verified_as_others_get_it(tmp_path: Path, hub: WritableHub, monkeypatch: pytest.MonkeyPatch):
    corpus = ReleasedCorpus(tmp_path)
    corpus.put(page_tables(0), page_tables(1))
    corpus.push("someone/pages")
    tag = next(iter(hub.tags))
    sound = kopub(tmp_path, "verify", "someone/pages", "--revision", tag)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    released = hub.head.files["data/pages/shard_00.parquet"]
    flipped = released.content[:100] + bytes([released.content[100] ^ 1]) + released.content[101:]
    hub.head.files["data/pages/shard_00.parquet"] = replace(released, content=flipped)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "of another person"))
    unsound = kopub(tmp_path, "verify", "someone/pages", "--revision", tag)
    assert unsound.returncode == 1
    assert "data/pages/shard_00.parquet has another SHA-256" in unsound.stdout
    nowhere = kopub(tmp_path, "verify", "someone/pages", "--revision", "nowhere")
    says = "Error: there is no folder {0} here, and as a repository: {0}: "
    assert nowhere.stderr == says.format("someone/pages") + "it has no such branch, tag or commit\n"
    missing = kopub(tmp_path, "verify", "no/such")
    assert missing.stderr.startswith(says.format("no/such") + "no such dataset")
    assert len(missing.stderr.splitlines()) == 1
