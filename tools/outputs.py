"""Write what the platform makes and prints as text files, to compare two commits.

    python -m tools.outputs record FOLDER [--corpus SOURCE]    in one checkout, then in the other
    python -m tools.outputs compare BEFORE AFTER

`record` indexes SOURCE (default: the samples), materializes everything with the profile of KOPUB_PROFILE in a
home of its own, and writes tables, release, export and command output to FOLDER. Values that differ in every run
(times, run ids, recipes, fingerprints, paths) are masked. `compare` exits with 1 if files differ.
"""

import argparse
import difflib
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

_RUN_FIGURES = frozenset(
    {"fingerprint", "seconds", "gpu_seconds", "recipe", "run_id", "made_at", "code", "sha256_of_row", "engine"}
)
"""Columns and fields that say how and by which run a row was made, not what it is."""
_MASKS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<run>"),
    (re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{6,64}\b"), "<hash>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z)?"), "<time>"),
    (re.compile(r"\b\d+(\.\d+)? ?(ms|s|min|h|GPU s|seconds)\b"), "<duration>"),
    (re.compile(r"\b\d+\.\d+(?=/s| pages/s| rows/s)"), "<rate>"),
)
_SHOWN_LINES = 40


def record(folder: Path, corpus: str | None) -> None:
    """Run everything on `corpus`, and write the results into `folder`."""
    with tempfile.TemporaryDirectory(prefix="kopub-outputs-") as scratch:
        home, dagster_home = Path(scratch, "home"), Path(scratch, "dagster")
        dagster_home.mkdir()
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KOPUB_")},
            "KOPUB_PROFILE": os.environ.get("KOPUB_PROFILE", "cpu"),
            "KOPUB_HOME": str(home),
            "DAGSTER_HOME": str(dagster_home),
            "PYTHONPATH": str(Path.cwd()),
            "COLUMNS": "160",
            "PYTHONWARNINGS": "ignore",
        }
        run = _Commands(folder / "cli", environment, scratch)
        if corpus:
            run.kopub("index", "index", corpus)
        shards = run.kopub("shards", "shards", "--range").strip()
        run.materialize(shards)
        page_id = _first_page(home / "store")
        run.kopub("status", "status")
        run.kopub("plan", "plan")
        run.kopub("plan_what_if", "plan", "--set", "embedding.dim=512")
        run.kopub("doubts", "doubts")
        run.kopub("costs", "costs")
        run.kopub("lineage", "lineage", page_id)
        run.kopub("search", "search", "데비안 설치 방법")
        run.kopub("verify", "verify", str(home / "release"))
        run.kopub("publish_dry_run", "publish", "--dry-run")
        run.kopub("export", "export", str(Path(scratch, "export")))
        run.kopub("no_such_page", "lineage", "no such page")
        run.materialize(shards, "again")
        run.kopub("status_again", "status")
        # Another width causes new vectors, so that there are two versions to compare.
        environment["KOPUB_EMBEDDING__DIM"] = "512"
        run.kopub("plan_stale", "plan")
        run.materialize(shards, "upgraded")
        run.kopub("diff", "diff", shards.partition("...")[0])
        for table in sorted((home / "store").glob("*/*.parquet")):
            _write_rows(folder / "tables" / table.relative_to(home / "store").with_suffix(".jsonl"), table)
        _write_release(folder / "release", home / "release", scratch)
        _write_export(folder / "export", Path(scratch, "export"), scratch)


class _Commands:
    """A runner of the checkout's commands that keeps their output by name."""

    def __init__(self, folder: Path, environment: dict[str, str], scratch: str) -> None:
        self._folder, self._environment, self._scratch = folder, environment, scratch
        folder.mkdir(parents=True, exist_ok=True)

    def kopub(self, name: str, *arguments: str) -> str:
        return self._run(name, [sys.executable, "-c", "from kopub.cli.main import main; main()", *arguments])

    def materialize(self, shards: str, name: str = "") -> None:
        command = ["-m", "dagster", "asset", "materialize", "--select", "*", "--partition-range", shards]
        done = subprocess.run(
            [sys.executable, *command, "-m", "definitions"], env=self._environment, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"{name or 'first'} materialization failed:\n{done.stderr[-4000:]}")

    def _run(self, name: str, command: Sequence[str]) -> str:
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        said = f"{done.stdout}{done.stderr}exit {done.returncode}\n"
        (self._folder / f"{name}.txt").write_text(_masked(said, self._scratch))
        return done.stdout


def _masked(text: str, scratch: str) -> str:
    text = text.replace(scratch, "<scratch>").replace(str(Path.cwd()), "<checkout>")
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return re.sub(r"[ ─━]{2,}", "  ", text)


def _first_page(store: Path) -> str:
    first = min((store / "raw_pages").glob("*.parquet"))
    return pq.read_table(first, columns=["page_id"])["page_id"][0].as_py()


def _write_rows(path: Path, table: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for row in _rows(pq.ParquetFile(table).read()):
            file.write(json.dumps(row, ensure_ascii=False, sort_keys=True, default=str) + "\n")


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for row in table.to_pylist():
        yield {name: _plain(name, value) for name, value in row.items() if name not in _RUN_FIGURES}


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(key, inner) for key, inner in value.items() if key not in _RUN_FIGURES}
    if isinstance(value, bytes):
        return hashlib.sha256(value).hexdigest()
    if isinstance(value, list) and name == "vector":
        return hashlib.sha256(np.array(value, "<f2").tobytes()).hexdigest()
    if isinstance(value, list):
        return [_plain(name, inner) for inner in value]
    return value


def _write_release(folder: Path, release: Path, scratch: str) -> None:
    for path in sorted(release.rglob("*")):
        name = path.relative_to(release)
        if path.suffix == ".parquet":
            _write_rows(folder / name.with_suffix(".jsonl"), path)
        elif path.is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(_masked(path.read_text(), scratch))


def _write_export(folder: Path, export: Path, scratch: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(path for path in export.rglob("*") if path.is_file()):
        name = folder / path.relative_to(export)
        name.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".jsonl", ".json"):
            name.write_text(
                re.sub(r'"(seconds|gpu_seconds)": [0-9.e-]+', r'"\1": 0', _masked(path.read_text(), scratch))
            )
        else:
            name.write_text(hashlib.sha256(path.read_bytes()).hexdigest() + "\n")


def compare(before: Path, after: Path) -> int:
    """Print the differences between two recorded folders; return how many files differ."""
    names = {path.relative_to(folder) for folder in (before, after) for path in folder.rglob("*") if path.is_file()}
    different = 0
    for name in sorted(names):
        old, new = (folder / name for folder in (before, after))
        if not (old.exists() and new.exists()):
            different += 1
            print(f"only {'before' if old.exists() else 'after'}: {name}")
        elif old.read_bytes() != new.read_bytes():
            different += 1
            lines = difflib.unified_diff(
                old.read_text().splitlines(), new.read_text().splitlines(), str(old), str(new), lineterm="", n=0
            )
            print("\n".join(line[:400] for line in list(lines)[:_SHOWN_LINES]))
    print(f"{len(names) - different} of {len(names)} files are the same")
    return different


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record")
    recorder.add_argument("folder", type=Path)
    recorder.add_argument("--corpus")
    comparer = commands.add_parser("compare")
    comparer.add_argument("before", type=Path)
    comparer.add_argument("after", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "record":
        record(arguments.folder.resolve(), arguments.corpus)
    else:
        sys.exit(bool(compare(arguments.before, arguments.after)))


if __name__ == "__main__":
    main()
