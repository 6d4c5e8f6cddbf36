"""A release neither overwrites nor deletes a user's files; it refuses in one line."""

import os
from collections.abc import Callable
from pathlib import Path

import fsspec
import pytest

from kopub.config.settings import read_settings
from kopub.doctor.environment import examine
from kopub.errors import ConfigError, StoreError
from kopub.pages.corpus import Corpus
from kopub.release.local import LocalRelease
from kopub.release.remote import PublishedRelease, publish_to
from kopub.release.versions import begin, replace_release, require_place, shutil
from tests.doubles.full_disk import no_room
from tests.support.processes import commands
from tests.support.released import about, contents, page_tables, release_of


def replace(release: LocalRelease, *shards: str, check: Callable[[Path], None] = lambda folder: None) -> None:
    """Replace the release by one of made-up shards, as a run does."""
    for at, shard in enumerate(shards):
        release.staged.publish(shard, page_tables(at))
    with release.staged.settled() as staged:
        files = {
            shard: {path: sha256 for path, sha256 in staged.items() if path.endswith(f"/{shard}.parquet")}
            for shard in shards
        }
    replace_release(release, about(*shards), files, check)


def placed(folder: Path, tmp_path: Path) -> None:
    """Require that a release may be written to `folder`, given a home without a corpus."""
    home = tmp_path / "home"
    require_place(LocalRelease(folder=str(folder)), Corpus(home=str(home)), str(home / "store"))


MINE = {
    "README.md": b"my own words",
    "draft.tmp": b"a draft",
    "SHA256SUMS": b"none",
    "data/pages/shard_77.parquet": b"my own table",
    "thesis.txt": b"three years",
}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("name", MINE)
def test_a_folder_with_anything_of_a_person_s_is_refused_and_stays_as_it_is(tmp_path: Path, name: str):
    folder = tmp_path / "papers"
    write(folder, {name: MINE[name]})
    for refused in (lambda: placed(folder, tmp_path), lambda: replace(LocalRelease(folder=str(folder)), "shard_00")):
        with pytest.raises((ConfigError, StoreError), match=f"papers holds {name}, which no release wrote: name a new"):
            refused()
    assert contents(folder) == {name: MINE[name]}


@pytest.mark.parametrize("end", [".new", ".old", ".staging"])
def test_folders_beside_it_that_have_the_names_of_its_own_are_refused(tmp_path: Path, end: str):
    beside = tmp_path / f"papers{end}"
    write(beside, MINE)
    with pytest.raises(ConfigError, match=f"papers{end} holds "):
        placed(tmp_path / "papers", tmp_path)
    with pytest.raises(StoreError, match=f"papers{end} holds "):
        replace_release(LocalRelease(folder=str(tmp_path / "papers")), about("shard_00"), {}, lambda folder: None)
    assert contents(beside) == MINE


@pytest.mark.parametrize("bytes_written", [0, 7])
def test_a_release_that_a_full_disk_cut_while_it_began_is_made_by_the_next_run(tmp_path: Path, bytes_written: int):
    release = LocalRelease(folder=str(tmp_path / "r"))
    begin(tmp_path / "r.new")
    manifest = tmp_path / "r.new" / "manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:bytes_written])
    placed(release.root, tmp_path)
    replace(release, "shard_00")
    assert not (tmp_path / "r.new").exists()
    write(tmp_path / "r.new", {"manifest.json": b"my own"})
    with pytest.raises(ConfigError, match=r"r\.new holds manifest\.json, which no release wrote"):
        placed(release.root, tmp_path)


def test_no_manifest_is_ever_half_written_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def half(path: Path, text: str, *_: str) -> None:
        path.write_bytes(text[:7].encode())
        no_room()

    monkeypatch.setattr(Path, "write_text", half)
    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises((OSError, StoreError)):
        begin(tmp_path / "r.new")
    assert contents(tmp_path / "r.new") == {}


def test_a_plan_is_not_stopped_by_what_lies_where_a_release_would_be_written(tmp_path: Path):
    home, release = tmp_path / "h", tmp_path / "papers"
    write(release, MINE)
    of = {"KOPUB_HOME": str(home), "KOPUB_RELEASE__FOLDER": str(release)}
    assert commands.kopub(of, "index", "samples/corpus").returncode == 0
    ended = {command: commands.kopub(of, command) for command in ("plan", "run")}
    assert (ended["plan"].returncode, ended["plan"].stderr) == (0, "")
    assert ended["run"].returncode == 1
    assert "which no release wrote" in ended["run"].stderr
    assert contents(release) == MINE


