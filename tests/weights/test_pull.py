"""`kopub pull` and the doctor's check of weights: the real client, a Hub double."""

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import BinaryIO

import pytest
from huggingface_hub import constants
from typer.testing import CliRunner, Result

from kopub.cli.main import app
from kopub.doctor.checks import Finding, Level
from kopub.doctor.environment import check_weights
from kopub.recognition.ppocr import recognizer
from kopub.recognition.ppocr.recognizer import PpOcrRecognizer
from kopub.weights.fetch import PARTIAL
from kopub.weights.files import WeightsFile
from kopub.weights.hub import Weights, snapshot_folder
from tests.doubles.hubs.model_hub import COMMIT, ModelHub
from tests.weights.conftest import CONTENT

PIN = Weights("example/layout", COMMIT, ("layout",))
PROFILE = """
layout: {{engine: pp_doclayout, repo: {repo}, revision: {revision}}}
recognition: {{engine: tesseract}}
embedding: {{engine: hashed}}
"""
Pull = Callable[..., Result]


@pytest.fixture
def pull(tmp_path: Path) -> Pull:
    """Return a function that runs `kopub pull` with a profile that pins one model."""

    def run(repo: str = PIN.repo, revision: str = COMMIT) -> Result:
        profile = tmp_path / "mine.yaml"
        profile.write_text(PROFILE.format(repo=repo, revision=revision))
        return CliRunner().invoke(app, ["pull", "--profile", str(profile)])

    return run


def found(pin: Weights = PIN) -> dict[str, Finding]:
    return {finding.check: finding for finding in check_weights([pin])}


def test_weights_are_fetched_once_and_proven(model_hub: ModelHub, pull: Pull) -> None:
    assert found()["layout weights"].level is Level.WARNING
    first = pull()
    assert first.exit_code == 0, first.output
    assert "example/layout at 3c3c3c3c: 0.00 GB" in first.output
    assert "sizes and hashes are the Hub's" in first.output
    names = {path.name for path in snapshot_folder(PIN).iterdir()}
    assert names == {"config.json", "model.safetensors"}, "pictures and cards are no weights"
    sent = model_hub.sent
    assert pull().exit_code == 0
    assert model_hub.sent == sent, "what is there and whole is not fetched again"
    assert {finding.level for finding in found().values()} == {Level.OK}
    assert "sizes and hashes are the Hub's" in found()["layout weights"].says


def test_an_interrupted_file_goes_on_where_it_stopped(
    model_hub: ModelHub, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 50_000)
    model_hub.cut = [200_000, *[0] * 10]
    broken = pull()
    assert broken.exit_code == 1
    assert "the Hub cannot be reached" in str(broken.exception)
    assert "what was fetched is kept" in str(broken.exception)
    half = found()["layout weights"]
    assert half.level is Level.WARNING
    assert "were begun" in half.says
    model_hub.cut, model_hub.sent = [], 0
    assert pull().exit_code == 0
    assert model_hub.sent == 100_000
    assert found()["layout weights"].level is Level.OK


def test_what_was_begun_and_is_larger_than_its_file_is_fetched_anew(model_hub: ModelHub, pull: Pull) -> None:
    pull()
    blob = (snapshot_folder(PIN) / "model.safetensors").resolve()
    begun, content = blob.with_name(f"{blob.name}{PARTIAL}"), blob.read_bytes()
    begun.write_bytes(content + b"x")
    blob.unlink()
    model_hub.sent = 0
    assert pull().exit_code == 0
    assert model_hub.sent == len(content)
    assert found()["layout weights"].level is Level.OK


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[:150_000], "150,000 of 300,000 bytes"),
        (lambda data: bytes([data[0] ^ 1]) + data[1:], "its hash is"),
    ],
    ids=["half a file", "wrong hash"],
)
@pytest.mark.parametrize("offline", [False, True])
def test_a_damaged_file_is_found_and_fetched_anew(
    model_hub: ModelHub,
    pull: Pull,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[bytes], bytes],
    says: str,
    offline: bool,
) -> None:
    pull()
    blob = (snapshot_folder(PIN) / "model.safetensors").resolve()
    blob.write_bytes(spoil(blob.read_bytes()))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    damaged = found()["layout weights"]
    assert damaged.level is Level.PROBLEM
    assert "model.safetensors is damaged" in damaged.says
    assert says in damaged.says
    assert "kopub pull" in damaged.do
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    healed = pull()
    assert healed.exit_code == 0, healed.output
    assert "is fetched again" in healed.output
    assert found()["layout weights"].level is Level.OK


