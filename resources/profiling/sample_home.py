"""A home with some pages of a corpus, so that a run touches no other table."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa

from resources.config.settings import Settings
from resources.pages.corpus import Corpus
from resources.pages.indexing import index

_SHARDS = 2
"""So that the time from one shard to the next is seen."""
_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
_SCHEMA = pa.schema([("id", pa.string()), ("image", _IMAGE), ("license", pa.string())])


@dataclass(frozen=True)
class SampleHome:
    """The home's folder, that of Dagster in it, its shards, its pages, and the environment of commands in it."""

    folder: Path
    dagster: Path
    shards: tuple[str, ...]
    pages: int
    environment: Mapping[str, str]


def make_sample_home(folder: Path, settings: Settings, pages: int, environ: Mapping[str, str]) -> SampleHome:
    """Make `folder` anew with up to `pages` pages of the corpus, from shards that lie evenly in it.

    Whatever the profile and `environ` say, tables, release and answers of models lie in the folder. Raises
    `SourceError`.
    """
    shutil.rmtree(folder, ignore_errors=True)
    source, dagster = folder / "source", folder / "dagster"
    for each in (source, dagster):
        each.mkdir(parents=True)
    (dagster / "dagster.yaml").write_text("telemetry:\n  enabled: false\n", "utf-8")
    keys = settings.corpus.manifest.keys
    shards = min(_SHARDS, len(keys), pages)
    chosen = [keys[at * len(keys) // shards] for at in range(shards)]
    for number, key in enumerate(chosen):
        count = pages * (number + 1) // shards - pages * number // shards
        _write(source / f"pages-{number:02d}.arrow", settings.corpus, key, count)
    manifest = index(str(source), folder)
    own = {
        "KOPUB_HOME": str(folder),
        "DAGSTER_HOME": str(dagster),
        "KOPUB_CORPUS__URL": "",
        "KOPUB_STORE__URL": str(folder / "store"),
        "KOPUB_RELEASE__FOLDER": str(folder / "release"),
        "KOPUB_SHARDS_PER_RUN": "null",
    }
    for section in ("layout", "recognition", "embedding"):
        # An answer that is known already would cost nothing here.
        if hasattr(getattr(settings, section), "reuse_folder"):
            own[f"KOPUB_{section.upper()}__REUSE_FOLDER"] = str(folder / "reuse" / section)
    replaced = {name.upper() for name in own}
    kept = {name: value for name, value in environ.items() if name.upper() not in replaced}
    return SampleHome(folder, dagster, tuple(manifest.keys), manifest.rows, {**kept, **own})


def own_environment() -> dict[str, str]:
    """Return the environment of this process, with its imports in front for its children."""
    from resources.config.settings import ROOT

    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def _write(path: Path, corpus: Corpus, shard: str, count: int) -> None:
    """The first pages of a shard whose bytes can be read."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
        for row in islice(_readable(corpus, shard), count):
            writer.write_table(pa.Table.from_pylist([row], _SCHEMA))


def _readable(corpus: Corpus, shard: str) -> Iterator[dict[str, object]]:
    for row in corpus.rows(shard):
        if row.data is not None and row.problem is None:
            yield {"id": row.page_id, "image": {"bytes": bytes(row.data), "path": None}, "license": row.license}
