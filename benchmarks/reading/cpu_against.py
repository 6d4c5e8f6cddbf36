"""Compare the CPU seconds of the cpu profile with those of another checkout, pair by pair.

    python -m benchmarks.reading.cpu_against FOLDER CHECKOUT [--benchmark NAME] [--limit SAMPLES] [--pairs PAIRS]

Each pair runs `benchmarks.reading.cpu_quality` once in this checkout and once in CHECKOUT, a folder with another
version of this repository, and compares their user and system seconds, start-up included. Other work on the machine
slows both down.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parents[2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--benchmark", default="texts")
    parser.add_argument("--limit", type=int, default=6)
    parser.add_argument("--pairs", type=int, default=2)
    arguments = parser.parse_args()
    asked = [str(arguments.folder.resolve()), "--benchmark", arguments.benchmark, "--limit", str(arguments.limit)]
    ratios = []
    for _ in range(arguments.pairs):
        here, there = (cpu_seconds(checkout, asked) for checkout in (HERE, arguments.checkout))
        ratios.append(here / there)
        print(f"here {here:.1f} s, there {there:.1f} s, ratio {here / there:.2f}", flush=True)
    print(f"median ratio {np.median(ratios):.2f}")


def cpu_seconds(checkout: Path, asked: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "benchmarks.reading.cpu_quality", *asked]
    subprocess.run(
        command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, check=True, capture_output=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