def test_without_a_list_the_cache_says_what_it_holds(
    model_hub: ModelHub, pull: Pull, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pull()
    # Caches filled by transformers and vLLM have no list; the client remembers lists by folder, hence the move.
    shutil.rmtree(snapshot_folder(PIN).parents[1] / "trees")
    (tmp_path / "hf").rename(tmp_path / "elsewhere")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    model_hub.status = 503
    checks = found()
    assert checks["hub"].level is Level.WARNING
    assert "hashes are those that the cache names them by" in checks["layout weights"].says
    (snapshot_folder(PIN) / "model.safetensors").unlink()
    checks = found()
    assert "model.safetensors are not in the cache" in checks["layout weights"].says
    assert checks["layout weights"].level is Level.PROBLEM


@pytest.mark.parametrize("index", ['{"weight_', '{"metadata": {}}', "[]"])
def test_a_damaged_index_in_a_copied_cache_is_one_line(
    model_hub: ModelHub, monkeypatch: pytest.MonkeyPatch, index: str
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    folder = snapshot_folder(PIN)
    folder.mkdir(parents=True)
    for name, content in (("config.json", "{}"), ("model.safetensors.index.json", index)):
        (folder / name).write_text(content)
    damaged = found()["layout weights"]
    assert damaged.level is Level.PROBLEM
    assert "model.safetensors.index.json is damaged" in damaged.says


def test_no_network_is_one_line_and_a_whole_cache_will_do(
    model_hub: ModelHub, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull()
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    silent = pull()
    assert silent.exit_code == 1
    assert str(silent.exception).startswith("example/layout at 3c3c3c3c: the Hub cannot be reached")
    assert "\n" not in str(silent.exception)
    checks = found()
    assert (checks["hub"].level, checks["layout weights"].level) == (Level.WARNING, Level.OK)
    shutil.rmtree(snapshot_folder(PIN))
    checks = found()
    assert (checks["hub"].level, checks["layout weights"].level) == (Level.PROBLEM, Level.PROBLEM)


def test_offline_asks_nobody(model_hub: ModelHub, pull: Pull, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused = pull()
    assert refused.exit_code == 1
    assert "HF_HUB_OFFLINE is set" in str(refused.exception)
    checks = found()
    assert "HF_HUB_OFFLINE" in checks["hub"].says
    assert checks["layout weights"].level is Level.PROBLEM
    assert model_hub.asked == []


@pytest.mark.parametrize(
    ("pin", "says"),
    [
        ((PIN.repo, "ab" * 20), "no such commit"),
        (("example/other", COMMIT), "no such repository"),
    ],
)
def test_a_wrong_pin_is_one_line(model_hub: ModelHub, pull: Pull, pin: tuple[str, str], says: str) -> None:
    refused = pull(*pin)
    assert refused.exit_code == 1
    assert says in str(refused.exception)
    assert "models.yaml" in str(refused.exception)
    assert "\n" not in str(refused.exception)
    checks = found(Weights(*pin, ("layout",)))
    assert checks["layout weights"].level is Level.PROBLEM
    assert says in checks["layout weights"].says
    assert "models.yaml" in checks["layout weights"].do


def test_a_gated_model_says_where_to_ask(model_hub: ModelHub, pull: Pull) -> None:
    model_hub.status, model_hub.error = 403, "GatedRepo"
    assert "grant access on its page" in str(pull().exception)


def test_a_disk_without_room_is_told_beforehand(
    model_hub: ModelHub, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=200_000))
    refused = pull()
    assert "has room for 0.0" in str(refused.exception)
    assert "HF_HUB_CACHE" in str(refused.exception)
    assert model_hub.sent == 0
    room = found()["disk for weights"]
    assert room.level is Level.PROBLEM


def test_a_disk_that_fills_up_meanwhile_keeps_what_was_fetched(
    model_hub: ModelHub, pull: Pull, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fills_up(url: str, target: BinaryIO, **_: object) -> None:
        target.write(b"x" * 1000)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("kopub.weights.fetch.http_get", fills_up)
    refused = str(pull().exception)
    assert "the disk is full; what was fetched is kept" in refused
    assert "\n" not in refused
    assert "were begun" in found()["layout weights"].says


def test_what_the_hub_sends_is_proven(model_hub: ModelHub, pull: Pull) -> None:
    model_hub.served["model.safetensors"] = b"y" * 300_000
    assert "is not whole (its hash is" in str(pull().exception)


def test_a_profile_without_weights_says_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["pull", "--profile", "cpu"])
    assert (done.exit_code, done.output) == (0, "The profile cpu takes no weights from the Hub.\n")


def test_a_file_at_an_address_is_fetched_by_its_hash_and_no_other_is_taken_for_it(
    model_hub: ModelHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(recognizer, "missing_modules", lambda *_: [])
    (tmp_path / "ppocr.yaml").write_text("extends: cpu\nrecognition: {engine: ppocr}\n")
    url = f"{constants.ENDPOINT}/{model_hub.repository}/resolve/{COMMIT}/model.safetensors"

    def pulled(sha256: str) -> tuple[Result, WeightsFile]:
        file = WeightsFile(url, sha256)
        monkeypatch.setattr(recognizer, "KOREAN", file)
        assert "type `kopub pull`" in PpOcrRecognizer().lacks()[0]
        return CliRunner().invoke(app, ["pull", "--profile", str(tmp_path / "ppocr.yaml")]), file

    refused, file = pulled("0" * 64)
    assert "is not the pinned one" in str(refused.exception)
    assert not file.path.exists()
    done, file = pulled(hashlib.sha256(CONTENT).hexdigest())
    assert "0.3 MB, its hash is the pinned one" in done.output
    assert PpOcrRecognizer().lacks() == []
    assert PpOcrRecognizer().weights()["model"] == file.sha256
    file.path.write_bytes(CONTENT[:-1])
    assert "not whole" in PpOcrRecognizer().lacks()[0]
