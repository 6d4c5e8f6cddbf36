"""With servers side by side, an engine starts once the previous has its last row."""

import asyncio
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import dagster as dg
import pytest
from aiohttp import web
from pydantic import PrivateAttr

from kopub.cli.profile_display import stages_of
from kopub.embedding.base import Embedding
from kopub.errors import EngineError
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading
from kopub.states import State
from kopub.tables.asset import RETRY_PARTIAL_TAG, ShardAsset
from kopub.tables.ocr_and_texts import ParsedTexts
from kopub.tables.pages_and_layout import RawPages
from kopub.tables.rows import RowResult, RowSpec
from kopub_assets import shard_assets
from tests.doubles.engines import Diary, SlowReader, UnitEmbedder
from tests.doubles.http_double import HttpDouble, SentRequest, says
from tests.support.dagster.dagster_home import make_dagster_home
from tests.support.harness import Platform, failure
from tests.support.processes import forked
from tests.support.sources.corpora import page_image, pages, query
from tests.support.waiting import until

READING, TEXTS = "ocr_results", "parsed_texts"
IMAGES, TEXT_VECTORS, QUERIES = "corpus_image_embeddings", "corpus_text_embeddings", "query_embeddings"
ALL = f"raw_pages,layout_regions,{READING},{TEXTS},{IMAGES},{TEXT_VECTORS},{QUERIES}"
SHARDS = ("shard_00", "shard_01")
SOON = 60.0


class ServedReader(SlowReader):
    needs_server: ClassVar[bool] = True
    spans_shards: ClassVar[bool] = True

    @property
    def serves_beside_others(self) -> bool:
        return True

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        """Answer once all pages are given."""
        taken: list[tuple[Page, Sequence[Region]]] = []
        for page in pages:
            Diary(self.diary).note("given")
            taken.append(page)
        yield from super().read(taken)


class ServedEmbedder(UnitEmbedder):
    needs_server: ClassVar[bool] = True
    spans_shards: ClassVar[bool] = True

    diary: str = ""
    die: bool = False
    seconds: float = 0.0
    partial: bool = False
    speed_only: ClassVar[frozenset[str]] = UnitEmbedder.speed_only | {"seconds", "partial"}
    _at_work: threading.Lock = PrivateAttr(default_factory=threading.Lock)

    @property
    def serves_beside_others(self) -> bool:
        return True

    def embed_images(self, pages: Iterable[Page]) -> Iterator[Embedding]:
        Diary(self.diary).note("embed images")
        if self.die:
            raise EngineError("the engine is out of order; repair it and run again")
        return self._alone(super().embed_images(pages))

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        Diary(self.diary).note("embed texts")
        return self._alone(super().embed_texts(texts))

    def _alone(self, made: Iterator[Embedding]) -> Iterator[Embedding]:
        """Yield each vector after `seconds`, and note if another call is at work meanwhile."""
        if not self._at_work.acquire(blocking=False):
            Diary(self.diary).note("two at once")
            yield from made
            return
        try:
            for each in made:
                time.sleep(self.seconds)
                yield replace(each, state=State.PARTIAL, reason="half of it") if self.partial else each
        finally:
            self._at_work.release()


@pytest.fixture
def platform(tmp_path: Path) -> Platform:
    built = Platform.of(tmp_path, [pages("a_1", "a_2"), pages("b_1")], [query("q1", "질문", "a_1")])
    diary = str(tmp_path / "diary")
    built.engines = {"recognition": ServedReader(diary=diary), "embedding": ServedEmbedder(diary=diary)}
    return built


def made_after(
    what: str, platform: Platform, monkeypatch: pytest.MonkeyPatch, fails: bool = False, only: str = ""
) -> None:
    """Make `parsed_texts`, or one shard of it, wait until an engine has noted `what`, and fail if `fails`."""
    make = ParsedTexts.make

    def waiting(asset: ParsedTexts, shard: str, todo: Sequence[RowSpec]) -> Iterator[RowResult]:
        if not only or shard == only:
            until(lambda: what in (platform.home / "diary").read_text().splitlines())
        if fails:
            raise EngineError("asked to fail")
        return make(asset, shard, todo)

    monkeypatch.setattr(ParsedTexts, "make", waiting)


