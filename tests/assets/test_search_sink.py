"""A vector store follows the chunks of documents, whatever changes and whenever a run is killed."""

import json
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from kopub.config.choices import Documents
from kopub.config.settings import Settings
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.embedding.base import Embedding
from kopub.errors import ConfigError, StoreError
from kopub.sinks.base import Changes, Sink, records_schema
from kopub.sinks.lancedb import LanceDbSink
from kopub.sinks.pgvector import PgVectorSink
from kopub.sinks.qdrant import QdrantSink
from kopub.states import State
from kopub.store.table_source import FooterCache
from kopub.tables.plan import survey
from kopub.tables.staleness import Standing
from tests.doubles.engines import Diary, UnitEmbedder
from tests.doubles.memory_sink import STORES, MemorySink
from tests.doubles.printed import Print, PrintedLayout, PrintedReader
from tests.support.cpu_engines import CPU
from tests.support.harness import Platform, Prepared, failure
from tests.support.installed import NO_PGVECTOR, imported
from tests.support.processes.sink_child import change_and_die
from tests.support.servers import postgres
from tests.support.sources.corpora import pages

WORDS = "데비안 설치 프로그램은 여러 장치를 지원한다. "
HEAD, FOOT = (100, 60, 900, 300), (100, 800, 900, 880)
PRINTS: dict[str, list[Print]] = {
    "a_1": [("paragraph_title", "제1장 개요", HEAD), ("text", f"{WORDS * 3}하나.", FOOT)],
    "a_2": [("text", f"{WORDS * 3}둘.", FOOT)],
    "a_3": [("text", f"{WORDS * 3}셋.", FOOT)],
    "b_1": [("text", f"{WORDS * 3}넷.", FOOT)],
    # Pages with the same text, in two documents.
    "c_1": [("text", "같은 글.", HEAD)],
    "d_1": [("text", "같은 글.", HEAD)],
}
SHARDS = [pages("a_1", "a_2", "a_3", "b_1"), pages("c_1", "d_1", first=4)]
MADE = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "document_chunks")
SINK = ("chunk_embeddings", "search_sink")
Records = dict[str, dict[str, Any]]


class RevisedEmbedder(UnitEmbedder):
    """Notes the texts that it is given; vectors depend on text and `revision`."""

    speed_only: ClassVar[frozenset[str]] = frozenset({"diary"})

    diary: str = ""
    revision: str = "r1"
    dim: int = 8

    def embed_texts(self, texts: Iterable[tuple[str, str]]) -> Iterator[Embedding]:
        for text_id, text in texts:
            Diary(self.diary).note(text.splitlines()[-1])
            vector = np.zeros(self.dim, np.float32)
            vector[sum(f"{text}{self.revision}".encode()) % self.dim] = 1.0
            yield Embedding(text_id, State.OK, vector)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    platform = Platform.of(tmp_path_factory.mktemp("sink"), SHARDS, [])
    prints = json.dumps(PRINTS)
    platform.engines = {
        "layout": PrintedLayout(prints=prints),
        "recognition": PrintedReader(prints=prints),
        "embedding": RevisedEmbedder(diary=str(platform.home / "embedding.diary")),
        "documents": Documents(chunks=True, chunk_tokens=64),
    }
    platform.make(*MADE)
    return Prepared(platform)


@pytest.fixture
def platform(built: Prepared) -> Iterator[Platform]:
    yield built.renewed()
    STORES.clear()


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    imported("psycopg2")
    binaries = postgres.programs_with_pgvector()
    if binaries is None:
        pytest.skip(NO_PGVECTOR)
    with postgres.postgres(binaries) as variables, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGPASSWORD", variables["DAGSTER_PG_PASSWORD"])
        yield f"postgresql://{variables['DAGSTER_PG_USERNAME']}@127.0.0.1:{variables['DAGSTER_PG_PORT']}/postgres"


