"""Pushing a release: the real client against a double that fails as the Hub does."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kopub.config.settings import ROOT
from kopub.errors import ClosedGate, HubError, KopubError, StoreError
from kopub.release import hub as release_hub
from kopub.release.files import CONFIGS, part_path
from kopub.release.fitness import refusals
from kopub.release.gates import Gates
from kopub.release.hub import HubChange, HubDifference, HubTarget, plan_commits
from kopub.search import metrics
from kopub.store.schemas import RETRIEVAL_SCORES
from tests.doubles.hubs.writable_hub import READER, REPO, WRITER, Fault, File, WritableHub
from tests.support.processes import commands
from tests.support.released import ReleasedCorpus, changed, contents, front_matter, page_tables

TEXTS = {"README.md", "SHA256SUMS", "manifest.json", "ATTRIBUTION.md"}


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the seconds of all sleeps, which are recorded and skipped."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    return pauses


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("corpus")
    ReleasedCorpus(home).put(page_tables(0), page_tables(1))
    return home


@pytest.fixture
def corpus(prepared: Path, tmp_path: Path) -> ReleasedCorpus:
    """Return two shards of three pages, one page of each lost: above the default gate."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return ReleasedCorpus(tmp_path)


def only_once(hub: WritableHub) -> bool:
    """Return whether each file was uploaded once and committed once per commit."""
    return set(hub.uploads.values()) <= {1} and all(len(set(c.sent)) == len(c.sent) for c in hub.commits)


def test_a_release_is_one_commit_with_a_tag_and_a_second_push_sends_nothing(hub: WritableHub, corpus: ReleasedCorpus):
    pushed = corpus.push(REPO)
    assert {path: sha256 for path, sha256 in hub.held.items() if path != ".gitattributes"} == corpus.files
    assert len(hub.commits) == 2
    assert hub.tags == {pushed.tag: hub.head.oid}
    assert pushed.url == f"{hub.url}/datasets/{REPO}/commit/{hub.head.oid}"
    assert len(pushed.difference.added) == len(corpus.files)
    hub.asked.clear()
    again = corpus.push(REPO)
    assert again.difference.files == 0
    assert (again.commit, again.tag) == (pushed.commit, pushed.tag)
    assert len(hub.commits) == 2
    assert {method for method, _ in hub.asked} == {"GET"}


def test_a_changed_page_moves_only_the_files_of_its_shard(hub: WritableHub, corpus: ReleasedCorpus):
    first = corpus.push(REPO)
    made = page_tables(1)
    corpus.put(page_tables(0), replace(made, parsed_texts=changed(made.parsed_texts, text=["새 글", "b", None])))
    second = corpus.push(REPO)
    assert set(hub.head.sent) == {"data/pages/shard_01.parquet"} | TEXTS - {"ATTRIBUTION.md"}
    assert [change.path for change in second.difference.changed] == sorted(hub.head.sent)
    assert only_once(hub)
    assert hub.tags == {first.tag: first.commit, second.tag: second.commit}


def test_a_shard_that_left_goes_in_the_same_commit_and_strangers_stay(hub: WritableHub, corpus: ReleasedCorpus):
    corpus.push(REPO)
    hub.commit({"notes.txt": File(b"mine", False), "data/pages/extra.parquet": File(b"x", True)}, [])
    corpus.shards = ["shard_00"]
    pushed = corpus.push(REPO)
    assert set(hub.head.removed) == {path for path in hub.commits[1].sent if "shard_01" in path}
    assert {change.path: change.rows for change in pushed.difference.removed}["data/pages/shard_01.parquet"] == 3
    assert {"notes.txt", "data/pages/extra.parquet"} <= set(hub.held)
    assert {path for path in hub.held if path not in corpus.files} == {
        ".gitattributes",
        "notes.txt",
        "data/pages/extra.parquet",
    }


def test_large_files_go_in_parts(hub: WritableHub, corpus: ReleasedCorpus):
    hub.part_size = 1000
    corpus.push(REPO)
    assert hub.count("PUT", "/2")
    assert corpus.files.items() <= hub.held.items()


def test_a_tree_of_several_answers_is_read_to_its_end(hub: WritableHub, corpus: ReleasedCorpus):
    hub.page_size = 3
    corpus.push(REPO)
    assert corpus.push(REPO).difference.files == 0


