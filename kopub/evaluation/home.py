"""The home of a benchmark: its pictures as a corpus, with its known answers.

The answers are stored beside the manifest.
"""

import json
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from filelock import FileLock

from kopub.errors import KopubError, SourceError, first_line
from kopub.evaluation.benchmark import (
    Benchmark,
    Sample,
    SkippedSample,
    close_pictures,
    gold_from_json,
    gold_to_json,
)
from kopub.files import replace_bytes, replace_file
from kopub.fingerprints import canonical_json, fingerprint
from kopub.layout.ground_truth import REGIONS, TYPE
from kopub.pages import manifest
from kopub.pages.arrow import TEXT_LAYER
from kopub.pages.documents.text_layer import RenderedImage
from kopub.states import phrase
from kopub.store.table_store import ShardStore

_ABOUT = b"kopub.benchmarks"
_GOLD_SCHEMA = pa.schema(
    [
        ("benchmark", pa.string()),
        ("sample", pa.string()),
        ("document", pa.string()),
        ("slices", pa.map_(pa.string(), pa.string())),
        ("gold", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class KnownAnswers:
    """A benchmark without its pictures.

    `of` is the number of samples in its folder, from which these were taken.
    """

    benchmark: Benchmark
    of: int

    @property
    def identity(self) -> str:
        """The fingerprint of the name, the version and the gold of every sample."""
        benchmark = self.benchmark
        answers: list[list[Any]] = []
        for sample in benchmark.samples:
            answers.append([sample.id, sample.document, sorted(sample.slices.items()), gold_to_json(sample.gold)])
        return fingerprint([benchmark.name, benchmark.version, answers])


def write_gold(path: Path, answers: Sequence[KnownAnswers]) -> None:
    """Replace the file by the known answers of benchmarks. Raises `StoreError`."""
    rows: list[dict[str, Any]] = []
    about: list[dict[str, Any]] = []
    for entry in answers:
        benchmark = entry.benchmark
        about.append(
            {
                "name": benchmark.name,
                "version": benchmark.version,
                "licence": benchmark.licence,
                "source": benchmark.source,
                "of": entry.of,
                "left_out": [[skipped.what, skipped.reason] for skipped in benchmark.left_out],
            }
        )
        for sample in benchmark.samples:
            rows.append(
                {
                    "benchmark": benchmark.name,
                    "sample": sample.id,
                    "document": sample.document,
                    "slices": list(sample.slices.items()),
                    "gold": gold_to_json(sample.gold),
                }
            )
    schema = _GOLD_SCHEMA.with_metadata({_ABOUT: json.dumps(about, ensure_ascii=False).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, compression="zstd")
    replace_bytes(path, sink.getvalue())


def read_gold(path: Path) -> list[KnownAnswers]:
    """Return every benchmark in the file, its samples in order. Raises `SourceError`."""
    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {})[_ABOUT])
        samples: dict[str, list[Sample]] = {entry["name"]: [] for entry in about}
        for row in table.to_pylist():
            sample = Sample(row["sample"], row["document"], None, dict(row["slices"]), gold_from_json(row["gold"]))
            samples[row["benchmark"]].append(sample)
        answers: list[KnownAnswers] = []
        for entry in about:
            name, left_out = entry["name"], tuple(SkippedSample(*skipped) for skipped in entry["left_out"])
            benchmark = Benchmark(name, entry["version"], entry["licence"], entry["source"], samples[name], left_out)
            answers.append(KnownAnswers(benchmark, entry["of"]))
        return answers
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        again = "evaluate the benchmark again"
        raise SourceError("{path} holds no known answers ({error}): {remedy}", path, first_line(error), again) from None


def first_by_hash(benchmark: Benchmark, limit: int | None) -> Benchmark:
    """Return the first `limit` samples by the hash of their ids, the same every time."""
    if limit is None or limit >= len(benchmark.samples):
        return benchmark
    ids = {sample.id for sample in sorted(benchmark.samples, key=lambda sample: fingerprint(sample.id))[:limit]}
    return replace(benchmark, samples=[sample for sample in benchmark.samples if sample.id in ids])


EVALUATIONS = "evaluations"
"""The folder in a home that contains the homes of its evaluations."""
CHECKED_PAGES = "checked_pages"
"""The folder in a home with the pages that people checked, as a benchmark to be read again."""
Progress = Callable[[str], None]

_SHARD_PAGES = 64
"""Pictures in a shard: enough that a run of hundreds has few shards, few enough that each is done soon."""
_PAGES, _MADE_FROM = "pages", "pages.json"
_PAGES_SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])),
        ("file_name", pa.string()),
        ("license", pa.string()),
        ("problem", pa.string()),
        (TEXT_LAYER, pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """A benchmark to be read: its name, its folder, and its number of samples."""

    benchmark: str
    folder: Path
    limit: int | None = None

    def home(self, home: Path) -> Path:
        """Return the folder of this evaluation in the platform's home."""
        source = self.folder.resolve()
        name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in source.name).lstrip(".")
        part = "" if self.limit is None else f"-first-{self.limit}"
        return home / EVALUATIONS / self.benchmark / f"{name[:60] or 'folder'}-{fingerprint(str(source))[:8]}{part}"

    def place(self, home: Path, profile: str) -> Path:
        """Return the folder that contains the store of a profile."""
        return self.home(home) / "profiles" / profile

    def store(self, home: Path, profile: str) -> ShardStore:
        """Return the store of a profile's tables, which may not exist yet."""
        return ShardStore(url=str(self.place(home, profile) / "store"))

    def stores(self, home: Path, profile: str) -> list[ShardStore]:
        """Return the stores of all profiles that read it, this one's first, then the newest."""
        places = (self.home(home) / "profiles").glob("*/store")
        newest = sorted(places, key=lambda place: place.stat().st_mtime, reverse=True)
        own = self.place(home, profile) / "store"
        return [ShardStore(url=str(place)) for place in sorted(newest, key=lambda place: place != own)]

    def baseline(self, home: Path) -> ShardStore:
        """Return the store of the runs that guarded the corpus, whichever profile read them."""
        return ShardStore(url=str(self.home(home) / "baseline"))

    @property
    def command(self) -> str:
        """The command that evaluates it, as a user types it."""
        limit = f" --limit {self.limit}" if self.limit else ""
        return f"kopub evaluate {self.benchmark} {shlex.quote(str(self.folder))}{limit}"

    def is_indexed(self, home: Path) -> bool:
        """Return whether the benchmark is indexed as a corpus.

        It is not while its pages are being written, nor after a kill meanwhile.
        """
        return all((self.home(home) / name).is_file() for name in (manifest.NAME, manifest.GOLD, _MADE_FROM))

    def gives_regions(self, home: Path) -> bool:
        """Return whether the pages of the indexed benchmark come with regions."""
        return json.loads((self.home(home) / _MADE_FROM).read_bytes())["regions"]


