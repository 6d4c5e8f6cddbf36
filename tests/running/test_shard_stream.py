"""Shards that an engine makes in one call overlap, and each succeeds or fails alone."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakSet

import dagster as dg
import psutil
import pytest
from aiohttp import web

from kopub.layout.pp_doclayout import detector
from kopub.layout.pp_doclayout.detector import PPDocLayout
from kopub.layout.pp_doclayout.process import ModelProcess
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.states import State
from kopub.store import append_log
from kopub.store.schemas import OCR_RESULTS
from kopub.store.table_store import ShardStore
from kopub.tables import shard_loop
from kopub.tables.asset import PublishedShard
from kopub.tables.shard_work import ShardWork
from kopub.vllm.client import worker_pool
from kopub.vllm.server import VLLMServer
from tests.doubles.engines import SpanningLayout
from tests.doubles.full_disk import FullDisk
from tests.doubles.http_double import HttpDouble, Reply, SentRequest, says
from tests.support.checkpoints.tiny_checkpoints import save_pp_doclayout
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.harness import Platform, failure
from tests.support.installed import needs
from tests.support.processes import forked
from tests.support.processes.two_writers import OnObjects
from tests.support.sources.corpora import Page, page_image
from tests.support.waiting import SOON, until

IDS = (("a_1", "a_2"), ("b_1", "b_2"), ("c_1", "c_2"))
BEFORE = "raw_pages,layout_regions"
GONE = "a client process died while it worked on nothing else"


def width(page_id: str) -> int:
    """Return a width that no other page has, so that requests identify their page."""
    return 280 + 28 * [each for shard in IDS for each in shard].index(page_id)


def drawn(*ids: str) -> list[Page]:
    return [(page_id, page_image(width(page_id), (width(page_id), 280))) for page_id in ids]


def page_of(asked: SentRequest) -> str:
    return next(page_id for shard in IDS for page_id in shard if width(page_id) == asked.size[0])


def pages_of(*doubles: HttpDouble) -> list[str]:
    return sorted(page_of(asked) for double in doubles for asked in double.asked)


def reader(*urls: str, **fields: Any) -> GlmOcrRecognizer:
    """Return a reader with too few requests to take all pages at once."""
    server = VLLMServer(model="glm", revision="r1", mode="external", urls=list(urls), images_per_prompt=0)
    return GlmOcrRecognizer(**{"server": server, "processes": 1, "in_flight": 2, "retry_seconds": 0.001, **fields})


def laid_out(home: Path, shards: int = 2) -> Platform:
    """Return a platform with everything made that comes before the recognition."""
    platform = Platform.of(home, [drawn(*ids) for ids in IDS[:shards]])
    assert platform.run(BEFORE, last=f"shard_0{shards - 1}").success
    return platform


def recognize(platform: Platform, shards: int = 2) -> dg.ExecuteInProcessResult:
    return platform.run("ocr_results", last=f"shard_0{shards - 1}")


def told(result: dg.ExecuteInProcessResult, asset: str = "ocr_results") -> dict[str | None, dict[str, Any]]:
    """Return the metadata of the shards that were made."""
    return {
        made.partition: {name: value.value for name, value in made.metadata.items()}
        for made in result.asset_materializations_for_node(asset)
        if made.asset_key == dg.AssetKey(asset)
    }


def answers(**held: Callable[[], Any]) -> Reply:
    """Return a reply with the id of each page; `held` pages wait for their condition."""

    async def reply(asked: SentRequest) -> web.StreamResponse:
        page_id = page_of(asked)
        deadline = time.monotonic() + SOON
        while page_id in held and not held[page_id]():
            assert time.monotonic() < deadline, "it never came to that"
            await asyncio.sleep(0.01)
        return says(f"글 {page_id}")

    return reply


def has(platform: Platform, shard: str) -> Callable[[], bool]:
    return lambda: platform.store.has("ocr_results", shard)


def test_the_next_shard_is_read_while_the_last_answer_of_one_is_awaited(tmp_path: Path):
    platform = laid_out(tmp_path)
    with HttpDouble() as double:
        double.reply = answers(a_2=lambda: "b_1" in pages_of(double))
        platform.engines["recognition"] = reader(double.url)
        started = time.monotonic()
        result = recognize(platform)
        took = time.monotonic() - started
    assert result.success
    assert platform.rows("ocr_results", "shard_01")["b_2"]["regions"][0]["content"] == "글 b_2"
    shards = told(result)
    for figures in shards.values():
        counts = (figures["computed"], figures["kept"], figures["requests"], figures["ok"])
        assert counts == (2, 0, 2.0, 2)
    assert 0 < sum(figures["seconds"] for figures in shards.values()) <= took


@pytest.mark.parametrize(("last", "other"), [("b_2", "shard_00"), ("a_1", "shard_01")])
def test_a_shard_is_published_as_soon_as_it_is_complete(tmp_path: Path, last: str, other: str):
    platform = laid_out(tmp_path)
    with HttpDouble(answers(**{last: has(platform, other)})) as double:
        platform.engines["recognition"] = reader(double.url, in_flight=4)
        assert recognize(platform).success


def test_rows_are_journalled_while_the_last_of_their_shard_is_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The clock advances a second per reading, so a flush is due after 100 readings."""
    seconds = 0

    def clock() -> int:
        nonlocal seconds
        seconds += 1
        return seconds

    monkeypatch.setattr(append_log, "time", SimpleNamespace(monotonic=clock, time_ns=time.time_ns))
    platform = Platform.of(tmp_path, [drawn("a_1", "a_2", "c_1"), drawn("b_1", "b_2")])
    assert platform.run(BEFORE, last="shard_01").success

    def written() -> int:
        return platform.store.journal("ocr_results", "shard_00", OCR_RESULTS).rows().num_rows

    def later() -> bool:
        """Return whether 50 looks (0.5 s) saw the first row; then an hour passes."""
        nonlocal seconds
        looks.append(written() > 0)
        if sum(looks) == 50:
            seconds += 3600
        return sum(looks) >= 50

    looks: list[bool] = []
    held = {"c_1": lambda: written() == 2, "b_1": later}
    with HttpDouble(answers(**held)) as double:
        platform.engines["recognition"] = reader(double.url, in_flight=8)
        assert recognize(platform).success