def test_a_file_that_a_lock_would_empty_is_refused(tmp_path: Path):
    (tmp_path / "poetry.lock").write_text("of another program")
    with pytest.raises(ConfigError, match=r"poetry\.lock is no lock of a release"):
        placed(tmp_path / "poetry", tmp_path)
    assert (tmp_path / "poetry.lock").read_text() == "of another program"


def test_what_a_person_put_into_a_release_stays_there(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    replace(release, "shard_00", "shard_01")
    mine = {
        "thesis.txt": b"three years",
        "draft.tmp": b"a draft",
        "data/notes.tmp": b"x",
        "data/pages/own.parquet": b"x",
    }
    write(release.root, mine)
    placed(release.root, tmp_path)
    replace(release, "shard_00")
    assert {name: content for name, content in contents(release.root).items() if name in mine} == mine
    assert not list(release.root.rglob("shard_01.parquet"))


def test_a_release_that_its_check_refuses_does_not_take_the_place_of_the_one_before(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    replace(release, "shard_00")
    before, refused = contents(release.root), []

    def refuse(folder: Path) -> None:
        refused.extend(path.stem for path in sorted(folder.glob("data/pages/*")))
        raise StoreError("its counts do not add up")

    with pytest.raises(StoreError, match="its counts do not add up"):
        replace(release, "shard_00", "shard_01", check=refuse)
    assert refused == ["shard_00", "shard_01"]
    assert contents(release.root) == before
    replace(release, "shard_00", "shard_01")
    assert list(release.root.rglob("shard_01.parquet"))


def test_a_table_that_is_only_named_as_those_of_a_release_is_neither_released_nor_deleted(tmp_path: Path):
    release = LocalRelease(folder=str(tmp_path / "r"))
    replace(release, "shard_00")
    write(release.root, {"data/pages/shard_77.parquet": b"my own table"})
    for refused in (lambda: placed(release.root, tmp_path), lambda: replace(release, "shard_00")):
        with pytest.raises(
            (ConfigError, StoreError), match=r"shard_77\.parquet is no file of the release there: move it"
        ):
            refused()
    assert contents(release.root)["data/pages/shard_77.parquet"] == b"my own table"


def test_a_link_to_another_disk_stays_one_and_the_release_is_made_there(tmp_path: Path):
    link, real = tmp_path / "r", tmp_path / "disk" / "release"
    real.mkdir(parents=True)
    link.symlink_to(real)
    for shards in (["shard_00"], ["shard_00", "shard_01"]):
        placed(link, tmp_path)
        replace(LocalRelease(folder=str(link)), *shards)
        assert link.readlink() == real
        assert len(list(real.glob("data/pages/*.parquet"))) == len(shards)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("r")] == ["r"]


def test_a_folder_that_is_a_disk_of_its_own_is_refused_before_anything_is_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No folder can be renamed to the place where a disk is mounted, as a container's volume."""
    folder = tmp_path / "volume"
    folder.mkdir()
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == folder)
    with pytest.raises(ConfigError, match=r"volume is a disk of its own, .*: name a folder on it in release\.folder"):
        placed(folder, tmp_path)
    placed(folder / "release", tmp_path)


@pytest.mark.parametrize("damaged", [b"", b"\xff\xfe\x00", b"no checksums"])
def test_damaged_checksums_are_made_anew(tmp_path: Path, damaged: bytes):
    release = LocalRelease(folder=str(tmp_path / "r"))
    replace(release, "shard_00")
    before = contents(release.root)
    write(release.root, {"SHA256SUMS": damaged})
    placed(release.root, tmp_path)
    replace(release, "shard_00")
    assert contents(release.root) == before


