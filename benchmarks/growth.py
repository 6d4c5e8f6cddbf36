"""What grows with the shards of a corpus whose tables lie on object storage.

    python -m benchmarks.growth [--shards 200,1000,2000] [--backfill 100] [--bucket NAME]

Makes every table of so many shards of two tiny pages each, with engines that take no time, a materialization of each
in Dagster's history (SQLite) and the scores of all, and puts the tables on object storage: on that of
`AWS_ENDPOINT_URL`, or on moto, which is started. Then it looks at them as people and daemons do, each look in a process
of its own: seconds after the imports, requests to the storage, and peak memory of the process.

- `plan` with and without the footers that the platform keeps of its tables, and `status`;
- the first tick of the sensor in a process and the one after it, while nothing is stale: no run is launched;
- a backfill of the first shards with nothing changed, as one run of all assets in Dagster.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from benchmarks.synthetic_corpus import ROOT, Usage, make_home, settings_of, write

PAGES = 2
QUERIES = 20
NIGHT = datetime(2026, 1, 1, 17, tzinfo=UTC)
"""Two o'clock in Seoul."""
LOOKS = ("first plan", "plan", "status", "first tick", "next tick", "backfill")


def make(home: Path, shards: int) -> None:
    """Every table in the home's own store, and what Dagster would know of how they were made."""
    import dagster as dg

    from definitions import definitions_of
    from kopub_assets.graph import GRAPH
    from kopub_assets.materialize.asset import Run
    from kopub_assets.materialize.checks import Problems
    from kopub_assets.running.execution import execute
    from resources.store.corpus_tables import RELEASED_FILES, SCORES

    settings = settings_of(home)
    keys = tuple(settings.corpus.manifest.keys)
    with dg.DagsterInstance.get() as instance:
        for name, asset in GRAPH.on(settings.resources).declared(settings.resources).items():
            if name == RELEASED_FILES.name:
                # Before the release, and after what they are of: as a run makes them.
                failed = execute(definitions_of(settings), instance, [SCORES.name], keys[:1])
                assert not failed, failed
            config = asset.config() if asset.config else None
            run = Run(str(uuid4()), keys, Problems(asset.checks, {}), _unread, _unread, config)
            finished = {shard: asset.make_shard(shard, run) for shard in keys}
            asset.finish(run, finished)
            for shard, made in finished.items():
                tags = {"dagster/data_version": made.recipe}
                instance.report_runless_asset_event(dg.AssetMaterialization(name, partition=shard, tags=tags))


def upload(home: Path, url: str) -> None:
    """The tables of a home's store, and all beside them but the locks, to `url`."""
    from resources.store.objects import Objects

    shutil.rmtree(home / "store" / ".locks")
    objects, there = Objects.at(url)
    objects.fs.put(f"{home / 'store'}/", f"{there}/", recursive=True)


def looked(what: str, home: Path, url: str, shards: int) -> dict[str, float]:
    """Seconds, requests and peak memory in MiB of one look."""
    import dagster as dg

    from definitions import definitions_of
    from kopub_assets.graph import GRAPH
    from kopub_assets.running.execution import execute
    from kopub_cli.plan import planned
    from kopub_cli.status import status_values
    from resources.store.objects import Objects

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
        "first plan": lambda: planned(settings),
        "plan": lambda: planned(settings),
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
    """Requests to the storage by method, as the client sends them."""
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
    """The server of `AWS_ENDPOINT_URL`; moto where there is none."""
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


def measured(folder: Path, bucket: str, shards: int, backfill: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Every look at a corpus of so many shards."""
    import s3fs

    source = write(folder / "source", PAGES * shards, shards, QUERIES)
    home = make_home(folder / "home", source)
    os.environ |= {"KOPUB_HOME": str(home), "DAGSTER_HOME": str(home / "dagster")}
    started = time.perf_counter()
    make(home, shards)
    made = time.perf_counter()
    if not s3fs.S3FileSystem().exists(bucket):
        s3fs.S3FileSystem().mkdir(bucket)
    url = f"s3://{bucket}/{shards}-{uuid4().hex[:8]}"
    upload(home, url)
    Console().print(f"{shards} shards made in {made - started:.0f} s, put in {time.perf_counter() - made:.0f} s")
    for what in LOOKS:
        command = [sys.executable, "-m", "benchmarks.growth", "--look", what, str(home), url, str(backfill)]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        yield what, json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", default="200,1000,2000")
    parser.add_argument("--backfill", type=int, default=100)
    parser.add_argument("--bucket", default="growth")
    parser.add_argument("--look", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.look:
        what, home, url, shards = arguments.look
        print(json.dumps(looked(what, Path(home), url, int(shards))))
        return
    table = Table(title="seconds, requests, peak MiB")
    sizes = [int(size) for size in arguments.shards.split(",")]
    for column in ("", *(f"{size:,} shards" for size in sizes)):
        table.add_column(column, justify="right" if column else "left")
    rows: dict[str, list[str]] = {what: [] for what in LOOKS}
    with storage():
        for size in sizes:
            with tempfile.TemporaryDirectory() as folder:
                for what, took in measured(Path(folder), arguments.bucket, size, arguments.backfill):
                    Console().print(size, what, took)
                    rows[what].append(f"{took['seconds']:.1f} s, {took['requests']:,.0f}, {took['mib']:.0f}")
    for what, cells in rows.items():
        table.add_row(what if what != "backfill" else f"backfill of {arguments.backfill}, nothing changed", *cells)
    Console().print(table)


def _unread(line: str) -> None:
    """Nobody reads the log."""


if __name__ == "__main__":
    main()