def told(platform: Platform, result: dg.ExecuteInProcessResult) -> dict[str, list[str]]:
    """Return the distinct shards of each asset that were reported to Dagster."""
    shards: dict[str, set[str]] = {}
    for event in result.all_events:
        if event.is_step_materialization:
            made = event.materialization
            shards.setdefault(made.asset_key.to_user_string(), set()).add(made.partition or "")
    return {name: sorted(keys) for name, keys in shards.items()}


def test_vectors_of_pages_are_begun_while_texts_are_parsed(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    made_after("embed images", platform, monkeypatch)
    result = platform.run(ALL, last="shard_01")
    assert result.success
    assert told(platform, result) == {name: list(SHARDS) for name in ALL.split(",")}
    stages = {stage.name: stage for stage in stages_of(platform.instance, result.run_id)}
    assert stages[IMAGES].span.start < stages[TEXTS].span.end, "a report of the run counts its time from there"
    assert stages[IMAGES].computed == 3


@pytest.mark.slow
def test_what_was_made_is_the_same_whoever_began_it(platform: Platform, tmp_path: Path) -> None:
    assert platform.run(ALL, last="shard_01").success
    other = Platform.of(tmp_path / "other", [pages("a_1", "a_2"), pages("b_1")], [query("q1", "질문", "a_1")])
    other.engines = platform.engines
    for name in ALL.split(","):
        assert other.run(name, last="shard_01").success
    made, each = platform.tables(), other.tables()
    assert made.keys() == each.keys()
    assert all(
        table.drop_columns(["fingerprint"]).equals(each[key].drop_columns(["fingerprint"]))
        for key, table in made.items()
    )


def test_vectors_of_pages_are_begun_while_pages_are_examined(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = RawPages.make

    def waiting(asset: RawPages, shard: str, todo: Sequence[RowSpec]) -> Iterator[RowResult]:
        if shard == "shard_01":
            until((platform.home / "diary").exists)
        return make(asset, shard, todo)

    monkeypatch.setattr(RawPages, "make", waiting)
    result = platform.run(ALL, last="shard_01")
    assert result.success
    assert told(platform, result)[IMAGES] == list(SHARDS)
    noted = (platform.home / "diary").read_text().splitlines()
    assert noted.index("embed images") < noted.index("given") < noted.index("embed texts")


def test_vectors_of_texts_are_begun_before_the_step_of_answered_pages(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_after("embed texts", platform, monkeypatch, only="shard_01")
    result = platform.run(ALL, last="shard_01")
    assert result.success
    assert told(platform, result) == {name: list(SHARDS) for name in ALL.split(",")}
    assert platform.states(IMAGES) == {"a_1": State.OK, "a_2": State.OK}
    noted = (platform.home / "diary").read_text().splitlines()
    assert noted.count("embed images") == noted.count("embed texts") == 1
    assert "two at once" not in noted


@pytest.mark.slow
def test_a_step_that_asks_for_more_than_was_answered_takes_its_engine(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partial pages are read again only if the run says so, which the call ahead of the step does not know."""
    platform.engines["embedding"] = platform.engines["embedding"].model_copy(update={"partial": True})
    assert platform.run(f"raw_pages,{IMAGES}", last="shard_01").success
    platform.engines["embedding"] = platform.engines["embedding"].model_copy(update={"partial": False, "seconds": 0.3})
    platform.reindex([pages("a_1", "a_2"), pages("b_1", "b_2")], [query("q1", "질문", "a_1")])
    made_after("embed texts", platform, monkeypatch, only="shard_01")
    assert platform.run(ALL, last="shard_01", tags={RETRY_PARTIAL_TAG: "true"}).success
    assert platform.states(IMAGES) == {"a_1": State.OK, "a_2": State.OK}
    assert platform.states(TEXT_VECTORS) == {"a_1": State.OK, "a_2": State.OK}
    assert "two at once" not in (platform.home / "diary").read_text().splitlines()


def test_what_is_begun_is_kept_when_another_step_fails(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    made_after("embed images", platform, monkeypatch, fails=True)
    result = platform.run(ALL, last="shard_01")
    assert "asked to fail" in failure(result)
    assert platform.states(IMAGES, "shard_01") == {"b_1": State.OK}
    assert platform.states(QUERIES) == {"q1": State.OK}, "nobody waits for a step that will not come"
    assert TEXT_VECTORS not in told(platform, result)


def test_an_engine_that_dies_ahead_of_its_step_fails_in_it(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    made_after("embed images", platform, monkeypatch)
    platform.engines["embedding"] = platform.engines["embedding"].model_copy(update={"die": True})
    result = platform.run(ALL, last="shard_01")
    assert [event.step_key for event in result.all_events if event.is_step_failure] == [IMAGES]
    assert "out of order" in failure(result)
    assert platform.states(TEXTS, "shard_01") == {"b_1": State.OK}


@pytest.mark.slow
def test_an_engine_at_work_ahead_is_left_to_a_step_that_comes_first(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, no steps share an engine; stopped work is made in its step."""
    urgency = shard_assets.urgency

    def texts_first(asset: ShardAsset, graph: Sequence[type[ShardAsset]]) -> int:
        return 99 if asset.name == TEXT_VECTORS else urgency(asset, graph)

    monkeypatch.setattr(shard_assets, "urgency", texts_first)
    platform.engines["embedding"] = platform.engines["embedding"].model_copy(update={"seconds": 0.3})
    result = platform.run(ALL, last="shard_01")
    assert result.success
    steps = [event.step_key for event in result.all_events if event.is_step_success]
    assert steps.index(TEXT_VECTORS) < steps.index(IMAGES), "or the test proves nothing"
    assert told(platform, result)[IMAGES] == list(SHARDS)
    assert (platform.home / "diary").read_text().splitlines().count("two at once") == 0
    assert platform.states(IMAGES) == {"a_1": State.OK, "a_2": State.OK}


PROFILE = """
layout: {{engine: cpu}}
recognition:
  engine: glm_ocr
  server: {{model: glm, revision: r1, mode: external, urls: ["{url}"], images_per_prompt: 0}}
  processes: 1
  in_flight: 2
embedding: {{engine: hashed}}
"""


@pytest.mark.services
def test_ctrl_c_ends_what_works_ahead_and_the_next_run_goes_on(tmp_path: Path) -> None:
    drawn = [[("a_1", page_image(280, (280, 280))), ("a_2", page_image(308, (308, 280)))]]
    platform, over = Platform.of(tmp_path, drawn), threading.Event()
    make_dagster_home(tmp_path / "dagster")
    profile = tmp_path / "served.yaml"
    select = ["--select", f"raw_pages,layout_regions,{READING},{TEXTS}", "--partition", "shard_00", "-m", "definitions"]
    command = ["dagster", "asset", "materialize", *select]
    settings = {"KOPUB_HOME": str(tmp_path), "DAGSTER_HOME": str(tmp_path / "dagster"), "KOPUB_PROFILE": str(profile)}
    environment = {**os.environ, **settings, "PYTHONWARNINGS": "ignore"}

    async def reply(asked: SentRequest) -> web.StreamResponse:
        while not over.is_set():
            await asyncio.sleep(0.01)
        return says("text")

    with HttpDouble(reply) as double:
        profile.write_text(PROFILE.format(url=double.url))
        with forked.started(command, environment) as running:
            until(lambda: not running.at_work or double.asked)
            running.interrupt()
            stopped = running.ended(SOON)
        assert stopped.returncode != 0, stopped.stderr
        over.set()
        again = forked.run(command, environment)
        assert again.returncode == 0, again.stderr
    assert platform.states(READING) == {"a_1": State.OK, "a_2": State.OK}
