"""Measure what grows with the number of shards, for tables on object storage.

    python -m benchmarks.growth [--shards 200,1000,2000] [--backfill 100] [--folder FOLDER] [--looks plan,status,...]

The platform itself makes every table of the first shards, of two tiny pages each, with engines that take no time. The
other shards have the second shard's file, and so its tables, which are copied under their own names, with the ledger's
entries, scores for all, and a materialization of each in Dagster's history (SQLite). Everything is on the storage at
`AWS_ENDPOINT_URL`, else on a moto server that is started. Then it is looked at as people and daemons would. Each look
has its own process, and is measured in seconds after the imports, requests to the storage, and peak memory:

- `plan` with and without the footers that the platform keeps of its tables, and `status`;
- the first two ticks of the sensor in a process while nothing is stale, so that no run is launched;
- a backfill of the first shards with nothing changed, as one run of all assets in Dagster.

With `--folder` the corpus is kept there, and the next call adds more shards to it; `--bucket` names a bucket other than
`growth`.
"""

import argparse
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from benchmarks.synthetic_corpus import ROOT, Usage, make_home, settings_of, write
from kopub.pages.manifest import NAME, shard_key

PAGES = 2
QUERIES = 20
LIKE = shard_key(1)
"""The shard that all further ones copy; all queries are in the first."""
NIGHT = datetime(2026, 1, 1, 17, tzinfo=UTC)
"""Two o'clock in Seoul."""
LOOKS = ("first plan", "plan", "status", "first tick", "next tick", "backfill")


def make(home: Path) -> None:
    """Make every table in the home's own store, with Dagster's history of it."""
    import dagster as dg

    from kopub.store.corpus_tables import RELEASED_FILES, SCORES
    from kopub.tables.asset import RunContext
    from kopub.tables.checks import Problems
    from kopub.tables.graph import GRAPH
    from kopub.tables.shard_loop import make_all
    from kopub_assets.definitions import definitions_of
    from kopub_assets.running.execution import execute

    settings = settings_of(home)
    keys = tuple(settings.corpus.manifest.keys)
    with dg.DagsterInstance.get() as instance:
        for name, asset in GRAPH.on(settings.resources).declared(settings.resources).items():
            if name == RELEASED_FILES.name:
                # As in a run, scores are made before the release, after the tables that they measure.
                failed = execute(definitions_of(settings), instance, [SCORES.name], keys[:1])
                assert not failed, failed
            config = asset.config() if asset.config else None
            run = RunContext(str(uuid4()), keys, Problems(asset.checks, {}), _unread, _unread, config)
            for shard, made in make_all(asset, run).items():
                tags = {"dagster/data_version": made.recipe}
                instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=shard, tags=tags))


def upload(home: Path, url: str) -> None:
    """Upload a home's store, except the locks, to `url`."""
    from kopub.store.objects import Objects

    shutil.rmtree(home / "store" / ".locks")
    objects, there = Objects.at(url)
    objects.fs.put(f"{home / 'store'}/", f"{there}/", recursive=True)


def grow(home: Path, url: str, shards: int) -> None:
    """Extend the corpus to `shards` shards, copying the second."""
    manifest = json.loads((home / NAME).read_text())
    entry = next(each for each in manifest["shards"] if each["key"] == LIKE)
    added = [shard_key(at) for at in range(len(manifest["shards"]), shards)]
    manifest["shards"] += [{**entry, "key": key} for key in added]
    (home / NAME).write_text(json.dumps(manifest))
    _copy_tables(home, url, added)
    _copy_history(home, added)
    _stamp_scores(home, url)


def _copy_tables(home: Path, url: str, added: list[str]) -> None:
    from kopub.store.corpus_tables import RELEASED_FILES
    from kopub.store.objects import Objects

    store = home / "store"
    # The release only has the first shards, because the released files are on this machine.
    released = RELEASED_FILES.name
    tables = [path.relative_to(store) for path in store.rglob(f"{LIKE}.parquet") if path.parent.name != released]
    entries = [path.relative_to(store) for path in (store / ".ledger").rglob("*.parquet") if path.parent.name == LIKE]
    objects, there = Objects.at(url)
    for path in (*tables, *entries):
        content = (store / path).read_bytes()
        objects.fs.pipe({f"{there}/{str(path).replace(LIKE, key)}": content for key in added})


def _copy_history(home: Path, added: list[str]) -> None:
    """Copy Dagster's materializations of shard `LIKE` for the added ones, in one transaction."""
    from kopub.store.corpus_tables import RELEASED_FILES

    with closing(sqlite3.connect(home / "dagster" / "history" / "runs" / "index.db")) as database, database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(event_logs)") if row[1] != "id"]
        names = ", ".join(columns)
        wanted = "dagster_event_type = 'ASSET_MATERIALIZATION' AND partition = ? AND asset_key != ?"
        released = json.dumps([RELEASED_FILES.name])
        found = database.execute(f"SELECT {names} FROM event_logs WHERE {wanted}", (LIKE, released))
        known = [dict(zip(columns, row, strict=True)) for row in found]
        rows = [
            list((event | {"partition": key, "event": event["event"].replace(LIKE, key)}).values())
            for event in known
            for key in added
        ]
        database.executemany(f"INSERT INTO event_logs ({names}) VALUES ({', '.join('?' * len(columns))})", rows)