@pytest.mark.parametrize(
    "fault",
    [
        Fault("POST", "/preupload/", status=429, headers={"Retry-After": "7"}),
        Fault("POST", "/lfs/objects/batch", status=429, headers={"Retry-After": "7"}),
        Fault("PUT", "/storage/", status=429, headers={"Retry-After": "7"}),
        Fault("POST", "/commit/", status=429, headers={"Retry-After": "7"}),
        Fault("POST", "/tag/", status=429, headers={"Retry-After": "7"}),
        Fault("GET", "/revision/", status=429, headers={"Retry-After": "7"}),
        Fault("POST", "/commit/", status=429, headers={"RateLimit": '"api";r=0;t=7', "RateLimit-Policy": "x"}),
    ],
    ids=lambda fault: f"{fault.method} {fault.path} {next(iter(fault.headers))}",
)
def test_the_hub_is_left_alone_for_as_long_as_it_asks(
    hub: WritableHub, corpus: ReleasedCorpus, slept: list[float], fault: Fault
):
    hub.faults.append(fault)
    pushed = corpus.push(REPO)
    assert [pause for pause in slept if pause in (7, 8)]  # the client adds a second to be sure
    assert len(hub.commits) == 2
    assert hub.tags == {pushed.tag: hub.head.oid}
    assert only_once(hub)


def test_one_who_asks_for_an_hour_is_not_waited_for(hub: WritableHub, corpus: ReleasedCorpus, slept: list[float]):
    hub.faults.append(Fault("POST", "/commit/", times=99, status=429, headers={"Retry-After": "3600"}))
    with pytest.raises(HubError, match="limit of requests is used up"):
        corpus.push(REPO)
    assert not [pause for pause in slept if pause > 900]


@pytest.mark.parametrize(
    "fault",
    [
        Fault("PUT", "/storage/", times=2, status=500),
        Fault("PUT", "/storage/", times=40, status=500),
        Fault("PUT", "/storage/", times=2, cut=100),
        Fault("PUT", "/storage/", times=1, lose=True),
        Fault("POST", "/commit/", times=2, status=503),
        Fault("POST", "/commit/", times=1, cut=10),
        Fault("POST", "/commit/", times=1, lose=True),
        Fault("POST", "/tag/", times=1, lose=True),
        Fault("GET", "/tree/", times=1, cut=0),
    ],
    ids=lambda fault: f"{fault.method} {fault.path} {fault.times} {'lost' if fault.lose else fault.status or 'cut'}",
)
def test_trouble_that_passes_costs_nothing(hub: WritableHub, corpus: ReleasedCorpus, slept: list[float], fault: Fault):
    hub.faults.append(fault)
    pushed = corpus.push(REPO)
    assert fault.times == 0
    assert corpus.files.items() <= hub.held.items()
    assert len(hub.commits) == 2
    assert hub.tags == {pushed.tag: hub.head.oid}
    assert max(hub.uploads.values()) <= 1 + (fault.method == "PUT" and fault.lose)


def test_of_two_writers_the_later_looks_again(hub: WritableHub, corpus: ReleasedCorpus, slept: list[float]):
    hub.faults.append(
        Fault("POST", "/commit/", meanwhile=lambda: hub.commit({"theirs.txt": File(b"theirs", False)}, []))
    )
    corpus.push(REPO)
    assert [len(commit.sent) for commit in hub.commits] == [1, 1, len(corpus.files)]
    assert hub.held["theirs.txt"]
    assert only_once(hub)
    assert any("somebody else commits" in line for line in corpus.logged)


def test_a_release_that_is_rewritten_while_it_is_sent_is_sent_as_it_became(
    hub: WritableHub, corpus: ReleasedCorpus, slept: list[float]
):
    made = page_tables(1, pages=4)
    hub.faults.append(Fault("POST", "/preupload/", meanwhile=lambda: corpus.put(page_tables(0), made)))
    pushed = corpus.push(REPO)
    assert {path: sha256 for path, sha256 in hub.held.items() if path != ".gitattributes"} == corpus.files
    assert corpus.push(REPO).tag == pushed.tag
    assert len(hub.commits) == 2


