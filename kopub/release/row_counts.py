"""The rows of each config of a release, as `datasets` counts them in another process."""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import datasets.config
from datasets import DatasetBuilder, IterableDataset
from datasets.exceptions import DatasetsError
from datasets.load import dataset_module_factory, get_dataset_builder_class

_ROOT = Path(__file__).resolve().parents[2]
_REFUSED = (DatasetsError, ValueError, OSError)
_ROWS = 100
"""Rows in memory at a time: one of `pages` can hold an image of a megabyte."""

Counts = Mapping[str, int | str]
"""The number of rows by config, or the error of `datasets`."""


def count(folder: Path, shards: Mapping[str, Sequence[str]]) -> dict[str, int | str]:
    """Read every row of `shards` of each config, in the order of the configs."""
    with _without_magic(folder) as plain:
        return dict(_row_counts(plain, shards))


@contextmanager
def _without_magic(folder: Path) -> Iterator[Path]:
    """Yield a path to the folder without `*`, `?` and `[`.

    `datasets` would treat these as a pattern for several folders.
    """
    if not glob.has_magic(str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        # `datasets` resolves a link to a folder, but accepts links to files.
        yield Path(shutil.copytree(folder.resolve(), Path(place, "release"), copy_function=os.symlink))


def count_apart(folder: Path, shards: Mapping[str, Sequence[str]]) -> dict[str, int | str]:
    """Run `count` in a separate process.

    The process is judged by its answer, not by its exit: Arrow reads ahead through Python files for `datasets`, and if
    one of its threads still does so while the interpreter shuts down, the process aborts (apache/arrow#34314,
    huggingface/datasets#7566).
    """
    done = subprocess.run(
        [sys.executable, "-m", "kopub.release.row_counts", str(folder.resolve())],
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


def _row_counts(folder: Path, shards: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int | str]]:
    """Yield each config with its rows or an error.

    The builders are those of `load_dataset_builder`, but the card is parsed once for all configs.
    """
    try:
        module = dataset_module_factory(str(folder))
        infos, arguments = module.dataset_infos or {}, dict(module.builder_kwargs)
        name = arguments.pop("dataset_name", None)
        builder = get_dataset_builder_class(module, dataset_name=name)
    except _REFUSED as error:
        yield from dict.fromkeys(shards, f"{type(error).__name__}: {error}").items()
        return
    for config, of_config in shards.items():
        try:
            opened = builder(
                dataset_name=name, config_name=config, hash=module.hash, info=infos.get(config), **arguments
            )
            yield config, _rows(opened, of_config)
        except _REFUSED as error:
            yield config, f"{type(error).__name__}: {error}"


def _rows(builder: DatasetBuilder, shards: Sequence[str]) -> int:
    files = (builder.config.data_files or {}).get("train")
    if not files:
        raise ValueError("its card names no file that is there")
    chosen = [name for name in files if Path(name).stem in shards]
    if not chosen:
        return 0
    builder.config.data_files = {"train": chosen}  # pyright: ignore[reportAttributeAccessIssue]
    # Where torch is installed, a stream imports it for seconds, to share its epoch with workers that there are not.
    with_torch, datasets.config.TORCH_AVAILABLE = datasets.config.TORCH_AVAILABLE, False
    try:
        opened = builder.as_streaming_dataset(split="train")
        assert isinstance(opened, IterableDataset)
        return sum(len(batch) for batch in opened.with_format("arrow").iter(batch_size=_ROWS))
    finally:
        datasets.config.TORCH_AVAILABLE = with_torch


if __name__ == "__main__":
    with _without_magic(Path(sys.argv[1])) as release:
        for counted_config, rows in _row_counts(release, json.load(sys.stdin)):
            sys.stdout.write(json.dumps({counted_config: rows}) + "\n")
            sys.stdout.flush()
    os._exit(0)
