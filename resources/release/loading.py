"""How many rows `datasets` gives of each config of a release, as somebody else would read them.

`python -m resources.release.loading` answers for a process of its own, see `count_apart`.
"""

import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datasets import DatasetBuilder

_ROOT = Path(__file__).resolve().parents[2]
_ROWS = 100
"""Rows in memory at a time: one of `pages` can hold an image of a megabyte."""

Counts = Mapping[str, int | str]
"""By config: its rows, or what `datasets` said instead of giving them."""


def count(folder: Path, shards: Mapping[str, Sequence[str]]) -> dict[str, int | str]:
    """Read every row of `shards` of each config, in the order of the configs."""
    with _without_magic(folder) as plain:
        return dict(_each(plain, shards))


@contextmanager
def _without_magic(folder: Path) -> Iterator[Path]:
    """A path of the folder without `*`, `?` and `[`, of which `datasets` would make a pattern of several folders."""
    if not glob.has_magic(str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        # `datasets` resolves a link to a folder, and takes links to files.
        yield Path(shutil.copytree(folder.resolve(), Path(place, "release"), copy_function=os.symlink))


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


def _each(folder: Path, shards: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, int | str]]:
    from datasets.exceptions import DatasetsError

    refusals = (DatasetsError, ValueError, OSError)
    try:
        opened = _opened(folder)
    except refusals as error:
        yield from dict.fromkeys(shards, f"{type(error).__name__}: {error}").items()
        return
    for config, of_config in shards.items():
        try:
            yield config, _rows(opened(config), of_config)
        except refusals as error:
            yield config, f"{type(error).__name__}: {error}"


def _opened(folder: Path) -> Callable[[str], "DatasetBuilder"]:
    """What `load_dataset_builder` gives of a config, with the card parsed once for all of them."""
    from datasets.load import dataset_module_factory, get_dataset_builder_class

    module = dataset_module_factory(str(folder))
    infos, known = module.dataset_infos or {}, dict(module.builder_kwargs)
    named = known.pop("dataset_name", None)
    builder = get_dataset_builder_class(module, dataset_name=named)
    return lambda config: builder(
        dataset_name=named, config_name=config, hash=module.hash, info=infos.get(config), **known
    )


def _rows(builder: "DatasetBuilder", shards: Sequence[str]) -> int:
    from datasets import IterableDataset

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
    with _without_magic(Path(sys.argv[1])) as release:
        for counted_config, rows in _each(release, json.load(sys.stdin)):
            sys.stdout.write(json.dumps({counted_config: rows}) + "\n")
            sys.stdout.flush()
    os._exit(0)
