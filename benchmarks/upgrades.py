"""Measure staleness checks: `kopub plan`, a tick of the sensor, the UI's partition pages.

The corpus is made up: shards of 64 pages in all eight tables, and a materialization of each in Dagster's history, as
after a build. Nothing is computed.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
PAGES = 64
CHANGE = "embedding.dim=512"
STATISTICS = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  partitionStats { numMaterialized numFailed numPartitions }
  assetPartitionStatuses { ... on DefaultPartitionStatuses { materializedPartitions } }
} } }
"""


def make_home(home: Path, shards: int) -> None:
    """Make a manifest whose files do not exist, because nothing here reads pages."""
    home.mkdir()
    entries = [
        {
            "key": f"shard_{at:02d}",
            "file": f"data-{at}.arrow",
            "format": "arrow",
            "rows": PAGES,
            "bytes": 1,
            "sha256": f"{at:064x}",
        }
        for at in range(shards)
    ]
    (home / "shards.json").write_text(json.dumps({"version": 1, "source": "made up", "shards": entries}))


def fill() -> None:
    """Publish every table, and add it to the ledger and Dagster's history."""
    import dagster as dg
    import pyarrow as pa

    from kopub.config.settings import load_settings
    from kopub.store import ledger
    from kopub.tables.graph import GRAPH

    settings = load_settings()
    store, keys = settings.store, settings.corpus.manifest.keys
    table = pa.table({"page_id": [f"page_{row}" for row in range(PAGES)], "fingerprint": ["0" * 16] * PAGES})
    spent = ledger.entries(
        [(f"page_{row}", "0" * 16) for row in range(PAGES)], [0.5] * PAGES, gpus=1, run_id="made up", recipe="0" * 16
    )
    with dg.DagsterInstance.get() as instance:
        for asset, declared in GRAPH.on(settings.resources).declared(settings.resources).items():
            for shard in keys:
                stamp = declared.provenance(shard)
                store.write(asset, shard, table, stamp.metadata(table) | {"regions": '{"text": 900, "table": 60}'})
                ledger.append(store, asset, shard, spent)
                tags = {"dagster/data_version": stamp.recipe}
                instance.report_runless_asset_event(dg.AssetMaterialization(asset, partition=shard, tags=tags))


def plan(*arguments: str) -> dict[str, Any]:
    """Run the command in a process of its own, and return its output."""
    command = [sys.executable, "-c", "from kopub.cli.main import main; main()", "plan", "--json", *arguments]
    return json.loads(subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True).stdout)


def ticks() -> Iterator[tuple[str, Callable[[], int]]]:
    """Yield evaluations of the sensor by name, each returning the number of requested partitions."""
    import dagster as dg

    from kopub.config.settings import load_settings, what_if
    from kopub_assets.definitions import definitions_of

    night = datetime(2026, 1, 1, 17, tzinfo=UTC)  # 02:00 in Seoul
    cursor: list[Any] = [None]
    loaded = [definitions_of(load_settings())]
    instance = dg.DagsterInstance.get()

    def tick(hours: float) -> int:
        at = night + timedelta(hours=hours)
        result = dg.evaluate_automation_conditions(loaded[0], instance, None, at, cursor[0])
        cursor[0] = result.cursor
        return result.total_requested

    yield "first tick of a process", lambda: tick(-1)
    yield "steady tick", lambda: tick(-0.9)
    loaded[0] = definitions_of(what_if({"embedding.dim": "512"}))
    yield f"tick that starts the upgrade {CHANGE}", lambda: tick(0.1)
    yield "tick after it", lambda: tick(0.2)


@contextmanager
def webserver() -> Iterator[Callable[[str], None]]:
    """Yield a function that requests what an asset's partition page shows."""
    import socket

    import httpx

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-p", str(port)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def ask(asset: str) -> None:
        body = {"query": STATISTICS, "variables": {"key": {"path": [asset]}}}
        answer = httpx.post(f"http://127.0.0.1:{port}/graphql", json=body, timeout=120).json()
        statistics = answer["data"]["assetNodeOrError"]["partitionStats"]
        assert statistics["numMaterialized"] == statistics["numPartitions"], answer

    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                httpx.get(f"http://127.0.0.1:{port}/server_info", timeout=5)
                break
            except httpx.TransportError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield ask
    finally:
        server.terminate()
        server.wait()


def timed(work: Callable[[], Any]) -> tuple[tuple[str, str], Any]:
    """Return (wall-clock seconds, CPU seconds), including finished child processes, and the result."""
    started, used = time.perf_counter(), _cpu()
    result = work()
    return (f"{time.perf_counter() - started:.2f}", f"{_cpu() - used:.2f}"), result


def _cpu() -> float:
    return sum(os.times()[:4])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=640)
    shards = parser.parse_args().shards
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"KOPUB_HOME": f"{folder}/home", "DAGSTER_HOME": f"{folder}/dagster"}
        Path(folder, "dagster").mkdir()
        shutil.copy(ROOT / "deploy" / "local" / "dagster.yaml", f"{folder}/dagster")
        make_home(Path(folder, "home"), shards)
        fill()
        table = Table(title=f"{shards} shards of eight assets")
        for column in ("", "seconds", "of a core", ""):
            table.add_column(column, justify="left" if not column else "right")
        for what, arguments in (
            ("kopub plan, never asked before", ()),
            ("kopub plan", ()),
            (f"kopub plan --set {CHANGE}", ("--set", CHANGE)),
        ):
            seconds, shown = timed(lambda arguments=arguments: plan(*arguments))
            stale = sum(len(asset["shards"]["stale"]) for asset in shown["assets"])
            perhaps = sum(len(asset["shards"]["perhaps"]) for asset in shown["assets"])
            table.add_row(what, *seconds, f"{stale} stale, {perhaps} perhaps")
        for what, tick in ticks():
            seconds, requested = timed(tick)
            table.add_row(what, *seconds, f"{requested} requested")
        with webserver() as ask:
            first, _ = timed(lambda: ask("ocr_results"))
            table.add_row("partitions page of an asset, after the webserver's start", first[0], "", "")
            again, _ = timed(lambda: ask("hf_release"))
            table.add_row("partitions page of another", again[0], "", "")
    Console().print(table)


if __name__ == "__main__":
    main()
