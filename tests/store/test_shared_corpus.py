"""Two nodes that share nothing but a bucket: sources, index, tables, release and export."""

import json
import subprocess
from pathlib import Path

import fsspec
import pytest

import kopub
from kopub.pages.indexing import index
from kopub.release.export import export
from kopub.release.remote import require_ours_at
from kopub.release.verify import fetch_release, verify
from kopub.store.objects import upload_folder
from tests.support.processes import forked
from tests.support.processes.shared_nodes import Node, put
from tests.support.sources.corpora import page_image, pages, query, write_corpus

pytestmark = [pytest.mark.slow, pytest.mark.services]


def test_a_corpus_of_pictures_is_made_by_two_nodes_and_released_and_exported_whole(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from kopub.pages.documents import shards

    monkeypatch.setattr(shards, "SHARD_PAGES", 1)
    for name, seed in (("a 1.png", 1), ("보고서/b#2.png", 2)):
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(page_image(seed))
    source, target = put(tmp_path / "source", f"{url}/source"), f"{url}/release"
    here, there = (Node(tmp_path / name, url, target) for name in ("here", "there"))
    index(source, here.resources()["corpus"].place)
    assert here.run(first="shard_00").success
    with pytest.raises(kopub.KopubError, match="there is no release at"):
        kopub.open(target)
    assert there.run(first="shard_01").success
    assert there.run(first="shard_00", last="shard_01").success
    assert (len(here.diary("recognition").pages), len(there.diary("recognition").pages)) == (1, 1)
    with fetch_release(target, None) as folder:
        assert list(verify(folder)) == []
    monkeypatch.setenv("KOPUB_HOME", str(tmp_path / "reader"))
    corpus = kopub.open(target)
    assert sorted(page.id for page in corpus.pages) == ["a 1_1", "보고서__b#2_1"]
    assert all(page.markdown for page in corpus.pages)
    for _ in range(2):
        with upload_folder(f"{url}/out", "export.json") as out:
            export(there.store, ["shard_00", "shard_01"], out)
        fs, path = fsspec.core.url_to_fs(f"{url}/out")
        assert json.loads(fs.cat_file(f"{path}/export.json"))["complete"]
        lines = fs.cat_file(f"{path}/ocr_results.jsonl").decode().splitlines()
        assert {json.loads(line)["page_id"] for line in lines} == {"a 1_1", "보고서__b#2_1"}


def test_a_whole_bucket_may_be_the_place_of_an_export_or_a_release(url: str):
    require_ours_at(url)
    for name in ("a.txt", "b.txt"):
        with upload_folder(f"{url}/", "export.json") as out:
            out.mkdir()
            (out / name).write_text(name)
            (out / "export.json").write_text("{}")
    fs, path = fsspec.core.url_to_fs(url)
    assert sorted(fs.find(path)) == [f"{path}/b.txt", f"{path}/export.json"]
    with pytest.raises(kopub.KopubError, match=r"holds b\.txt, which no release wrote"):
        require_ours_at(url)


def test_a_file_of_an_earlier_export_is_removed_by_its_name_and_not_by_a_pattern(url: str):
    for names in (["보고서[1].md", "a?.md", "*.md"], ["보고서1.md", "ab.md"]):
        with upload_folder(f"{url}/out", "export.json") as out:
            out.mkdir()
            for name in (*names, "export.json"):
                (out / name).write_text("{}")
    fs, path = fsspec.core.url_to_fs(f"{url}/out")
    assert set(fs.find(path)) == {f"{path}/{name}" for name in ("보고서1.md", "ab.md", "export.json")}


def test_a_node_reads_sources_that_another_indexed(url: str, tmp_path: Path):
    source = put(write_corpus(tmp_path / "source", [pages("a_1"), pages("b_1")]), f"{url}/source")
    here, there = (Node(tmp_path / name, url) for name in ("here", "there"))
    index(source, here.resources()["corpus"].place)
    there.make("raw_pages", "layout_regions", "ocr_results")
    assert there.states("ocr_results", "shard_01") == {"b_1": "ok"}
    assert sum(each.suffix == ".arrow" for each in (tmp_path / "there" / "sources").iterdir()) == 2


def test_the_commands_of_two_machines(url: str, tmp_path: Path):
    shared = {
        "KOPUB_CORPUS__URL": f"{url}/corpus",
        "KOPUB_STORE__URL": f"{url}/store",
        "KOPUB_RELEASE__FOLDER": f"{url}/release",
    }

    def kopub(machine: str, *command: str) -> subprocess.CompletedProcess[str]:
        return forked.run(["kopub", *command], {**forked.inherited(), **shared, "KOPUB_HOME": str(tmp_path / machine)})

    content = [pages("a_1"), pages("b_1")]
    source = put(write_corpus(tmp_path / "source", content, [query("q1", "무엇인가?", "a_1")]), f"{url}/source")
    indexed = kopub("here", "index", source)
    assert f"{url}/corpus: 2 pages in 2 documents, 1 query" in indexed.stdout.splitlines(), indexed.stderr
    for machine, shard in (("here", "shard_00"), ("there", "shard_01")):
        made = kopub(machine, "run", "--shards", shard)
        assert made.returncode == 0, made.stdout + made.stderr
    verified = kopub("there", "verify", f"{url}/release")
    assert verified.stdout.splitlines()[-1] == f"{url}/release is sound", verified.stdout + verified.stderr
    fs, path = fsspec.core.url_to_fs(f"{url}/out")
    for name, content in ((".kopub-documents.json", b'{"documents": {}}'), ("gone.md", b"of an export before")):
        fs.pipe_file(f"{path}/{name}", content)
    written = kopub("there", "export", "--markdown", f"{url}/out")
    assert written.stdout.startswith(f"{url}/out: 2 documents of 2 pages"), written.stderr
    found = {name.removeprefix(f"{path}/") for name in fs.find(path)}
    assert found >= {"a.md", "b.md", ".kopub-documents.json"}
    assert "gone.md" not in found
    refused = kopub("here", "export", f"{url}/source")
    assert refused.stderr == (f"Error: {url}/source holds files that no such export wrote; name a new or empty place\n")
    assert sorted(each.name for each in (tmp_path / "there").iterdir() if each.name == "shards.json") == []