def prepare(
    benchmark: Benchmark, home: Path, limit: int | None = None, progress: Progress | None = None
) -> KnownAnswers:
    """Make `home` the home of the benchmark: pages, manifest and gold.

    Existing pictures are kept. A picture that cannot be read becomes a page with a problem, which will be quarantined.
    Raises `SourceError` if there is no sample, or if only some samples come with regions.
    """
    # Most commands only read what was evaluated, and need no readers of documents.
    from kopub.pages.indexing import index

    chosen = first_by_hash(benchmark, limit)
    if not chosen.samples:
        left_out = benchmark.left_out
        if not left_out:
            raise SourceError("{benchmark} has no sample", benchmark.name)
        more = phrase(", and {count} more", len(left_out) - 1) if len(left_out) > 1 else ""
        raise SourceError("{benchmark} has no sample: {reason}{more}", benchmark.name, str(left_out[0]), more)
    with_regions = {sample.regions is not None for sample in chosen.samples}
    if len(with_regions) > 1:
        form = "{benchmark} gives the regions of some samples and not of others: make two of it"
        raise SourceError(form, benchmark.name)
    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / ".lock"):
        pages = fingerprint([chosen.version, [_sample_inputs(sample, chosen.licence) for sample in chosen.samples]])
        made_from = canonical_json({"pages": pages, "regions": with_regions == {True}}).encode()
        try:
            is_indexed = (home / manifest.NAME).exists() and (home / _MADE_FROM).read_bytes() == made_from
        except OSError:
            is_indexed = False
        if not is_indexed:
            (home / _MADE_FROM).unlink(missing_ok=True)
            shutil.rmtree(home / _PAGES, ignore_errors=True)
            schema = _PAGES_SCHEMA.append(pa.field(REGIONS, TYPE)) if with_regions == {True} else _PAGES_SCHEMA
            for start in range(0, len(chosen.samples), _SHARD_PAGES):
                shard = chosen.samples[start : start + _SHARD_PAGES]
                file = home / _PAGES / f"pages-{start // _SHARD_PAGES:04d}.arrow"
                replace_file(file, partial(_write_shard, shard, chosen.licence, schema))
                if progress is not None:
                    progress(phrase("{count:,} of {all:,} pictures", start + len(shard), len(chosen.samples)))
            close_pictures()
            index(str(home / _PAGES), home)
            replace_bytes(home / _MADE_FROM, made_from)
        answers = KnownAnswers(chosen, len(benchmark.samples))
        write_gold(home / manifest.GOLD, [answers])
    return answers


def _sample_inputs(sample: Sample, licence: str) -> list[Any]:
    """Return the values that determine a sample's row, without opening its picture."""
    regions = None if sample.regions is None else [[r.label, r.task, list(r.bbox)] for r in sample.regions]
    picture = sample.picture
    if picture is None:
        return [sample.id, sample.document, licence, regions, None]
    try:
        stat = picture.path.stat()
        file = [str(picture.path.absolute()), stat.st_size, stat.st_mtime_ns]
    except (OSError, ValueError):
        file = [str(picture.path)]
    return [
        sample.id,
        sample.document,
        licence,
        regions,
        [*file, picture.page, *(["layer"] if picture.with_layer else [])],
    ]


def _write_shard(samples: Sequence[Sample], licence: str, schema: pa.Schema, path: Path) -> None:
    with pa.ipc.new_stream(str(path), schema) as writer:
        for sample in samples:
            page: RenderedImage | None = None
            problem: str | None = "the benchmark has no picture of it"
            if sample.picture is not None:
                try:
                    page, problem = sample.picture.made(), None
                except (OSError, ValueError, KopubError) as error:
                    problem = phrase("{file} cannot be read: {reason}", sample.picture.path.name, first_line(error))
            row = {
                "id": sample.id,
                "image": page and {"bytes": page.data, "path": None},
                "file_name": sample.document,
                "license": licence,
                "problem": problem,
                TEXT_LAYER: page and page.text_layer,
            }
            if REGIONS in schema.names:
                boxes = [{"label": r.label, "task": r.task.value, "bbox": list(r.bbox)} for r in sample.regions or ()]
                row[REGIONS] = boxes
            # With one batch per picture, at most one picture is in memory.
            writer.write_batch(pa.RecordBatch.from_pylist([row], schema))