@pytest.mark.services
@pytest.mark.parametrize("which", [("PUT", "/storage/", 8), ("POST", "/commit/", 1), ("POST", "/tag/", 1)])
def test_killed_and_run_again_it_goes_on_where_it_was(
    hub: WritableHub, corpus: ReleasedCorpus, which: tuple[str, str, int]
):
    method, path, number = which
    settings = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_DISABLE_XET": "1",
        "HF_TOKEN": WRITER,
        "HF_HOME": str(corpus.home / "hf"),
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes.push_child", str(corpus.home), REPO],
        cwd=ROOT,
        env=os.environ | settings,
    )
    hub.faults += [
        *([Fault(method, path, times=number - 1, meanwhile=lambda: None)] if number > 1 else []),
        Fault(method, path, cut=0, meanwhile=lambda: os.kill(child.pid, signal.SIGKILL)),
    ]
    assert child.wait() == -signal.SIGKILL
    assert not hub.tags
    # The client sends five files at once, so some are complete when the eighth begins.
    assert hub.uploads
    pushed = corpus.push(REPO)
    assert set(hub.uploads.values()) == {1}
    assert corpus.files.items() <= hub.held.items()
    assert len(hub.commits) == 2
    assert hub.tags == {pushed.tag: hub.head.oid}


REFUSED = {
    "the token may not write to it": {"token": READER},
    "the Hub does not take the token": {"token": "hf_nobody0123456789"},
    "no such dataset that the token may see": {"missing": True},
    "the storage of someone on the Hub is full": {"quota": 100},
}


@pytest.mark.parametrize("says", REFUSED)
def test_what_the_hub_refuses_is_one_line_without_the_token(
    hub: WritableHub, corpus: ReleasedCorpus, monkeypatch: pytest.MonkeyPatch, slept: list[float], says: str
):
    case = REFUSED[says]
    monkeypatch.setenv("HF_TOKEN", case.get("token", WRITER))
    hub.missing, hub.quota = case.get("missing", False), case.get("quota")
    with pytest.raises(HubError, match=says) as raised:
        corpus.push(REPO)
    assert len(str(raised.value).splitlines()) == 1
    assert "hf_" not in f"{raised.value}{corpus.logged}".replace("hf_release", "")
    assert raised.value.__suppress_context__
    assert len(hub.commits) == 1
    assert not hub.tags


def test_a_missing_repository_is_made_when_the_profile_says_so(hub: WritableHub, corpus: ReleasedCorpus):
    hub.commits.clear()
    hub.missing = True
    corpus.push(REPO, create=True)
    assert corpus.files.items() <= hub.held.items()


def test_a_hub_that_keeps_failing_is_given_up_in_one_line(hub: WritableHub, corpus: ReleasedCorpus, slept: list[float]):
    hub.faults.append(Fault("POST", "/commit/", times=99, status=500, says="out of order"))
    with pytest.raises(HubError, match=r"the Hub answered 500 \(out of order\); what was sent stays"):
        corpus.push(REPO)
    hub.faults.clear()
    corpus.push(REPO)
    assert corpus.files.items() <= hub.held.items()
    assert only_once(hub)


def test_a_commit_that_is_not_the_release_is_not_tagged(hub: WritableHub, corpus: ReleasedCorpus):
    path = "data/pages/shard_01.parquet"

    def damage() -> None:
        hub.stored[corpus.files[path]] = b"damaged"

    hub.faults.append(Fault("POST", "/commit/", meanwhile=damage))
    with pytest.raises(HubError, match=rf"differs from the release in 1 files \(~ {path}.*it was not tagged"):
        corpus.push(REPO)
    assert not hub.tags


def test_a_release_that_lacks_shards_is_pushed_without_a_tag(hub: WritableHub, corpus: ReleasedCorpus):
    corpus.shards.append("shard_02")
    with pytest.raises(ClosedGate, match="1 of 3 shards are missing, shard_02 first: no tag v1"):
        corpus.push(REPO, tag="v1")
    assert len(hub.commits) == 1
    assert corpus.push(REPO).tag is None
    assert not hub.tags
    corpus.says["gates"] = Gates(max_lost_share=0.5)
    corpus.put(page_tables(0), page_tables(1), page_tables(2))
    assert corpus.push(REPO, tag="v1").tag == "v1"
    assert list(hub.tags) == ["v1"]


def test_a_shard_whose_files_are_of_two_runs_is_not_pushed(hub: WritableHub, corpus: ReleasedCorpus):
    (corpus.folder / "data/pages/shard_01.parquet").write_bytes(
        (corpus.folder / "data/pages/shard_00.parquet").read_bytes()
    )
    sums = corpus.folder / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(True) if "pages/shard_01" not in line))
    with pytest.raises(StoreError, match="files of shard_01 are not those of one run"):
        corpus.push(REPO)
    assert not hub.asked


