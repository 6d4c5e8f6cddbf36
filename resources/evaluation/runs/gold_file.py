"""The known answers of a corpus as one file beside its manifest: `gold.parquet`."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from resources.errors import SourceError
from resources.evaluation import gold
from resources.evaluation.benchmark import Benchmark, LeftOut, Sample
from resources.files import replace_bytes
from resources.fingerprints import fingerprint
from resources.printable import first_line

_ABOUT = b"kopub.benchmarks"
_SCHEMA = pa.schema(
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
    """A benchmark without its pictures. `of` samples it has in its folder, of which these were taken."""

    benchmark: Benchmark
    of: int

    @property
    def identity(self) -> str:
        """Fingerprint of what is scored against: the name, the version and the gold of every sample."""
        benchmark = self.benchmark
        answers = [
            [sample.id, sample.document, sorted(sample.slices.items()), gold.to_json(sample.gold)]
            for sample in benchmark.samples
        ]
        return fingerprint([benchmark.name, benchmark.version, answers])


def write_gold(path: Path, answers: Sequence[KnownAnswers]) -> None:
    """Replace the file. Raises `StoreError`."""
    rows = [
        {
            "benchmark": known.benchmark.name,
            "sample": sample.id,
            "document": sample.document,
            "slices": list(sample.slices.items()),
            "gold": gold.to_json(sample.gold),
        }
        for known in answers
        for sample in known.benchmark.samples
    ]
    about = [
        {
            "name": known.benchmark.name,
            "version": known.benchmark.version,
            "licence": known.benchmark.licence,
            "source": known.benchmark.source,
            "of": known.of,
            "left_out": [[each.what, each.reason] for each in known.benchmark.left_out],
        }
        for known in answers
    ]
    schema = _SCHEMA.with_metadata({_ABOUT: json.dumps(about, ensure_ascii=False).encode()})
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema), sink, compression="zstd")
    replace_bytes(path, sink.getvalue())


def read_gold(path: Path) -> list[KnownAnswers]:
    """Every benchmark of the file, its samples in their order. Raises `SourceError`."""
    try:
        table = pq.read_table(path)
        about = json.loads((table.schema.metadata or {})[_ABOUT])
        samples: dict[str, list[Sample]] = {each["name"]: [] for each in about}
        for row in table.to_pylist():
            known = Sample(row["sample"], row["document"], None, dict(row["slices"]), gold.from_json(row["gold"]))
            samples[row["benchmark"]].append(known)
        return [
            KnownAnswers(
                Benchmark(
                    each["name"],
                    each["version"],
                    each["licence"],
                    each["source"],
                    samples[each["name"]],
                    tuple(LeftOut(*left_out) for left_out in each["left_out"]),
                ),
                each["of"],
            )
            for each in about
        ]
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        again = "evaluate the benchmark again"
        raise SourceError(f"{path} holds no known answers ({first_line(error)}): {again}") from None


def first_by_hash(benchmark: Benchmark, limit: int | None) -> Benchmark:
    """The benchmark, or its first `limit` samples by the hash of their ids: the same ones every time."""
    if limit is None or limit >= len(benchmark.samples):
        return benchmark
    taken = {sample.id for sample in sorted(benchmark.samples, key=lambda sample: fingerprint(sample.id))[:limit]}
    return replace(benchmark, samples=[sample for sample in benchmark.samples if sample.id in taken])