@pytest.mark.slow
def test_client_processes_are_started_once_for_all_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started: list[Any] = []
    start = worker_pool.start_process
    monkeypatch.setattr(worker_pool, "start_process", lambda *given: started.append(start(*given)) or started[-1])
    platform = laid_out(tmp_path, shards=3)
    with HttpDouble(answers()) as double:
        platform.engines["recognition"] = reader(double.url, processes=2)
        assert recognize(platform, shards=3).success
        assert len(started) == 2
        assert pages_of(double) == sorted(page for ids in IDS for page in ids)


def sender(asked: SentRequest) -> psutil.Process:
    """Return the client process that sent a request."""
    assert asked.request.transport is not None
    port = asked.request.transport.get_extra_info("peername")[1]
    for process in psutil.Process().children():
        with suppress(psutil.Error):
            if any(each.laddr.port == port for each in process.net_connections()):
                return process
    raise AssertionError("nobody sent it")


@pytest.mark.services
@pytest.mark.parametrize("deaths", [1, 2])
def test_a_killed_client_process_costs_nothing_and_a_page_that_kills_them_only_itself(tmp_path: Path, deaths: int):
    """The page's shard is published before the last shard is read, not after the run."""
    platform = laid_out(tmp_path, shards=3)
    killed: list[int] = []

    async def reply(asked: SentRequest) -> web.StreamResponse:
        if page_of(asked) == "a_2" and len(killed) < deaths:
            killed.append(sender(asked).pid)
            os.kill(killed[-1], signal.SIGKILL)
            await asyncio.sleep(SOON)
        return await answers(c_2=has(platform, "shard_00"))(asked)

    with HttpDouble(reply) as double:
        platform.engines["recognition"] = reader(double.url, processes=2, in_flight=8)
        result = recognize(platform, shards=3)
    assert result.success
    assert len(set(killed)) == deaths
    lost = {"a_2"} if deaths == 2 else set()
    for shard, ids in enumerate(IDS):
        states = platform.states("ocr_results", f"shard_0{shard}")
        assert states == {page_id: State.FAILED if page_id in lost else State.OK for page_id in ids}
    assert {row["reason"] for row in platform.rows("ocr_results").values()} == ({None, GONE} if lost else {None})


