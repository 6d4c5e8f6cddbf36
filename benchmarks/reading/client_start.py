"""Measure the start of a client process: CPU seconds, modules, and heavy packages.

    python -m benchmarks.reading.client_start [--repeat N]

Each process is started by the engine's own worker pool with the engine's own handler. "Ready" is when it requests its
first job, "first job" when it has prepared it. The minimum of N runs is shown, beside `python -c pass`.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.processes.worker_report import Moment, WorkerReport
from tests.support.reporting_engines import embedder_reports, recognizer_reports


def plain_seconds() -> float:
    """Return the CPU seconds of an interpreter that does nothing."""
    before = os.times()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def row(moment: Moment) -> str:
    return f"{moment.cpu_seconds:6.2f} s {moment.modules:5} modules, heavy: {', '.join(moment.heavy) or 'none'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    runs: list[dict[str, WorkerReport]] = []
    for _ in range(parser.parse_args().repeat):
        with tempfile.TemporaryDirectory() as folder:
            runs.append({**recognizer_reports(Path(folder)), **embedder_reports(Path(folder))})
    print(f"python -c pass: {min(plain_seconds() for _ in range(5)):.2f} s")
    for name in runs[0]:
        ready = min((run[name].ready for run in runs), key=lambda moment: moment.cpu_seconds)
        prepared = min((run[name].prepared for run in runs), key=lambda moment: moment.cpu_seconds)
        print(f"{name}: ready      {row(ready)}")
        print(f"{' ' * len(name)}  first job  {row(prepared)}")


if __name__ == "__main__":
    main()
