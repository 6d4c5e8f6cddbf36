"""How many rows `datasets` gives of each config of a release, as somebody else would read them.

`python -m resources.release.loading` answers for a process of its own, see `count_apart`.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_ROWS = 100
"""Rows in memory at a time: one of `pages` can hold an image of a megabyte."""

Counts = Mapping[str, int | str]
"""By config: its rows, or what `datasets` said instead of giving them."""


def count(folder: Path, shards: Mapping[str, Sequence[str]]) -> dict[str, int | str]:
    """Read every row of `shards` of each config, in the order of the configs."""
    from datasets.exceptions import DatasetsError

    counted: dict[str, int | str] = {}
    for config, of_config in shards.items():
        try:
            counted[config] = _rows(folder, config, of_config)
        except (DatasetsError, ValueError, OSError) as error:
            counted[config] = f"{type(error).__name__}: {error}"
    return counted


def count_apart(folder: Path, shards: Mapping[str, Sequence[str]]) -> dict[str, int | str]:
    """`count` in a process of its own, which is judged by its answer and not by how it ends.

    Arrow reads ahead through Python files for `datasets`; a thread of its that still does so while the interpreter
    shuts down aborts the process (apache/arrow#34314, huggingface/datasets#7566).
    """
    done = subprocess.run(
        [sys.executable, "-m", "resources.release.loading", str(folder.resolve())],
        cwd=_ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        input=json.dumps({config: list(of_config) for config, of_config in shards.items()}),
        capture_output=True,
        text=True,
        check=False,
    )
    counted: dict[str, int | str] = {}
    for line in done.stdout.splitlines():
        counted |= json.loads(line)
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {config: counted.get(config, f"the process ended with {done.returncode}: {last}") for config in shards}


def _rows(folder: Path, config: str, shards: Sequence[str]) -> int:
    from datasets import IterableDataset, load_dataset_builder

    builder = load_dataset_builder(str(folder), config)
    files = (builder.config.data_files or {}).get("train")
    if not files:
        raise ValueError("its card names no file that is there")
    chosen = [name for name in files if Path(name).stem in shards]
    if not chosen:
        return 0
    builder.config.data_files = {"train": chosen}  # pyright: ignore[reportAttributeAccessIssue]
    opened = builder.as_streaming_dataset(split="train")
    assert isinstance(opened, IterableDataset)
    return sum(len(batch) for batch in opened.with_format("arrow").iter(batch_size=_ROWS))


if __name__ == "__main__":
    for asked, keys in json.load(sys.stdin).items():
        sys.stdout.write(json.dumps(count(Path(sys.argv[1]), {asked: keys})) + "\n")
        sys.stdout.flush()
    os._exit(0)