def test_lost_pages_keep_a_release_off_the_hub_until_a_reason_is_given(hub: WritableHub, corpus: ReleasedCorpus):
    corpus.shards.append("shard_02")
    corpus.put(*(page_tables(n) for n in range(3)))
    with pytest.raises(ClosedGate, match=r"3 of 9 pages failed or are quarantined, more than gates.max_lost_share"):
        corpus.push(REPO)
    assert not hub.asked
    corpus.says["gates"] = Gates(override="a *trial* | of three pages")
    corpus.push(REPO)
    card = hub.head.files["README.md"].content.decode()
    assert "> - Published all the same, because: a \\*trial\\* \\| of three pages" in card
    assert "3 of 9 pages failed or are quarantined" in card


def test_retrieval_that_got_worse_keeps_a_release_off_the_hub(hub: WritableHub, corpus: ReleasedCorpus):
    corpus.says["retrieval_problems"] = ["text recall@10 fell from 0.80 to 0.60"]
    with pytest.raises(ClosedGate, match="text recall@10 fell"):
        corpus.push(REPO)
    assert not hub.asked


@pytest.mark.parametrize(
    ("stated", "under", "says"),
    [
        ("CC-BY-ND-4.0", None, "permits no derivatives"),
        ("my own", None, "pages under 'my own': its terms are not known"),
        (None, None, "pages without a stated licence: nobody has said what may be done with them"),
        ("CC-BY-SA-4.0", "cc-by-4.0", "share-alike and does not permit a release under cc-by-4.0"),
        ("CC-BY-NC-4.0", "cc-by-4.0", "not for commerce"),
        ("GPL-2", "gfdl", "share-alike"),
        ("CC-BY-SA-4.0", "my own", "none of the licences whose terms are known"),
        ("공공누리 제4유형", None, "permits no derivatives"),
    ],
)
def test_a_licence_that_does_not_allow_it_keeps_a_release_off_the_hub(
    hub: WritableHub, tmp_path: Path, stated: str | None, under: str | None, says: str
):
    corpus = ReleasedCorpus(tmp_path, ["shard_00"], {"publish_under": under})
    corpus.put(page_tables(0, license=stated))
    with pytest.raises(ClosedGate, match=says):
        corpus.push(REPO)
    assert not hub.asked
    corpus.says["gates"] = Gates(license_override="the authors agreed")
    corpus.push(REPO)
    assert "because: the authors agreed" in hub.head.files["README.md"].content.decode()


@pytest.mark.parametrize(
    ("stated", "under"),
    [
        ("CC-BY-SA-4.0", "cc-by-sa-4.0"),
        ("CC-BY-SA-3.0", "cc-by-sa-4.0"),
        ("CC-BY-4.0", "cc-by-sa-4.0"),
        ("CC0-1.0", "cc-by-4.0"),
        ("KOGL Type 1", "cc-by-4.0"),
        ("공공누리 제1유형", "cc-by-sa-4.0"),
        ("MPL-2.0", "gpl-3.0"),
        ("GPL-2.0-or-later (x)", None),
        (unicodedata.normalize("NFD", "공공누리 제1유형"), "cc-by-4.0"),
    ],
)
def test_licences_that_go_together(stated: str, under: str | None):
    assert refusals({stated: 3}, under) == []


def test_the_licence_of_the_release_is_that_of_its_card(tmp_path: Path, hub: WritableHub):
    corpus = ReleasedCorpus(tmp_path, ["shard_00"], {"publish_under": "cc-by-sa-4.0"})
    corpus.put(page_tables(0, license="CC-BY-4.0"))
    corpus.push(REPO)
    assert front_matter(corpus.folder)["license"] == ["cc-by-sa-4.0"]


