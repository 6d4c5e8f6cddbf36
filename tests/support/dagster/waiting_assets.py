"""Assets whose runs wait for a file, and a sensor that requests named runs."""

import os
import time
from pathlib import Path

from filelock import FileLock

import dagster as dg

FOLDER = Path(os.environ["WAITING_RUNS"])
GO = "go"
SHARDS = dg.StaticPartitionsDefinition(["shard_00", "shard_01", "shard_02"])


@dg.asset(partitions_def=SHARDS, backfill_policy=dg.BackfillPolicy.single_run())
def waits(context: dg.AssetExecutionContext) -> None:
    """Wait for the file; fail if another run makes the same shard."""
    with FileLock(FOLDER / f"{context.partition_keys[0]}.lock", blocking=False):
        # Renaming makes the file appear with its whole content.
        written = FOLDER / f"{context.run_id}.begun"
        written.write_text(str(os.getpid()))
        written.rename(FOLDER / f"{context.run_id}.pid")
        while not (FOLDER / GO).exists():
            time.sleep(0.05)


@dg.asset(partitions_def=SHARDS, backfill_policy=dg.BackfillPolicy.single_run())
def fails() -> None:
    raise dg.Failure("as asked", allow_retries=False)


@dg.sensor(target=[waits, fails], minimum_interval_seconds=1, default_status=dg.DefaultSensorStatus.RUNNING)
def asked():
    """Request a run for each file named `ASSET.SHARD.NUMBER.ask`."""
    for file in sorted(FOLDER.glob("*.ask")):
        asset, shard, _, _ = file.name.split(".")
        tags = {"dagster/asset_partition_range_start": shard, "dagster/asset_partition_range_end": shard}
        yield dg.RunRequest(run_key=file.name, asset_selection=[dg.AssetKey(asset)], tags=tags)


defs = dg.Definitions(assets=[waits, fails], sensors=[asked], executor=dg.in_process_executor)