@pytest.mark.slow
def test_a_replica_that_hangs_costs_no_shard(tmp_path: Path):
    async def never(asked: SentRequest) -> web.StreamResponse:
        await asyncio.sleep(SOON)
        return says("never seen")

    platform = laid_out(tmp_path, shards=3)
    with HttpDouble(never) as hung, HttpDouble(answers()) as good:
        hung.probe = alive_once(hung)
        platform.engines["recognition"] = reader(hung.url, good.url, request_seconds=0.5)
        assert recognize(platform, shards=3).success
        assert hung.asked
        assert set(pages_of(good)) == {page for ids in IDS for page in ids}


def alive_once(double: HttpDouble) -> Reply:
    """Answer only the first probe: a replica that hangs from the start is left out."""

    async def reply(asked: SentRequest) -> web.StreamResponse:
        if double.probes > 1:
            await asyncio.sleep(SOON)
        return says("alive")

    return reply


@pytest.mark.parametrize("written", ["disk/ocr_results", "disk/.journal/ocr_results", "disk/.ledger/ocr_results"])
def test_a_full_disk_under_one_shard_leaves_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str):
    monkeypatch.setattr(FullDisk, "no_room_for", f"{written}/shard_00")
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS[:2]])
    store = platform.engines["store"] = ShardStore(url=f"fulldisk://{tmp_path.name}-disk")
    assert platform.run(BEFORE, last="shard_01").success
    with HttpDouble(answers()) as double:
        platform.engines["recognition"] = reader(double.url)
        result = recognize(platform)
        assert failure(result).startswith("shard_00: the disk is full: ")
        assert "\n" not in failure(result)
        assert store.footer("ocr_results", "shard_01")[0] == 2
        assert not store.has("ocr_results", "shard_00")


def test_a_shard_that_cannot_be_read_leaves_the_next_and_keeps_what_was_read(tmp_path: Path):
    platform = laid_out(tmp_path)
    with HttpDouble() as double:
        # The first page is still being read when the second is found to have changed.
        double.reply = answers(a_1=lambda: "b_1" in pages_of(double))
        platform.engines["recognition"] = reader(double.url)
        changed = [drawn("a_1"), drawn("b_1", "b_2")]
        changed[0] += [("a_2", page_image(7, (width("a_2"), 280)))]
        platform.reindex(changed)
        result = recognize(platform)
        assert "shard_00: " in failure(result)
        assert "does not hold the bytes that raw_pages saw of 'a_2'" in failure(result)
        assert "\n" not in failure(result)
        assert has(platform, "shard_01")()
        assert pages_of(double) == ["a_1", "b_1", "b_2"]

        platform.reindex([drawn(*ids) for ids in IDS[:2]])
        assert {shard: made["computed"] for shard, made in told(recognize(platform)).items()} == {
            "shard_00": 1,
            "shard_01": 0,
        }
        assert pages_of(double) == ["a_1", "a_2", "b_1", "b_2"]


def spanning(platform: Platform, **fields: Any) -> None:
    platform.engines["layout"] = SpanningLayout(diary=str(platform.home / "layout.diary"), **fields)


def calls(platform: Platform) -> list[str]:
    return [line for line in platform.diary("layout").pages if line == "call"]


def test_answers_in_any_order_come_to_the_shard_they_are_of(tmp_path: Path):
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS])
    spanning(platform)
    result = platform.run(BEFORE, last="shard_02")
    assert result.success
    assert len(calls(platform)) == 1
    assert platform.diary("layout").pages[1:] == [page for ids in reversed(IDS) for page in reversed(ids)]
    for shard, ids in enumerate(IDS):
        rows = platform.rows("layout_regions", f"shard_0{shard}")
        assert {page_id: row["regions"][0]["bbox"][2] for page_id, row in rows.items()} == {
            page_id: width(page_id) for page_id in ids
        }
    assert {shard: made["answers"] for shard, made in told(result, "layout_regions").items()} == {
        "shard_00": 2.0,
        "shard_01": 2.0,
        "shard_02": 2.0,
    }


