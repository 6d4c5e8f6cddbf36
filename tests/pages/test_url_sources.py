"""Sources on object storage are fetched once, mapped as local files, and never read incomplete."""

import errno
import multiprocessing
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow.parquet as pq
import pytest

from kopub.errors import KopubError, SourceError, StoreError
from kopub.pages import fetched_files
from kopub.pages.corpus import Corpus
from kopub.pages.fetched_files import FetchedFiles
from kopub.pages.indexing import index
from kopub.pages.manifest import Manifest
from kopub.pages.places import CorpusPlace
from kopub.store import faults
from kopub.store.locks import ObjectLock
from kopub.store.objects import Objects
from tests.doubles.s3 import CUT, S3Double
from tests.support.processes.shared_nodes import put
from tests.support.sources.corpora import page_image, pages, query, table, write_arrow, write_corpus
from tests.support.sources.pdf_files import sheet, text_pdf, written


@pytest.fixture
def url(s3_root: str, s3: S3Double, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return a folder of its own, whose faults are retried for 3 s."""
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 3.0)
    yield f"{s3_root}/{uuid.uuid4().hex[:8]}"
    s3.before = s3.after = lambda method, path: None


def node(tmp_path: Path, name: str, url: str) -> Corpus:
    """Return a node with a home of its own and the index at a URL."""
    return Corpus(home=str(tmp_path / name), url=f"{url}/index", cache_gb=1.0)


def rows(corpus: Corpus) -> dict[str, bytes]:
    return {row.page_id: bytes(row.data or b"") for key in corpus.manifest.keys for row in corpus.rows(key)}


def gets(s3: S3Double, part: str) -> int:
    return sum(method == "GET" and path.endswith(part) for method, path in s3.asked)


def test_arrow_shards_and_queries_are_indexed_where_they_lie_and_another_node_sees_the_same_corpus(
    url: str, s3: S3Double, tmp_path: Path
):
    content = [pages("a_1", "a_2"), pages("b_1")]
    put(write_corpus(tmp_path / "source", content, [query("q1", "무엇인가?", "b_1")]), f"{url}/source")
    here, there = node(tmp_path, "here", url), node(tmp_path, "there", url)
    index(f"{url}/source", here.place)
    assert [shard.file for shard in here.manifest.shards] == [f"{url}/source/corpus/data-{at}.arrow" for at in (0, 1)]
    assert here.manifest.location == f"{url}/source"
    assert there.manifest.model_dump() == here.manifest.model_dump()
    local = index(str(tmp_path / "source"), tmp_path / "local")
    assert [shard.sha256 for shard in there.manifest.shards] == [shard.sha256 for shard in local.shards]
    s3.asked.clear()
    for corpus in (here, there, there):
        assert rows(corpus) == {page_id: data for shard in content for page_id, data in shard}
        assert [each.query_id for each in corpus.queries("shard_01")] == ["q1"]
    # The node that indexed the files has them; the other fetched each once.
    assert [gets(s3, f"data-{at}.arrow") for at in (0, 1)] == [1, 1]
    assert not (tmp_path / "here" / "shards.json").exists()


@pytest.mark.parametrize("where", ["index", "home"])
def test_parquet_one_file_and_an_index_that_is_not_shared(url: str, tmp_path: Path, where: str):
    pq.write_table(table(pages("p_1", "p_2")), tmp_path / "pages.parquet")
    fs, path = fsspec.core.url_to_fs(url)
    fs.put_file(str(tmp_path / "pages.parquet"), f"{path}/pages.parquet")
    corpus = node(tmp_path, "here", url) if where == "index" else Corpus(home=str(tmp_path / "home"))
    index(f"{url}/pages.parquet", corpus.place)
    assert rows(corpus) == dict(pages("p_1", "p_2"))


def test_documents_are_drawn_once_and_their_pages_lie_beside_the_shared_index(url: str, s3: S3Double, tmp_path: Path):
    source = tmp_path / "source"
    (source / "사진" / ".hidden").mkdir(parents=True)
    (source / "minutes.pdf").write_bytes(
        text_pdf(sheet(written((40, 300, "The first page"))), sheet(written((9, 9, "2"))))
    )
    (source / "사진" / "a b#1.png").write_bytes(page_image(3))
    (source / "사진" / ".hidden" / "x.png").write_bytes(page_image(4))
    (source / "notes.log").write_text("no page")
    put(source, f"{url}/source")
    here, there = node(tmp_path, "here", url), node(tmp_path, "there", url)
    said: list[str] = []
    index(f"{url}/source", here.place, said.append, dpi=72)
    local = index(str(source), tmp_path / "local", dpi=72)
    assert [shard.sha256 for shard in here.manifest.shards] == [shard.sha256 for shard in local.shards]
    assert here.manifest.shards[0].file.startswith("rendered/pages-")
    assert list(rows(there)) == ["minutes_1", "minutes_2", "사진__a b#1_1"]
    assert "left out: notes.log (no PDF, image, HWP, office or text file)" in said
    # A second node reuses the pages that are drawn and draws only what changed.
    fs, path = fsspec.core.url_to_fs(url)
    fs.pipe_file(f"{path}/source/사진/z.png", page_image(5))
    said.clear()
    index(f"{url}/source", there.place, said.append, dpi=72)
    assert next(line for line in said if "made" in line or "kept" in line).endswith("3 pages kept")
    assert list(rows(node(tmp_path, "third", url))) == ["minutes_1", "minutes_2", "사진__a b#1_1", "사진__z_1"]
    assert fs.find(f"{path}/index/.locks") == []


def test_a_file_that_changed_is_fetched_again_and_is_not_taken_for_what_was_indexed(url: str, tmp_path: Path):
    source = write_corpus(tmp_path / "source", [pages("a_1")])
    put(source, f"{url}/source")
    corpus = node(tmp_path, "here", url)
    index(f"{url}/source", corpus.place)
    write_arrow(source / "corpus" / "data-0.arrow", table([("a_1", page_image(9))]))
    put(source, f"{url}/source")
    with pytest.raises(SourceError, match=r"data-0.arrow changed since it was indexed: run `kopub index` again$"):
        rows(corpus)
    index(f"{url}/source", corpus.place)
    assert rows(node(tmp_path, "here", url)) == {"a_1": page_image(9)}
    kept = [each for each in (tmp_path / "here" / "sources").iterdir() if each.suffix == ".arrow"]
    assert len(kept) == 1


def test_a_file_that_vanished_is_one_line(url: str, tmp_path: Path):
    put(write_corpus(tmp_path / "source", [pages("a_1")]), f"{url}/source")
    corpus = node(tmp_path, "here", url)
    index(f"{url}/source", corpus.place)
    fs, path = fsspec.core.url_to_fs(url)
    fs.rm(f"{path}/source", recursive=True)
    with pytest.raises(SourceError, match=r"there is no file s3://.*data-0.arrow: bring it back"):
        rows(corpus)
    with pytest.raises(SourceError, match=r"there is nothing at s3://.*/source: correct the URL"):
        index(f"{url}/source", corpus.place)
    with pytest.raises(SourceError, match=r"nothing/shards.json cannot be read \(it is not there\): run `kopub index"):
        Manifest.load(CorpusPlace(tmp_path, f"{url}/nothing"))


@pytest.mark.parametrize("fault", [503, pytest.param(CUT, marks=pytest.mark.slow)], ids=["busy", "cut"])
def test_a_fault_that_passes_costs_nothing_and_one_that_stays_is_a_line_without_half_a_file(
    url: str, s3: S3Double, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
):
    monkeypatch.setattr(fetched_files, "_AT_ONCE", 1000)
    put(write_corpus(tmp_path / "source", [pages("a_1", "a_2")]), f"{url}/source")
    corpus, other = node(tmp_path, "here", url), node(tmp_path, "other", url)
    index(f"{url}/source", corpus.place)
    parts = iter([None, fault, fault, None])
    s3.after = lambda method, path: next(parts, None) if method == "GET" and "data-0" in path else None
    assert rows(other) == dict(pages("a_1", "a_2"))
    third = node(tmp_path, "third", url)
    monkeypatch.setattr(faults, "RETRY_TIMEOUT_S", 0.2)
    parts = iter([None, *[fault] * 100])
    with pytest.raises(StoreError, match=r"data-0.arrow cannot be read \(.*\): the storage does not answer") as error:
        rows(third)
    assert "\n" not in str(error.value)
    assert [each.name for each in (tmp_path / "third" / "sources").iterdir() if each.suffix not in (".lock", "")] == []
    s3.after = lambda method, path: None
    assert rows(third) == dict(pages("a_1", "a_2"))


def test_wrong_credentials_are_one_line(url: str, s3: S3Double, tmp_path: Path):
    put(write_corpus(tmp_path / "source", [pages("a_1")]), f"{url}/source")
    corpus = node(tmp_path, "here", url)
    index(f"{url}/source", corpus.place)
    s3.before = lambda method, path: 403
    for call in (lambda: index(f"{url}/source", corpus.place), lambda: rows(node(tmp_path, "other", url))):
        with pytest.raises(StoreError, match=r"\(.*\): correct the credentials and run again$"):
            call()


def test_a_full_disk_is_one_line_and_nothing_of_the_file_stays(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    put(write_corpus(tmp_path / "source", [pages("a_1")]), f"{url}/source")
    index(f"{url}/source", node(tmp_path, "here", url).place)
    other = node(tmp_path, "other", url)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreError, match=r"the disk is full: .*/other/sources was not written"):
            rows(other)
    assert [each for each in (tmp_path / "other" / "sources").iterdir() if each.stat().st_size] == []
    assert rows(other) == dict(pages("a_1"))


def test_what_was_not_used_for_longest_makes_room_and_what_is_in_use_stays(url: str, s3: S3Double, tmp_path: Path):
    fs, path = fsspec.core.url_to_fs(url)
    for name in "abcd":
        fs.pipe_file(f"{path}/{name}", name.encode() * 1000)
    kept = FetchedFiles(tmp_path / "sources", 2500)

    def content(name: str) -> bytes:
        with kept.held(f"{url}/{name}") as found:
            return found.path.read_bytes()

    assert [content(name) for name in "abab"] == [b"a" * 1000, b"b" * 1000] * 2
    s3.asked.clear()
    assert content("c") == b"c" * 1000
    assert [gets(s3, f"/{name}") for name in "abc"] == [0, 0, 1]
    assert content("b") == b"b" * 1000
    assert content("a") == b"a" * 1000
    assert [gets(s3, f"/{name}") for name in "abc"] == [1, 0, 1]
    assert sum(each.stat().st_size for each in (tmp_path / "sources").iterdir()) <= 2500
    with kept.held(f"{url}/a") as used:
        assert content("c") + content("d") == b"c" * 1000 + b"d" * 1000
        assert used.path.read_bytes() == b"a" * 1000
    fs.pipe_file(f"{path}/large", b"x" * 3000)
    with pytest.raises(SourceError, match=r"large has 3,000 bytes and corpus.cache_gb lets this machine keep 2.5e-06"):
        content("large")


def test_a_version_in_use_is_not_counted_as_room_for_the_next_one(url: str, tmp_path: Path):
    fs, path = fsspec.core.url_to_fs(url)
    for name in "ab":
        fs.pipe_file(f"{path}/{name}", name.encode() * 1000)
    kept = FetchedFiles(tmp_path / "sources", 2500)
    with kept.held(f"{url}/a") as used:
        with kept.held(f"{url}/b"):
            pass
        fs.pipe_file(f"{path}/a", b"c" * 1000)
        with kept.held(f"{url}/a") as changed:
            assert (used.path.read_bytes(), changed.path.read_bytes()) == (b"a" * 1000, b"c" * 1000)
            assert sum(each.stat().st_size for each in (tmp_path / "sources").iterdir()) <= 2500
    fs.pipe_file(f"{path}/a", b"d" * 1000)
    with kept.held(f"{url}/a"):
        assert not used.path.exists()
        assert not changed.path.exists()


def _fetch(environment: dict[str, str], folder: str, url: str, together, found) -> None:
    os.environ.update(environment)
    together.wait(60)
    with FetchedFiles(Path(folder), 10**9).held(url) as fetched:
        found.put((fetched.sha256, fetched.path.stat().st_size))


@pytest.mark.slow
def test_processes_of_a_node_fetch_a_file_once(url: str, s3: S3Double, tmp_path: Path):
    fs, path = fsspec.core.url_to_fs(url)
    fs.pipe_file(f"{path}/a.bin", b"a" * 100_000)
    context = multiprocessing.get_context("fork")
    together, found = context.Barrier(4), context.Queue()
    s3.asked.clear()
    processes = [
        context.Process(target=_fetch, args=(s3.environment, str(tmp_path / "s"), f"{url}/a.bin", together, found))
        for _ in range(4)
    ]
    for process in processes:
        process.start()
    assert len({found.get(timeout=60) for _ in processes}) == 1
    for process in processes:
        process.join(60)
    assert gets(s3, "a.bin") == 1


def test_a_file_that_was_cut_off_by_a_kill_is_fetched_again(url: str, tmp_path: Path):
    fs, path = fsspec.core.url_to_fs(url)
    fs.pipe_file(f"{path}/a.bin", b"a" * 1000)
    kept = FetchedFiles(tmp_path / "s", 10**6)
    with kept.held(f"{url}/a.bin") as found:
        whole = found.path
    whole.with_name(f"{whole.name[:16]}-0000.part").write_bytes(b"half")
    whole.write_bytes(b"a" * 10)
    with kept.held(f"{url}/a.bin") as found:
        assert found.path.read_bytes() == b"a" * 1000
    assert {each.suffix for each in (tmp_path / "s").iterdir()} <= {".bin", ".lock", ""}


def test_of_two_nodes_that_index_at_once_the_second_waits(url: str, tmp_path: Path):
    source = put(write_corpus(tmp_path / "source", [pages("a_1")]), f"{url}/source")
    place = node(tmp_path, "here", url).place
    objects = Objects.at(place.url)[0]
    other = ObjectLock(objects, place.lock, "the index")
    other.acquire(wait=False)
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "waiting for it" in line:
            other.release()

    assert index(source, place, say).keys == ["shard_00"]
    assert said[0] == f"another `kopub index` writes the index at {place}: waiting for it"


def test_urls_that_nothing_opens_are_one_line():
    from kopub.cli.commands.index import index_source

    for wrong in ("s4://bucket/x", "s3:///"):
        with pytest.raises(KopubError, match=r"unknown protocol|names no bucket"):
            index_source(wrong, CorpusPlace(Path("nowhere")), 300)
