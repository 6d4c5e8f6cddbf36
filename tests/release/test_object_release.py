"""A release made by several nodes is whole wherever a run ends and published atomically."""

import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from typer.testing import CliRunner

import kopub
from kopub.errors import LockLost, SourceError, StoreError
from kopub.pages.indexing import index
from kopub.release import versions
from kopub.release.remote import PublishedRelease, publish_to
from kopub.release.verify import verify
from kopub.store import faults
from kopub.store import locks as object_locks
from kopub.store.objects import Objects
from tests.doubles.s3 import S3Double
from tests.support.processes.forked import CONTEXT
from tests.support.processes.shared_nodes import MADE, Node
from tests.support.released import contents, page_tables, release_of
from tests.support.sources.corpora import pages, query, write_corpus

pytestmark = pytest.mark.slow
LIVES = 4.0
"""Seconds after which the lock of a process that was killed is taken over."""
PATIENT = 60.0
"""The same, where nobody is killed: a busy machine may stop a process for as long as it lives else."""
SHARDS = ("shard_00", "shard_01")


@pytest.fixture(scope="module")
def made(s3_root: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a corpus of two shards with tables but no release."""
    folder, url = tmp_path_factory.mktemp("made"), f"{s3_root}/made"
    node = Node(folder / "home", url)
    source = write_corpus(folder / "source", [pages("a_1"), pages("b_1")], [query("q1", "무엇인가?", "a_1")])
    index(str(source), node.resources()["corpus"].place)
    node.make(*MADE)
    return url


@pytest.fixture
def url(s3_root: str, made: str, s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a copy of that corpus for one test."""
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 3.0)
    url = f"{s3_root}/{uuid.uuid4().hex[:8]}"
    fs, path = fsspec.core.url_to_fs(made)
    for file in fs.find(path):
        fs.cp_file(file, f"{url.removeprefix('s3://')}{file.removeprefix(path)}")
    yield url
    s3.before = s3.after = lambda method, path: None


def test_shards_of_two_nodes_are_one_release_wherever_a_run_of_it_ends(url: str, tmp_path: Path):
    here, there = Node(tmp_path / "here", url), Node(tmp_path / "there", url)
    here.released("shard_00")
    assert list(verify(here.release.root)) == [
        "1 of 2 shards of the corpus are not in the release, shard_01 first: run `kopub run --asset hf_release`"
    ]
    said = there.released("shard_01")
    assert "hf_release shard_00: made from the tables, as another machine released it" in said
    assert list(verify(there.release.root)) == []
    here.released("shard_00")
    assert contents(here.release.root) == contents(there.release.root)
    before = {path: path.stat().st_mtime_ns for path in here.release.root.rglob("*")}
    here.released(*SHARDS)
    assert {path: path.stat().st_mtime_ns for path in here.release.root.rglob("*")} == before


def test_a_release_at_a_url_is_published_when_it_is_whole_and_opens_and_verifies_there(
    url: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target = f"{url}/release"
    here, there = Node(tmp_path / "here", url, target), Node(tmp_path / "there", url, target)
    said = here.released("shard_00")
    assert f"not published at {target}: 1 shards are not released yet, shard_01 first" in said
    with pytest.raises(StoreError, match=f"there is no release at {target}: correct the URL, or release to it"):
        PublishedRelease.at(target)
    there.released("shard_01")
    first = PublishedRelease.at(target)
    downloaded = tmp_path / "downloaded"
    first.download(downloaded)
    assert contents(downloaded) == contents(there.release.root)
    s3.asked.clear()
    here.released("shard_00")
    # An unchanged release is not sent again.
    assert PublishedRelease.at(target) == first
    assert not [path for method, path in s3.asked if method == "PUT" and "/release/versions" in path]
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path / "reader"))
    s3.asked.clear()
    corpus = kopub.open(target)
    assert [page.id for page in corpus.pages] == ["a_1", "b_1"]
    assert corpus.page("b_1").markdown == kopub.open(there.release.root).page("b_1").markdown
    assert not [path for _, path in s3.asked if "image_embeddings" in path]
    with pytest.raises(SourceError, match="unknown protocol 's4'"):
        kopub.open("s4://nowhere/release")


def test_the_command_verifies_a_release_at_a_url(url: str, tmp_path: Path):
    from kopub.cli.main import app

    target = f"{url}/release"
    Node(tmp_path / "here", url, target).released(*SHARDS)
    done = CliRunner().invoke(app, ["verify", target])
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, f"{target} is sound")
    fs, path = fsspec.core.url_to_fs(PublishedRelease.at(target).folder)
    fs.rm_file(f"{path}/data/pages/shard_01.parquet")
    done = CliRunner().invoke(app, ["verify", target])
    assert done.exit_code == 1
    assert "data/pages/shard_01.parquet is missing" in done.output