def test_a_shard_is_never_divided_between_commits(
    hub: WritableHub, corpus: ReleasedCorpus, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(release_hub, "FILES_PER_COMMIT", 10)
    corpus.push(REPO)
    shards = [{path.split("shard_")[1] for path in commit.sent if "shard_" in path} for commit in hub.commits[1:]]
    assert shards == [{"00.parquet"}, {"01.parquet"}, set()]
    assert set(hub.head.sent) == TEXTS
    assert corpus.files.items() <= hub.held.items()


@pytest.mark.parametrize(("shards", "expected"), [(35, 1), (124, 1), (640, 6)])
def test_commits_stay_few_and_bounded(shards: int, expected: int):
    paths = [part_path(config, f"shard_{at:02d}") for at in range(shards) for config in CONFIGS]
    planned = plan_commits(HubDifference(added=[HubChange(path, 1, None) for path in [*paths, *TEXTS]]))
    assert len(planned) == expected
    assert all(len(sent) <= release_hub.FILES_PER_COMMIT for sent, _ in planned)


def test_a_tag_that_is_taken_is_found_out_before_anything_is_sent(hub: WritableHub, corpus: ReleasedCorpus):
    first = corpus.push(REPO, "v1")
    corpus.put(page_tables(0), page_tables(1, pages=4))
    with pytest.raises(HubError, match=r"the tag v1 is at commit .* already; choose another name"):
        corpus.push(REPO, "v1")
    assert len(hub.commits) == 2
    assert hub.tags == {"v1": first.commit}
    assert corpus.push(REPO, "v2").tag == "v2"


def test_a_tag_at_an_older_commit_of_the_same_files_is_not_taken_for_the_present_one(
    hub: WritableHub, corpus: ReleasedCorpus
):
    first = corpus.push(REPO, "v1")
    hub.commit({"notes.txt": File(b"of somebody else", False)}, [])
    with pytest.raises(HubError, match=rf"the tag v1 is at commit {first.commit[:8]} already; choose another name"):
        corpus.push(REPO, "v1")


def test_a_card_that_says_something_else_is_another_release(hub: WritableHub, corpus: ReleasedCorpus):
    first = corpus.push(REPO)
    corpus.says["limits"] = ["Pages of forms are read poorly."]
    second = corpus.push(REPO)
    assert hub.head.sent == ["README.md", "SHA256SUMS"]
    assert hub.tags == {first.tag: first.commit, second.tag: second.commit}


def test_a_manifest_that_no_release_wrote_is_replaced(hub: WritableHub, corpus: ReleasedCorpus):
    corpus.push(REPO)
    hub.commit({"manifest.json": File(b'{"name": "app"}', False)}, [])
    corpus.shards = ["shard_00"]
    removed = corpus.push(REPO).difference.removed
    assert {change.rows for change in removed} == {None}
    assert corpus.files.items() <= hub.held.items()


def test_without_a_repository_nothing_can_be_pushed(corpus: ReleasedCorpus):
    with pytest.raises(HubError, match=r"no repository is configured: set hub\.repo"):
        corpus.push("")
    with pytest.raises(KopubError, match="holds no shard"):
        ReleasedCorpus(corpus.home / "empty").push(REPO)
    with pytest.raises(ValueError, match="repo"):
        HubTarget(repo="https://huggingface.co/datasets/a/b")


def test_nothing_that_is_written_holds_the_token(hub: WritableHub, corpus: ReleasedCorpus, slept: list[float]):
    hub.faults.append(Fault("POST", "/commit/", status=403, says=f"{WRITER} may not"))
    with pytest.raises(HubError) as raised:
        corpus.push(REPO)
    corpus.push(REPO)
    assert WRITER not in f"{raised.value}{corpus.logged}"
    assert not [path for path, content in contents(corpus.home).items() if WRITER.encode() in content]


def kopub(home: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return commands.kopub({"KOPUB_HOME": str(home), "KOPUB_HUB__REPO": REPO} | environment, *command)


def test_the_command_shows_the_difference_and_then_makes_it(hub: WritableHub, corpus: ReleasedCorpus):
    open_gates = {"KOPUB_GATES__OVERRIDE": "a trial"}
    dry = kopub(corpus.home, "publish", "--dry-run", **open_gates)
    assert dry.returncode == 0, dry.stderr
    assert {method for method, _ in hub.asked} == {"GET"}
    size = (corpus.folder / "data/pages/shard_00.parquet").stat().st_size
    assert f"+ data/pages/shard_00.parquet ({size:,} bytes, 3 rows)" in dry.stdout.splitlines()
    lines = dry.stdout.splitlines()
    added, *rest = lines[next(at for at, line in enumerate(lines) if " files added: " in line) :]
    assert added.startswith(f"{len(corpus.files)} files added: ")
    assert rest[:2] == ["0 files changed: 0 bytes, 0 rows", "0 files removed: 0 bytes, 0 rows"]
    assert rest[-1] == "the gates are open"
    done = kopub(corpus.home, "publish", "--tag", "v1", **open_gates)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == f"{hub.url}/datasets/{REPO}/commit/{hub.head.oid}, tag v1"
    assert hub.tags == {"v1": hub.head.oid}
    assert corpus.files.items() <= hub.held.items()
    assert WRITER not in dry.stdout + dry.stderr + done.stdout + done.stderr


def test_the_command_publishes_no_scores_of_other_vectors(hub: WritableHub, corpus: ReleasedCorpus):
    measured = {"shard_00": {"parsed_texts": "texts of shard_00"}, "shard_01": {"parsed_texts": "older texts"}}
    known = {"retriever": "text", "convention": "any", "query_type": "all", "metric": "recall@10", "dropped": True}
    row = {**known, "queries": 9, "value": 0.5, "low": 0.25, "high": 0.75}
    scores = pa.Table.from_pylist([row], RETRIEVAL_SCORES)
    metrics.HISTORY.write_scores(corpus.store, scores, "i", "", measured)
    stale = kopub(corpus.home, "publish")
    assert stale.returncode == 1
    assert stale.stderr.startswith(
        "Error: not published: retrieval was not measured on what is released of 1 shards, shard_01 first: "
        "materialize retrieval_scores; give gates.override"
    )
    assert len(stale.stderr.splitlines()) == 1
    assert not hub.asked
    told = kopub(corpus.home, "publish", KOPUB_GATES__OVERRIDE="a trial")
    assert told.returncode == 0, told.stderr
    card = hub.head.files["README.md"].content.decode()
    assert "retrieval was not measured on what is released of 1 shards" in card
    assert "recall@10" not in card


def test_the_gates_are_shown_without_a_repository(hub: WritableHub, corpus: ReleasedCorpus):
    strict = {"KOPUB_HUB__REPO": "", "KOPUB_GATES__MAX_DOUBTFUL_SHARE": "0"}
    shown = kopub(corpus.home, "publish", "--dry-run", **strict)
    assert not hub.asked
    *_, last = shown.stdout.splitlines()
    assert shown.stdout.startswith("no repository: set hub.repo in the profile")
    told = kopub(corpus.home, "publish", "--dry-run", "--json", **strict)
    value = json.loads(told.stdout)
    assert (value["repo"], value["difference"]) == (None, None)
    assert shown.returncode == told.returncode == bool(value["closed"])
    assert last.startswith("the gates are closed" if value["closed"] else "the gates are open")
    assert [line.partition(": ")[2] for line in shown.stdout.splitlines() if line.startswith("closed: ")] == [
        *value["quality"],
        *value["licences"],
    ]
    (unjudged,) = [line for line in shown.stdout.splitlines() if line.startswith("not judged: ")]
    assert [unjudged.partition(": ")[2]] == value["unjudged"]


def test_the_gates_are_shown_although_the_hub_does_not_answer(hub: WritableHub, corpus: ReleasedCorpus):
    hub.faults.append(Fault("GET", "/", times=99, status=403))
    shown = kopub(corpus.home, "publish", "--dry-run")
    assert (shown.returncode, shown.stdout.splitlines()[-1][:13]) == (1, "the gates are")
    assert shown.stderr.startswith(f"Error: {REPO}: ")
    told = kopub(corpus.home, "publish", "--dry-run", "--json")
    assert (told.returncode, json.loads(told.stdout)["difference"]) == (1, None)


def test_the_command_is_one_line_when_it_cannot(hub: WritableHub, corpus: ReleasedCorpus):
    nobody = kopub(corpus.home, "publish", KOPUB_HUB__REPO="")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert nobody.stderr == "Error: no repository is configured: set hub.repo in the profile, or KOPUB_HUB__REPO\n"
    reader = kopub(corpus.home, "publish", HF_TOKEN=READER)
    assert reader.returncode == 1
    assert reader.stderr.startswith(f"Error: {REPO}: the token may not write to it (")
    assert len(reader.stderr.splitlines()) == 1
    assert READER not in reader.stderr
    pushing = kopub(corpus.home, "status", KOPUB_HUB__PUSH="true")
    assert pushing.stderr.startswith("Error: profile cpu: hub has no key 'push'")