def test_what_a_kill_leaves_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    release = LocalRelease(folder=str(tmp_path / "r"))
    replace(release, "shard_00")
    write(release.root, {"thesis.txt": b"three years"})

    class Killed(BaseException):
        """A stand-in for a kill, after which nothing happens."""

    def kill(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(LocalRelease, "describe", kill)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            replace(release, "shard_00", "shard_01")
    assert (tmp_path / "r.new" / "thesis.txt").exists()
    replace(release, "shard_00", "shard_01")
    assert (release.root / "thesis.txt").read_bytes() == b"three years"
    assert len(list(release.root.rglob("shard_01.parquet"))) == 8
    assert not (tmp_path / "r.new").exists()


def refusal(tmp_path: Path, folder: Path | str, **environment: str) -> str:
    """Return the error of reading settings with a release in `folder` and home `h`."""
    with pytest.raises(ConfigError) as raised:
        read_settings({"KOPUB_HOME": str(tmp_path / "h"), "KOPUB_RELEASE__FOLDER": str(folder), **environment})
    return str(raised.value)


def test_the_home_and_the_store_are_refused_when_the_settings_are_read(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "h")
    for folder in (tmp_path / "h", tmp_path, tmp_path / "link"):
        assert "is the home or holds it; name a new or empty folder in release.folder" in refusal(tmp_path, folder)
    assert "is the store or holds it" in refusal(tmp_path, tmp_path / "h" / "store")
    assert f"lies in the store, {tmp_path}/h/store" in refusal(tmp_path, tmp_path / "h" / "store" / "release")
    in_store = refusal(tmp_path, "memory://b/tables/release", KOPUB_STORE__URL="memory://b/tables")
    assert "memory://b/tables/release is the store or lies in it" in in_store
    assert "is the home or holds it" in refusal(tmp_path, "memory://b/r", KOPUB_RELEASE__MADE_IN=str(tmp_path / "h"))


def test_the_source_is_refused_before_anything_is_computed(tmp_path: Path):
    source, home = tmp_path / "scans", tmp_path / "h"
    source.mkdir()
    pages = Path("samples/corpus")
    for file in pages.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    assert commands.kopub({"KOPUB_HOME": str(home)}, "index", str(source)).returncode == 0
    before = contents(source)
    for folder, says in ((source, "is the source or holds it"), (source / "release", "lies in the source")):
        environment = {"KOPUB_HOME": str(home), "KOPUB_RELEASE__FOLDER": str(folder)}
        for command in (["run"], ["run", "--asset", "hf_release"], ["plan"]):
            ended = commands.kopub(environment, *command)
            assert ended.returncode == 1
            assert len(ended.stderr.splitlines()) == 1
            assert f"release.folder: {folder} {says}" in ended.stderr
    assert not (home / "store").exists()
    assert contents(source) == before


def test_the_doctor_says_where_a_release_may_not_be_written(tmp_path: Path):
    write(tmp_path / "papers", MINE)
    of = {"KOPUB_HOME": str(tmp_path / "h"), "KOPUB_RELEASE__FOLDER": str(tmp_path / "papers")}
    found = [finding for finding in examine(read_settings(of)) if finding.check == "release"]
    assert [(finding.level, f"{tmp_path}/papers holds README.md" in finding.says) for finding in found] == [
        ("problem", True)
    ]


def test_a_place_on_object_storage_that_holds_anything_else_is_refused(tmp_path: Path):
    release_of(tmp_path / "r", page_tables(0))
    fs, url = fsspec.filesystem("memory"), f"memory://{tmp_path.name}/mine"
    fs.pipe(f"{tmp_path.name}/mine/versions/own/thesis.txt", b"three years")
    release = LocalRelease(folder=url, made_in=str(tmp_path / "made"))
    with pytest.raises(ConfigError, match=f"{url} holds versions/own/thesis.txt, which no release wrote"):
        require_place(release, Corpus(home=str(tmp_path / "h")), str(tmp_path / "h" / "store"))
    with pytest.raises(StoreError, match="which no release wrote"):
        publish_to(url, tmp_path / "r", lambda line: None)
    assert fs.find(f"{tmp_path.name}/mine") == [f"/{tmp_path.name}/mine/versions/own/thesis.txt"]


def test_files_that_lie_among_the_versions_of_a_published_release_stay(tmp_path: Path):
    fs, url = fsspec.filesystem("memory"), f"memory://{tmp_path.name}/ours"
    for at in range(3):
        release_of(tmp_path / f"r{at}", page_tables(0, pages=3 + at))
        publish_to(url, tmp_path / f"r{at}", lambda line: None)
        fs.pipe(f"{tmp_path.name}/ours/versions/own/thesis.txt", b"three years")
    assert fs.cat(f"{tmp_path.name}/ours/versions/own/thesis.txt") == b"three years"
    assert len({path.split("/")[4] for path in fs.find(f"/{tmp_path.name}/ours/versions")}) == 3


@pytest.mark.parametrize("pages", [3, 4])
def test_a_file_that_a_published_release_has_lost_is_sent_again(tmp_path: Path, pages: int):
    fs, url = fsspec.filesystem("memory"), f"memory://{tmp_path.name}/lost"
    release_of(tmp_path / "r", page_tables(0), page_tables(1, pages=3))
    publish_to(url, tmp_path / "r", lambda line: None)
    _, folder = fsspec.core.url_to_fs(PublishedRelease.at(url).folder)
    fs.rm_file(f"{folder}/data/pages/shard_00.parquet")
    fs.pipe(f"{folder}/data/lineage/shard_00.parquet", b"cut off")
    release_of(tmp_path / "now", page_tables(0), page_tables(1, pages=pages))
    publish_to(url, tmp_path / "now", lambda line: None)
    PublishedRelease.at(url).download(tmp_path / "read")
    assert contents(tmp_path / "read") == contents(tmp_path / "now")
