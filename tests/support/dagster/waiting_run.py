"""A run from the command line: `python -m tests.support.dagster.waiting_run SHARD`."""

import sys

import dagster as dg
from kopub_assets.running.execution import execute
from tests.support.dagster.waiting_assets import defs

if __name__ == "__main__":
    with dg.DagsterInstance.get() as instance:
        execute(defs, instance, ["waits"], [sys.argv[1]])