def _lancedb(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    imported("lancedb")
    return {"home": str(folder)}


def _qdrant(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    imported("qdrant_client")
    return {"url": str(folder / "qdrant")}


def _pgvector(request: pytest.FixtureRequest, folder: Path) -> dict[str, Any]:
    return {"url": request.getfixturevalue("database")}


REAL: dict[str, tuple[type[Sink], Callable[[pytest.FixtureRequest, Path], dict[str, Any]]]] = {
    "lancedb": (LanceDbSink, _lancedb),
    "qdrant": (QdrantSink, _qdrant),
    "pgvector": (PgVectorSink, _pgvector),
}
_REAL = [
    pytest.param(name, marks=[pytest.mark.slow, *([pytest.mark.services] if name == "pgvector" else [])])
    for name in REAL
]


def named(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Sink]:
    """Return the function that makes a sink with a table of that name."""
    if request.param == "memory":
        return lambda table: MemorySink(table=table)
    kind, where = REAL[request.param]
    fields = where(request, tmp_path)
    return lambda table: kind(**fields, table=f"{table}_{tmp_path.name}"[:60].lower())


@pytest.fixture(params=["memory", *_REAL])
def every_sink(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Sink]:
    return named(request, tmp_path)


@pytest.fixture(params=_REAL)
def real_sink(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Sink]:
    return named(request, tmp_path)


def held(sink: Any) -> Records:
    """Return everything that a sink holds by id, read by the store's own library."""
    match sink:
        case MemorySink():
            return {key: dict(record) for key, record in STORES.get(sink.table, {}).items()}
        case LanceDbSink():
            rows = sink.library().connect(Path(sink.home, "lancedb")).open_table(sink.table).to_arrow().to_pylist()
            return {row["id"]: row for row in rows}
        case QdrantSink():
            client = sink.library().QdrantClient(path=sink.url)
            points, _ = client.scroll(sink.table, limit=1000, with_vectors=True)
            client.close()
            return {str(point.id): {**point.payload, "vector": point.vector} for point in points}
        case _:
            library = sink.library()
            connection = library.connect(sink.url)
            with connection.cursor() as cursor:
                cursor.execute(f'SELECT to_jsonb(held) FROM "{sink.table}" AS held')
                rows = [row for (row,) in cursor.fetchall()]
            connection.close()
            return {row["id"]: row for row in rows}


def texts(records: Records, ids: Iterable[str]) -> list[str]:
    return sorted(records[key]["text"] for key in ids)


def correct(platform: Platform, page_id: str, after: str) -> None:
    layout = platform.rows("layout_regions")[page_id]["regions"][0]
    boxes: dict[str, Any] = {"bbox": tuple(layout["bbox"]), "bbox_2d": tuple(layout["bbox_2d"])}
    said = Correction(
        page_id,
        "shard_00",
        Action.TEXT,
        "Kim",
        label="text",
        kind="text",
        before=PRINTS[page_id][0][1],
        after=after,
        **boxes,
    )
    CorrectionLog(platform.store).add(said)


def stale(platform: Platform) -> set[str]:
    """Return the assets of the sink that a plan would make again."""
    plans = survey(platform.resources(), FooterCache(platform.store), platform.graph).plans()
    return {plan.asset for plan in plans if plan.asset in SINK and not plan.shards[Standing.CURRENT]}


def test_a_sink_follows_its_chunks_and_equals_a_fresh_one(platform: Platform, every_sink: Callable[[str], Sink]):
    sink = platform.engines["sinks"] = every_sink("chunks")
    platform.make(*SINK)
    first = held(sink)
    assert len(first) == 6
    assert [record["page_id"] for record in first.values() if record["text"] == "같은 글."].count("c_1") == 1
    (opening,) = [record for record in first.values() if record["page_id"] == "a_1"]
    assert (opening["doc_id"], opening["page"], opening["shard"]) == ("a", 1, "shard_00")
    assert list(opening["bbox_2d"]) == list(opening["places"][0]["bbox_2d"])
    assert json.loads(opening["made_with"]).keys() == {"document_chunks", "chunk_embeddings"}

    given = len(platform.diary("embedding").pages)
    corrected = f"{WORDS * 3}고쳤다."
    correct(platform, "a_3", corrected)
    platform.make(*MADE, *SINK)
    second = held(sink)
    assert texts(first, first.keys() - second.keys()) == [f"{WORDS * 3}셋."]
    assert texts(second, second.keys() - first.keys()) == [corrected]
    assert all(second[key] == first[key] for key in first.keys() & second.keys())
    assert platform.diary("embedding").pages[given:] == [corrected]

    platform.engines["embedding"] = platform.engines["embedding"].model_copy(update={"revision": "r2"})
    platform.make(*SINK)
    third = held(sink)
    assert third.keys() == second.keys()
    assert all(third[key]["fingerprint"] != second[key]["fingerprint"] for key in third)
    assert all("r2" in record["made_with"] for record in third.values())

    (platform.home / "source" / "corpus" / "data-1.arrow").unlink()
    platform.reindex([SHARDS[0][:3]], [])
    platform.make(*MADE, *SINK)
    fourth = held(sink)
    assert {record["doc_id"] for record in fourth.values()} == {"a"}
    assert fourth == {key: third[key] for key in fourth}

    fresh = platform.engines["sinks"] = every_sink("fresh")
    platform.make(*SINK)
    assert held(fresh) == fourth
    platform.engines["sinks"] = sink
    platform.make(*SINK)
    assert held(sink) == fourth


def test_a_killed_change_goes_on_and_equals_a_fresh_sink(platform: Platform, real_sink: Callable[[str], Sink]):
    sink = platform.engines["sinks"] = real_sink("chunks")
    platform.make("chunk_embeddings")
    child = multiprocessing.get_context("spawn").Process(target=change_and_die, args=(str(platform.home), sink))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert 0 < len(held(sink)) < 4
    platform.make("search_sink")
    fresh = platform.engines["sinks"] = real_sink("fresh")
    platform.make("search_sink")
    assert held(fresh) == held(sink)
    assert len(held(sink)) == 6


def test_what_another_program_changed_is_put_right(platform: Platform):
    platform.engines["sinks"] = MemorySink()
    platform.make(*SINK)
    records = STORES["chunks"]
    as_made = {key: dict(record) for key, record in records.items()}
    first, second, *_ = records
    del records[first]
    records[second]["fingerprint"] = "another"
    records["stray"] = {**records[second], "id": "stray"}
    platform.make("search_sink")
    assert records == as_made


def test_only_what_changed_is_stale_and_a_half_made_sink_is(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    platform.engines["sinks"] = MemorySink()
    assert stale(platform) == set(SINK)
    platform.make(*SINK)
    assert stale(platform) == set()
    platform.engines["sinks"] = MemorySink(table="another")
    assert stale(platform) == {"search_sink"}
    monkeypatch.setattr(Changes, "apply", lambda *given: (_ for _ in ()).throw(RuntimeError("away")))
    with pytest.raises(StoreError, match="another of memory cannot be used: away"):
        platform.make("search_sink")
    assert stale(platform) == {"search_sink"}


def test_the_records_of_another_corpus_are_left_alone(platform: Platform, tmp_path: Path):
    platform.engines["sinks"] = MemorySink()
    platform.make(*SINK)
    before = dict(STORES["chunks"])
    other = Platform.of(tmp_path / "other", SHARDS, [])
    other.engines = platform.engines
    with pytest.raises(StoreError, match=r"holds 4 records of shard_00 that this corpus did not put there: name anot"):
        other.make(*MADE, *SINK)
    assert STORES["chunks"] == before


def test_a_dagster_run_fills_a_sink_and_says_what_changed(platform: Platform):
    platform.engines["sinks"] = MemorySink()
    result = platform.run(",".join(SINK), "shard_00", "shard_01")
    assert result.success
    shown = {
        event.partition: event.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key and event.asset_key.path == ["search_sink"]
    }
    assert {shard: metadata["added"].value for shard, metadata in shown.items()} == {"shard_00": 4, "shard_01": 2}
    (check,) = [each for each in result.get_asset_check_evaluations() if each.asset_key.path == ["search_sink"]]
    assert (check.check_name, check.passed) == ("holds_the_chunks", True)


def test_vectors_of_another_length_need_another_table(platform: Platform, real_sink: Callable[[str], Sink]):
    sink = real_sink("chunks")
    with sink.open(8):
        pass
    longer = sink.open(9)
    with pytest.raises(StoreError, match=r"holds vectors of 8 numbers, and this profile makes 9: name another table"):
        longer.__enter__()


def test_a_table_of_another_program_is_left_alone(real_sink: Callable[[str], Sink]):
    sink: Any = real_sink("chunks")
    match sink:
        case LanceDbSink():
            words = pa.schema([("word", pa.string())])
            sink.library().connect(Path(sink.home, "lancedb")).create_table(sink.table, schema=words)
        case QdrantSink():
            client, models = sink.library().QdrantClient(path=sink.url), sink.library().models
            vectors = models.VectorParams(size=8, distance=models.Distance.DOT)
            client.create_collection(sink.table, vectors_config={"own": vectors})
            client.close()
        case _:
            with closing(sink.library().connect(sink.url)) as connection, connection, connection.cursor() as cursor:
                cursor.execute(f'CREATE TABLE "{sink.table}" (word text)')
    opened = sink.open(8)
    with pytest.raises(StoreError, match=r"^chunks_\S* of \w+ at .* belongs to another program: name another table"):
        opened.__enter__()


HOSTILE = """'; DROP TABLE chunks; -- " \\ {"a", NULL} %s $1 ' OR '1'='1 \x1b[31m \u202e \uffff 😀"""


@pytest.mark.parametrize("table", ["order", "user", "null"])
def test_hostile_texts_and_words_of_sql_are_words(table: str, real_sink: Callable[[str], Sink]):
    sink: Any = real_sink("chunks")
    sink = sink.model_copy(update={"table": table})
    key = "00000000-0000-0000-0000-00000000000a"
    words = {"shard": HOSTILE, "doc_id": HOSTILE, "page_id": HOSTILE, "text": HOSTILE, "made_with": HOSTILE}
    lists = {"headings": [HOSTILE, "", "{}"], "kinds": ["NULL"], "places": [], "bbox_2d": [0, 0, 9, 9]}
    record = {"id": key, "page": 1, "fingerprint": HOSTILE, "vector": [1.0, *[0.0] * 7], **words, **lists}
    with sink.open(8) as opened:
        for _ in range(2):
            opened.put(pa.Table.from_pylist([record], records_schema(8)))
        assert opened.fingerprints(HOSTILE) == {key: HOSTILE}
        assert opened.fingerprints("x' OR '1'='1") == {}
    (stored,) = held(sink).values()
    assert {name: stored[name] for name in words} == words
    assert list(stored["headings"]) == lists["headings"]
    with sink.open(8) as opened:
        opened.remove([key])
        assert opened.fingerprints(HOSTILE) == {}


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"sinks": {"engine": "lancedb"}}, "there are no chunks for it; set documents.chunks to true"),
        (
            {"sinks": {"engine": "pgvector", "url": "postgresql://me:secret@host/db"}, "documents": {"chunks": True}},
            "sinks.url: it must hold no password: put that into PGPASSWORD",
        ),
        *(
            (
                {"sinks": {"engine": engine, "url": url}, "documents": {"chunks": True}},
                "sinks.url: it must hold no password",
            )
            for engine, url in (
                ("pgvector", "host=h dbname=d password = secret"),
                ("qdrant", "https://me:secret@host:6333"),
                ("qdrant", "https://host:6333/?api_key=secret"),
                ("lancedb", "s3://me:secret@bucket/x"),
            )
        ),
        ({"sinks": {"engine": "qdrant", "table": "no'name"}, "documents": {"chunks": True}}, "sinks.table"),
    ],
)
def test_a_sink_that_cannot_be_used_is_refused_when_the_profile_is_loaded(
    sections: dict[str, Any], message: str, tmp_path: Path
):
    with pytest.raises(ConfigError, match=message) as refused:
        Settings.of(tmp_path, {**CPU, **sections})
    assert "secret" not in str(refused.value)


def test_a_missing_library_is_named_before_the_run(platform: Platform, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(MemorySink, "package", "no_such_library")
    platform.engines["sinks"] = MemorySink()
    said = failure(platform.run(",".join(SINK)))
    assert said == "sinks.engine memory: no_such_library is not installed: pip install 'kopub[sinks]'"


def test_a_server_that_is_away_is_one_line(platform: Platform):
    imported("qdrant_client")
    platform.engines["sinks"] = QdrantSink(url="http://127.0.0.1:1")
    with pytest.raises(StoreError, match=r"chunks of qdrant at http://127.0.0.1:1 cannot be used: .*refused"):
        platform.make(*SINK)