@pytest.mark.parametrize("at", ["data", "README.md", "release.json"])
def test_a_publication_that_fails_leaves_the_release_before_and_the_next_one_goes_on(
    s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
):
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 0.2)
    target = f"{s3_root}/{uuid.uuid4().hex[:8]}"
    release_of(tmp_path / "old", page_tables(0), page_tables(1))
    publish_to(target, tmp_path / "old", lambda line: None)
    old = PublishedRelease.at(target)
    release_of(tmp_path / "new", page_tables(0), page_tables(1, pages=5))
    s3.before = lambda method, path: 503 if method == "PUT" and f"/{at}" in path else None
    with pytest.raises(StoreError, match="the storage does not answer"):
        publish_to(target, tmp_path / "new", lambda line: None)
    s3.before = lambda method, path: None
    assert PublishedRelease.at(target) == old
    old.download(tmp_path / "read")
    assert contents(tmp_path / "read") == contents(tmp_path / "old")
    s3.asked.clear()
    publish_to(target, tmp_path / "new", lambda line: None)
    PublishedRelease.at(target).download(tmp_path / "now")
    assert contents(tmp_path / "now") == contents(tmp_path / "new")
    # The storage copies unchanged shards, and the old release can still be read.
    sent = [path for method, path in s3.asked if method == "PUT" and path.endswith("pages/shard_00.parquet")]
    assert len(sent) == (at == "data")
    old.download(tmp_path / "still")
    assert contents(tmp_path / "still") == contents(tmp_path / "old")


def test_who_was_stopped_before_it_published_leaves_the_release_of_who_took_over(
    s3_root: str, s3: S3Double, tmp_path: Path
):
    target = f"{s3_root}/{uuid.uuid4().hex[:8]}"
    for name, count in (("old", 3), ("mine", 4), ("theirs", 5)):
        release_of(tmp_path / name, page_tables(0, pages=count))
    publish_to(f"{target}-other", tmp_path / "theirs", lambda line: None)
    theirs = f"{PublishedRelease.at(f'{target}-other').folder.rpartition('/')[2]}"
    publish_to(target, tmp_path / "old", lambda line: None)
    objects, root = Objects.at(target)

    def take_over(method: str, path: str) -> None:
        if method == "PUT" and path.endswith("/release.json"):
            s3.before = lambda method, path: None
            objects.put(f"{root}/release.json", f'{{"folder": "versions/{theirs}"}}'.encode())

    s3.before = take_over
    with pytest.raises(LockLost, match=r"^the release at .* was not published: this run was stopped"):
        publish_to(target, tmp_path / "mine", lambda line: None)
    assert PublishedRelease.at(target).folder.endswith(theirs)


def _publish(environment: dict[str, str], target: str, folder: str, lives: float = LIVES) -> None:
    os.environ.update(environment)
    object_locks.LEASE_TTL_S = lives
    publish_to(target, Path(folder), lambda line: None)