def _stamp_scores(home: Path, url: str) -> None:
    """Mark the scores as measured on all shards."""
    from kopub.search.measuring import SearchedCorpus, inputs_of
    from kopub.search.metrics import HISTORY, SCORES
    from kopub.search.scores import ALL

    settings = settings_of(home, store=url)
    keys, store = settings.corpus.manifest.keys, settings.store
    measured = HISTORY.measured(store)
    measured = {key: measured.get(key, measured[LIKE]) for key in keys}
    kinds = settings.embedding.queries_match - {"figure"}
    searched = SearchedCorpus(store, keys, kinds, settings.embedding, measured=measured)
    HISTORY.write_scores(store, store.read(SCORES, ALL), inputs_of(searched), "not compared", searched.contents)


def looked(what: str, home: Path, url: str, shards: int) -> dict[str, float]:
    """Return the seconds, requests and peak memory in MiB of one look."""
    import dagster as dg

    from kopub.cli.commands.plan import plan_values
    from kopub.cli.commands.status import status_values
    from kopub.store.objects import Objects
    from kopub.tables.graph import GRAPH
    from kopub_assets.definitions import definitions_of
    from kopub_assets.running.execution import execute

    settings = settings_of(home, store=url)
    definitions = definitions_of(settings)
    graph = definitions.resolve_asset_graph()
    cursor = None

    def tick(hours: float) -> None:
        nonlocal cursor
        at = NIGHT + timedelta(hours=hours)
        with dg.DagsterInstance.get() as instance:
            result = dg.evaluate_automation_conditions(definitions, instance, None, at, cursor)
        cursor = result.cursor
        assert not result.total_requested, "something is stale"

    def backfill() -> None:
        names = [key.to_user_string() for key in graph.materializable_asset_keys]
        with dg.DagsterInstance.get() as instance:
            failed = execute(definitions, instance, names, settings.corpus.manifest.keys[:shards])
        assert not failed, failed

    works: dict[str, Callable[[], object]] = {
        "first plan": lambda: plan_values(settings),
        "plan": lambda: plan_values(settings),
        "status": lambda: status_values(settings),
        "first tick": lambda: tick(0.0),
        "next tick": lambda: tick(0.1),
        "backfill": backfill,
    }
    if what == "first plan":
        objects, there = Objects.at(url)
        objects.remove_all(
            [f"{there}/.footers/{asset}/footers.parquet" for asset in GRAPH.on(settings.resources).names]
        )
    if what == "next tick":
        tick(0.0)
    with asked() as requests:
        started = time.perf_counter()
        works[what]()
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "requests": requests.total(), "mib": Usage.now().peak_mib, **requests}


@contextmanager
def asked() -> Iterator[Counter[str]]:
    """Count the client's requests to the storage by method."""
    from aiobotocore.httpsession import AIOHTTPSession

    count, send = Counter[str](), AIOHTTPSession.send

    async def counted(self: AIOHTTPSession, request):
        count[request.method] += 1
        return await send(self, request)

    AIOHTTPSession.send = counted
    try:
        yield count
    finally:
        AIOHTTPSession.send = send


@contextmanager
def storage() -> Iterator[None]:
    """Run with the server at `AWS_ENDPOINT_URL`, or with moto if there is none."""
    if os.environ.get("AWS_ENDPOINT_URL"):
        yield
        return
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ |= {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(os.environ["AWS_ENDPOINT_URL"], timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "moto does not answer"
                time.sleep(0.2)
        yield
    finally:
        server.terminate()
        server.wait()


def measured(
    folder: Path, bucket: str, shards: int, backfill: int, looks: Sequence[str]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each look at a corpus of `shards` shards, made or continued in `folder`."""
    import s3fs

    home, url = folder / "home", f"s3://{bucket}/{folder.name}"
    os.environ |= {"KOPUB_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
    started = time.perf_counter()
    if not home.exists():
        make_home(home, write(folder / "source", PAGES * backfill, backfill, QUERIES))
        make(home)
        if not s3fs.S3FileSystem().exists(bucket):
            s3fs.S3FileSystem().mkdir(bucket)
        upload(home, url)
    grow(home, url, shards)
    _say(f"{shards} shards, {time.perf_counter() - started:.0f} s until they were there")
    for what in looks:
        command = [sys.executable, "-m", "benchmarks.growth", "--look", what, str(home), url, str(backfill)]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        yield what, json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", default="200,1000,2000")
    parser.add_argument("--backfill", type=int, default=100)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--bucket", default="growth")
    parser.add_argument("--looks", default=",".join(LOOKS))
    parser.add_argument("--look", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.look:
        what, home, url, shards = arguments.look
        _say(json.dumps(looked(what, Path(home), url, int(shards))))
        return
    sizes = [int(size) for size in arguments.shards.split(",")]
    looks = arguments.looks.split(",")
    rows: dict[str, list[str]] = {what: [] for what in looks}
    with tempfile.TemporaryDirectory() as temporary, storage():
        folder = arguments.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for size in sizes:
            for what, took in measured(folder, arguments.bucket, size, arguments.backfill, looks):
                _say(f"{size} {what} {took}")
                rows[what].append(f"{took['seconds']:.1f} s, {took['requests']:,.0f}, {took['mib']:.0f}")
    table = Table(title="seconds, requests, peak MiB")
    for column in ("", *(f"{size:,} shards" for size in sizes)):
        table.add_column(column, justify="right" if column else "left")
    for what, cells in rows.items():
        table.add_row(f"{what} of {arguments.backfill}, nothing changed" if what == "backfill" else what, *cells)
    Console().print(table)


def _say(line: str) -> None:
    print(line, flush=True)


def _unread(line: str) -> None:
    """Drop a line of the log, which nobody reads."""


if __name__ == "__main__":
    main()
