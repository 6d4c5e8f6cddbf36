"""The setup of the whole graph's benchmark: pages, homes, profile and engines."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import yaml

from benchmarks.servers.recognition import samples
from benchmarks.whole_graph.grid_engines import DPI, ENTRY_POINTS, grid
from kopub.config.profile_files import find_profile
from kopub.config.settings import Settings, read_settings
from kopub.folders import ROOT
from kopub.pages.indexing import index
from kopub.pages.page import Page

OWN_PAGES = 640
"""Pages for each stage by itself: sustained rates take three times the requests in flight, 192 for `h200`'s vectors."""
_ROWS = 32
"""Pages in one batch of a shard, as in `datasets` files with large images."""
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_SCHEMA = pa.schema([("id", pa.string()), ("image", _IMAGE), ("license", pa.string())])


@dataclass(frozen=True)
class Home:
    """A home of the platform, with a Dagster home and an indexed corpus."""

    folder: Path
    profile: Path
    keys: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def dagster(self) -> Path:
        return self.folder / "dagster"

    def settings(self) -> Settings:
        """Return the settings of the profile in this home. Raises `ConfigError`."""
        return read_settings(self.environment)


def unique_pages(source: Path, name: str, count: int, dpi: int = DPI) -> Iterator[Page]:
    """Yield copies of `source`'s pages at `dpi`, with noise in each region, so that crops are unique.

    The noise only depends on `name` and the number of the page. The source has 300 dpi.
    """
    import cv2

    scale = dpi / DPI
    originals = [
        cv2.resize(cv2.cvtColor(page.image, cv2.COLOR_RGB2BGR), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        for page in samples(source)
    ]

    def stamped(number: int) -> Page:
        rng = np.random.default_rng([number, *name.encode()])
        image = originals[number % len(originals)].copy()
        for region in grid(dpi=dpi):
            x, y = int(region.bbox[0]) + 2, int(region.bbox[1]) + 2
            patch = image[y : y + 8, x : x + 8]
            patch[:] = rng.integers(0, 256, patch.shape, np.uint8)
        # The encoder's default settings take a third of the time of any other, at twice the size.
        return Page(f"{name}_{number + 1}", cv2.imencode(".png", image)[1].tobytes())

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        numbers = iter(range(count))
        while chunk := list(islice(numbers, 8 * (os.cpu_count() or 1))):
            yield from pool.map(stamped, chunk)


def write_corpus(folder: Path, pages: Iterator[Page], count: int, shards: int) -> Path:
    """Write `count` pages into `shards` Arrow shards of equal size."""
    folder.mkdir(parents=True)
    size = -(-count // shards)
    for shard in range(shards):
        path = folder / f"data-{shard:05d}-of-{shards:05d}.arrow"
        part = islice(pages, size)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
            while rows := list(islice(part, _ROWS)):
                records = [
                    {"id": page.page_id, "image": {"bytes": bytes(page.data), "path": None}, "license": "GPL-2.0"}
                    for page in rows
                ]
                writer.write_table(pa.Table.from_pylist(records, _SCHEMA))
    return folder


def make_home(
    folder: Path, profile: Path, source: Path, pages: int, shards: int, dpi: int, environment: Mapping[str, str]
) -> Home:
    """Make a new home with `pages` unique pages at `dpi` in `shards` shards, indexed."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "dagster").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "local" / "dagster.yaml", folder / "dagster")
    corpus = write_corpus(folder / "corpus", unique_pages(source, folder.name, pages, dpi), pages, shards)
    home = folder / "home"
    home.mkdir()
    manifest = index(str(corpus), home)
    own = {"KOPUB_HOME": str(home), "KOPUB_PROFILE": str(profile), "DAGSTER_HOME": str(folder / "dagster")}
    return Home(folder, profile, tuple(manifest.keys), {**environment, **own})


def write_plugin(folder: Path) -> Path:
    """Write a folder for PYTHONPATH that registers the engines for random weights.

    It works like an installed package.
    """
    package = folder / "kopub_whole_graph-1.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: kopub-whole-graph\nVersion: 1\n", "utf-8")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in ENTRY_POINTS.items()
    ]
    (package / "entry_points.txt").write_text("\n".join(groups), "utf-8")
    return folder


def written_profile(path: Path, name: str, random: Mapping[str, str], changes: Mapping[str, Any]) -> Path:
    """Write the profile `name` with random weights and changes; see `changed`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    profile = changed(find_profile(name).sections, random, changes)
    path.write_text(yaml.safe_dump(profile, sort_keys=False, allow_unicode=True), "utf-8")
    return path


def changed(profile: Mapping[Any, Any], random: Mapping[str, str], changes: Mapping[str, Any]) -> dict[Any, Any]:
    """Return a profile with random weights for the sections in `random`, and `changes`.

    `random` gives the model folder, without weights, by section. `changes` are by dotted key; a key that ends in `+`
    adds to the existing list.
    """
    profile = deepcopy(dict(profile))
    for section, folder in random.items():
        values = profile[section]
        values.pop("model", None)
        if section == "layout":
            values |= {"engine": "grid", "repo": folder}
            continue
        server = values["server"]
        server |= {"model": folder, "extra_flags": [*server.get("extra_flags", []), "--load-format=dummy"]}
        if section == "recognition":
            # Answers from random weights never end by themselves, and retries do not improve them.
            values |= {"engine": "made_up_texts", "tries": 1, "sampling": {"ignore_eos": True, "max_tokens": 64}}
    for key, value in changes.items():
        *path, last = key.removesuffix("+").split(".")
        target: Any = profile
        for part in path:
            target = target.setdefault(part, {})
        target[last] = [*target.get(last, []), *value] if key.endswith("+") else value
    return profile


def layout_weights(folder: Path, environment: Mapping[str, str]) -> Path:
    """Return the layout network at its real size with random weights.

    It is made in a process of its own, which frees its GPU memory.
    """
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        code = (
            "import sys; from pathlib import Path; from benchmarks.reading.layout import random_weights; "
            "random_weights(Path(sys.argv[1]))"
        )
        subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, env=dict(environment), check=True)
    return folder


def parsed_value(text: str) -> tuple[str, Any]:
    """Return the key and the YAML value of `KEY=VALUE`."""
    key, equals, value = text.partition("=")
    if not equals:
        raise SystemExit(f"{text!r} is no setting: write KEY=VALUE")
    return key, yaml.safe_load(value)


def dump(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False), "utf-8")