@pytest.mark.services
def test_a_process_that_is_killed_while_it_publishes_leaves_the_release_before(
    s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(object_locks, "LEASE_TTL_S", LIVES)
    target = f"{s3_root}/{uuid.uuid4().hex[:8]}"
    release_of(tmp_path / "old", page_tables(0))
    publish_to(target, tmp_path / "old", lambda line: None)
    old = PublishedRelease.at(target)
    release_of(tmp_path / "new", page_tables(0, pages=5))
    killed = CONTEXT.Process(target=_publish, args=(s3.environment, target, str(tmp_path / "new")))

    def kill(method: str, path: str) -> int | None:
        if method == "PUT" and path.endswith("regions/shard_00.parquet") and killed.pid:
            os.kill(killed.pid, signal.SIGKILL)
        return None

    s3.before = kill
    killed.start()
    killed.join(60)
    s3.before = lambda method, path: None
    assert killed.exitcode == -signal.SIGKILL
    assert PublishedRelease.at(target) == old
    publish_to(target, tmp_path / "new", lambda line: None)
    PublishedRelease.at(target).download(tmp_path / "now")
    assert contents(tmp_path / "now") == contents(tmp_path / "new")
    fs, path = fsspec.core.url_to_fs(target)
    assert fs.find(f"{path}/.locks") == []


@pytest.mark.services
def test_of_two_that_publish_at_once_one_after_the_other_is_whole(s3_root: str, s3: S3Double, tmp_path: Path):
    target = f"{s3_root}/{uuid.uuid4().hex[:8]}"
    for name, count in (("one", 3), ("two", 5)):
        release_of(tmp_path / name, page_tables(0, pages=count))
    both = [
        CONTEXT.Process(target=_publish, args=(s3.environment, target, str(tmp_path / name), PATIENT))
        for name in ("one", "two")
    ]
    for each in both:
        each.start()
    for each in both:
        each.join(60)
    assert [each.exitcode for each in both] == [0, 0]
    PublishedRelease.at(target).download(tmp_path / "now")
    assert contents(tmp_path / "now") in (contents(tmp_path / "one"), contents(tmp_path / "two"))
    fs, path = fsspec.core.url_to_fs(target)
    assert fs.find(f"{path}/.locks") == []
    assert len(fs.ls(f"{path}/versions", refresh=True)) == 2


@pytest.mark.services
def test_who_has_a_release_open_reads_it_to_its_end_while_two_nodes_publish(
    s3_root: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    target = f"{s3_root}/{uuid.uuid4().hex[:8]}"
    for name, count in (("first", 3), ("one", 4), ("two", 5)):
        release_of(tmp_path / name, page_tables(0, pages=count))
    publish_to(target, tmp_path / "first", lambda line: None)
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path / "reader"))
    corpus = kopub.open(target)
    wanted = [(page.id, page.markdown) for page in kopub.open(tmp_path / "first").pages]
    both = [
        CONTEXT.Process(target=_publish, args=(s3.environment, target, str(tmp_path / name), PATIENT))
        for name in ("one", "two")
    ]
    for each in both:
        each.start()
    assert [(page.id, page.markdown) for page in corpus.pages] == wanted
    for each in both:
        each.join(60)
    assert [each.exitcode for each in both] == [0, 0]
    assert [(page.id, page.markdown) for page in corpus.pages] == wanted
    assert len(kopub.open(target).pages) in (4, 5)


class Killed(BaseException):
    """A stand-in for a kill, after which nothing of the process runs."""


def test_a_kill_at_any_step_leaves_the_folder_as_it_was_and_the_next_run_makes_it_whole(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    node = Node(tmp_path / "here", url)
    node.released(*SHARDS)
    (node.release.root / "notes.txt").write_text("mine")
    before = contents(node.release.root)
    node.engines["release"] = node.release.model_copy(update={"title": "Other pages"})
    for step in ("_link", "_is_same", "put_in_place"):
        with monkeypatch.context() as patch:
            patch.setattr(versions, step, lambda *_: (_ for _ in ()).throw(Killed))
            with pytest.raises(Killed):
                node.released(*SHARDS)
        assert contents(node.release.root) == before
    node.released("shard_01")
    after = contents(node.release.root)
    assert {path for path in after if after[path] != before.get(path)} >= {"README.md"}
    assert after["notes.txt"] == b"mine"
    assert list(verify(node.release.root)) == ["notes.txt is no file of a release: move it out"]


def test_two_renames_stand_in_where_names_cannot_be_exchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from kopub.release import versions

    monkeypatch.setattr(versions, "_exchange", lambda *_: False)
    for name, text in (("old", "1"), ("new", "2")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text(text)
    versions.put_in_place(tmp_path / "new", tmp_path / "old")
    assert contents(tmp_path) == {"old/a": b"2"}
    (tmp_path / "old").rename(tmp_path / "old.old")
    versions.recover(tmp_path / "old")
    assert contents(tmp_path) == {"old/a": b"2"}


def test_tables_that_changed_since_another_node_released_them_are_said_and_left_out(url: str, tmp_path: Path):
    here, there = Node(tmp_path / "here", url), Node(tmp_path / "there", url)
    here.released(*SHARDS)
    table = here.store.read("parsed_texts", "shard_00")
    at = table.schema.get_field_index("text")
    other = table.set_column(at, table.schema.field(at), [["다른 글"]])
    here.store.write("parsed_texts", "shard_00", other, here.store.metadata("parsed_texts", "shard_00"))
    said = there.released("shard_01")
    assert "shard_00 is not in the release: its tables changed since; materialize hf_release for it" in said
    assert next(verify(there.release.root)).startswith("1 of 2 shards of the corpus are not in the release, shard_00")
    there.released(*SHARDS)
    assert list(verify(there.release.root)) == []