@pytest.mark.slow
@needs("torch", "transformers")
def test_a_batch_of_the_layout_model_holds_pages_of_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from kopub.layout.pp_doclayout.model import LayoutModel

    batches: list[int] = []
    submit = LayoutModel.submit
    monkeypatch.setattr(LayoutModel, "submit", lambda model, batch: batches.append(len(batch)) or submit(model, batch))
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS])
    weights = save_pp_doclayout(tmp_path / "weights")
    platform.engines["layout"] = PPDocLayout(
        repo=str(weights),
        device="cpu",
        dtype="float32",
        compile=False,
        batch_size=4,
        decode_threads=1,
        own_process=False,
    )
    result = platform.run(BEFORE, last="shard_02")
    assert result.success
    assert batches == [4, 2]
    for figures in told(result, "layout_regions").values():
        assert figures["pages_ok"] == 2
        labels = [count for name, count in figures.items() if name.startswith("label_")]
        assert sum(labels) == figures["regions"] == sum(figures["regions_by_label"].values())
        assert figures["seconds_decode"] > 0


@pytest.mark.slow
@needs("torch", "transformers")
def test_a_layout_model_that_is_killed_costs_what_was_in_flight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS])
    platform.engines["layout"] = PPDocLayout(
        repo=str(save_pp_doclayout(tmp_path / "weights")),
        device="cpu",
        dtype="float32",
        compile=False,
        batch_size=1,
        decode_threads=1,
    )
    loaded, answered, prepare = threading.Event(), threading.Semaphore(0), detector.prepare
    load, run = ModelProcess.__init__, ModelProcess._run

    def loading(model: ModelProcess, start: Any) -> None:
        load(model, start)
        loaded.set()

    def counting(model: ModelProcess, pages: Any, pixels: Any) -> Any:
        answer = run(model, pages, pixels)
        # Concurrent batches are answered in any order.
        for findings in answer:
            if findings.layout.page_id in IDS[0]:
                answered.release()
        return answer

    def deadly(page: Any, gpu_jpeg: bool) -> Any:
        assert loaded.wait(SOON)
        if page.page_id == "b_2":
            # The model has processed both pages of the first shard.
            assert all(answered.acquire(timeout=SOON) for _ in IDS[0])
            for child in psutil.Process().children():
                # A child of another test may have ended, or end now.
                with suppress(psutil.NoSuchProcess):
                    if "pp_doclayout.process" in " ".join(child.cmdline()):
                        child.kill()
        return prepare(page, gpu_jpeg)

    monkeypatch.setattr(ModelProcess, "__init__", loading)
    monkeypatch.setattr(ModelProcess, "_run", counting)
    monkeypatch.setattr(detector, "prepare", deadly)
    result = platform.run(BEFORE, last="shard_02")
    assert "shard_01: the process of the layout model ended by SIGKILL" in failure(result)
    assert platform.store.has("layout_regions", "shard_00")
    assert not platform.store.has("layout_regions", "shard_01")

    monkeypatch.undo()
    again = platform.run(BEFORE, last="shard_02")
    assert again.success
    assert told(again, "layout_regions")["shard_00"]["computed"] == 0
    for shard, ids in enumerate(IDS):
        assert platform.states("layout_regions", f"shard_0{shard}") == dict.fromkeys(ids, State.OK)


def test_shards_without_anything_to_do_are_passed_over(tmp_path: Path):
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS])
    spanning(platform)
    alone = told(platform.run(BEFORE, first="shard_01"), "layout_regions")["shard_01"]
    result = platform.run(BEFORE, last="shard_02")
    assert {shard: made["kept"] for shard, made in told(result, "layout_regions").items()} == {
        "shard_00": 0,
        "shard_01": 2,
        "shard_02": 0,
    }
    assert "seconds" in alone
    assert "seconds" not in told(result, "layout_regions")["shard_01"]
    assert len(calls(platform)) == 2
    assert platform.run(BEFORE, last="shard_02").success
    assert len(calls(platform)) == 2


def test_a_shard_with_journalled_rows_is_not_passed_over_on_object_storage(tmp_path: Path):
    platform = OnObjects.of(tmp_path, [drawn("a_1", "a_2")])
    platform.url = f"memory://{tmp_path.name}"
    platform.make("raw_pages")
    table = platform.store.read("raw_pages", "shard_00").replace_schema_metadata(None)

    def journal() -> append_log.Journal:
        return platform.store.journal("raw_pages", "shard_00", table.schema)

    journal().add(table.to_pylist()[0])
    platform.make("raw_pages")
    assert journal().rows().num_rows == 0


@pytest.mark.slow
@pytest.mark.parametrize("to_make", [(), ("shard_00",)])
def test_tables_of_shards_without_anything_to_do_are_not_gathered(
    to_make: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A corpus may have any number of shards, and a table of pictures is large."""
    platform = Platform.of(tmp_path, [[(f"p_{number}", page_image())] for number in range(12)])
    spanning(platform)
    assert platform.run(BEFORE, last="shard_11").success
    for shard in to_make:
        Path(platform.store.location("layout_regions", shard)).unlink()
    alive: list[int] = []
    works: WeakSet[ShardWork] = WeakSet()
    plan, publish = ShardWork.__init__, ShardWork.publish

    def planned(work: ShardWork, *about: Any) -> None:
        works.add(work)
        gc.collect()
        alive.append(len(works))
        plan(work, *about)

    def published_late(work: ShardWork) -> PublishedShard:
        time.sleep(0.1)
        return publish(work)

    monkeypatch.setattr(ShardWork, "__init__", planned)
    monkeypatch.setattr(ShardWork, "publish", published_late)
    assert platform.run("layout_regions", last="shard_11").success
    assert len(alive) == 12
    assert max(alive) <= 6


def test_an_engine_that_stops_costs_the_shards_it_was_at(tmp_path: Path):
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS])
    spanning(platform, ahead=1, die_on="b_2")
    result = platform.run(BEFORE, last="shard_02")
    assert failure(result) == "shard_01: the engine is out of order; repair it and run again"
    assert set(platform.store.published("layout_regions")) == {"shard_00", "shard_02"}
    assert len(calls(platform)) == 2

    spanning(platform)
    assert told(platform.run(BEFORE, last="shard_02"), "layout_regions")["shard_01"]["computed"] == 1


def test_an_engine_that_finds_fault_with_all_it_did_fails_the_run(tmp_path: Path):
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS[:2]])
    spanning(platform, die_on="at the end")
    result = platform.run(BEFORE, last="shard_01")
    assert failure(result) == "layout: the engine is out of order; repair it and run again"
    assert set(platform.store.published("layout_regions")) == {"shard_00", "shard_01"}


def test_shards_under_way_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shard_loop, "_MOST_OPEN", 2)
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS])
    spanning(platform)
    assert platform.run(BEFORE, last="shard_02").success
    assert len(calls(platform)) == 2


def test_a_page_that_the_engine_forgets_fails_alone(tmp_path: Path):
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS[:2]])
    spanning(platform, forget="a_2")
    assert platform.run(BEFORE, last="shard_01").success
    row = platform.rows("layout_regions")["a_2"]
    assert (row["state"], row["reason"]) == (State.FAILED, "the engine ended without an answer")
    assert platform.states("layout_regions", "shard_01") == {"b_1": State.OK, "b_2": State.OK}


def test_a_page_that_is_in_two_shards_is_not_mixed_up(tmp_path: Path):
    """The page has moved, and one of the two shards has not been made since."""
    platform = Platform.of(tmp_path, [drawn("a_2"), drawn("a_1", "b_2")])
    assert platform.run("raw_pages", last="shard_01").success
    other = page_image(1, (84, 280))
    platform.reindex([[("a_1", other), *drawn("a_2")], drawn("a_1", "b_2")])
    assert platform.run("raw_pages").success
    spanning(platform)
    assert platform.run("layout_regions", last="shard_01").success
    for shard, wide in (("shard_00", 84), ("shard_01", width("a_1"))):
        assert platform.rows("layout_regions", shard)["a_1"]["regions"][0]["bbox"][2] == wide
    assert len(calls(platform)) == 2


def test_a_shard_that_another_run_makes_is_waited_for_once_the_others_are_published(tmp_path: Path):
    platform = Platform.of(tmp_path, [drawn(*ids) for ids in IDS])
    assert platform.run("raw_pages", last="shard_02").success
    spanning(platform)
    with platform.store.exclusive("layout_regions", "shard_01"):
        run = threading.Thread(target=platform.run, args=("layout_regions",), kwargs={"last": "shard_02"})
        run.start()
        until(lambda: platform.store.has("layout_regions", "shard_00"))
        assert not platform.store.has("layout_regions", "shard_02")
    run.join()
    assert platform.states("layout_regions", "shard_02") == {"c_1": State.OK, "c_2": State.OK}
    assert len(calls(platform)) == 2


def recognize_at(home: str, url: str) -> None:
    """Run the recognition in a process that the test kills."""
    recognize(Platform(Path(home), {"recognition": reader(url, in_flight=4)}))


@pytest.mark.services
@pytest.mark.smoke
def test_a_killed_run_costs_what_was_in_flight_in_both_shards(tmp_path: Path):
    platform = laid_out(tmp_path)
    never = threading.Event()
    with HttpDouble(answers(a_2=never.is_set, b_2=never.is_set)) as double:
        child = forked.CONTEXT.Process(target=recognize_at, args=(str(tmp_path), double.url))
        child.start()
        until(lambda: all(map(partial(kept, platform), ("shard_00", "shard_01"))))
        child.kill()
        child.join()
    with HttpDouble(answers()) as double:
        platform.engines["recognition"] = reader(double.url)
        result = recognize(platform)
        assert {shard: made["computed"] for shard, made in told(result).items()} == {"shard_00": 1, "shard_01": 1}
        assert pages_of(double) == ["a_2", "b_2"]


def kept(platform: Platform, shard: str) -> list[Path]:
    return list((platform.home / "store" / ".journal" / "ocr_results" / shard).glob("*.parquet"))


PROFILE = """
layout: {{engine: cpu}}
recognition:
  engine: glm_ocr
  model: glm_ocr
  processes: 2
  in_flight: 8  # more than the pages that never come: they hold no slot that another page waits for
  server: {{mode: external, urls: ["{url}"], images_per_prompt: 0}}
embedding: {{engine: hashed}}
"""


@pytest.mark.services
def test_ctrl_c_ends_both_shards_and_the_next_run_keeps_what_they_had(tmp_path: Path):
    platform, never = laid_out(tmp_path), threading.Event()
    make_dagster_home(tmp_path / "dagster")
    profile = tmp_path / "served.yaml"
    select = ["--select", "ocr_results", "--partition-range", "shard_00...shard_01", "-m", "definitions"]
    command = ["dagster", "asset", "materialize", *select]
    settings = {"KOPUB_HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path / "dagster"), "KOPUB_PROFILE": str(profile)}
    environment = {**os.environ, **settings, "PYTHONWARNINGS": "ignore"}
    with HttpDouble(answers(a_2=never.is_set, b_2=never.is_set)) as double:
        profile.write_text(PROFILE.format(url=double.url))
        with forked.started(command, environment) as running:
            until(lambda: not running.at_work or all(map(partial(kept, platform), ("shard_00", "shard_01"))))
            running.interrupt()
            stopped = running.ended(SOON)
        assert stopped.returncode != 0, stopped.stderr
        double.asked.clear()
        double.reply = answers()
        again = forked.run(command, environment)
        assert again.returncode == 0, again.stderr
        assert pages_of(double) == ["a_2", "b_2"]
    assert platform.states("ocr_results", "shard_01") == {"b_1": State.OK, "b_2": State.OK}
