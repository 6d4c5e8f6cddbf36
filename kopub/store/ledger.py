"""The append-only ledger of computed rows: their run, time and cost.

The tables themselves hold no times, so that a shard comes out the same however it was made.
"""

import math
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from kopub.fingerprints import canonical_json
from kopub.store.corpus_tables import RELEASED_FILES, TABLES
from kopub.store.table_store import TableStore

LEDGER = pa.schema(
    [
        pa.field("row_id", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("made_at", pa.timestamp("us", "UTC"), nullable=False),
        ("seconds", pa.float64()),
        ("gpu_seconds", pa.float64()),
        pa.field("recipe", pa.string(), nullable=False),
        ("figures", pa.string()),
    ]
)
"""One row for each computed row, oldest first.

`row_id` is the page or query, `fingerprint` that of its row in the table, and `recipe` the asset's own recipe.
`seconds` is the row's share of the wall time that its shard took, and `gpu_seconds` is `seconds` times the number of
GPUs that the engine held. Both are null if the time is unknown: a killed run's finished rows are entered by the next
run of the shard under its own name. `figures` holds the engine's counts for the row, such as tokens and retries, as
JSON of numbers by name; null if it counted nothing.
"""

_EPOCH = datetime.fromtimestamp(0, UTC)
_FOLDER = ".ledger"
_MOST_PARTS = 16
"""Most files of a shard before they are merged, so that a night of retries costs no more than one read each."""
_RUN_DIGITS = 8
"""Digits of a run's id in the name of its part, followed by the number of rows that the run computed."""
_MERGED = "merged"
"""Suffix of a part that may repeat entries of other parts, such as one that merges all parts before it."""
_SAMPLE = 32
"""Number of newest parts that show what a row costs now: a night's shards, read in a tenth of a second."""


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run: its end, and the number of rows it computed by asset."""

    run_id: str
    ended: datetime
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TimeCost:
    """The cost of `rows` in seconds, counting only rows whose time is known."""

    rows: int
    seconds: float
    gpu_seconds: float

    @property
    def seconds_each(self) -> float:
        return self.seconds / self.rows if self.rows else 0.0

    @property
    def gpu_seconds_each(self) -> float:
        return self.gpu_seconds / self.rows if self.rows else 0.0


def assets(store: TableStore) -> list[str]:
    """Return the assets with ledger entries: the platform's in order, then others by name."""
    order = [table.name for table in (*TABLES, RELEASED_FILES)]
    names = {name.partition("/")[0] for name in store.parts(_FOLDER).names()}
    return [*(name for name in order if name in names), *sorted(names - set(order))]


def entries(
    keys: Sequence[tuple[str, str]],
    seconds: Sequence[float | None],
    gpus: float,
    run_id: str,
    recipe: str,
    figures: Mapping[tuple[str, str], Mapping[str, float]] | None = None,
) -> pa.Table:
    """Return ledger rows for (id, fingerprint) `keys` just made; unknown `seconds` are None."""
    rows: list[dict[str, object]] = []
    common = {"run_id": run_id, "made_at": datetime.now(UTC), "recipe": recipe}
    for key, time in zip(keys, seconds, strict=True):
        counts = figures.get(key) if figures else None
        rows.append(
            {
                "row_id": key[0],
                "fingerprint": key[1],
                **common,
                "seconds": time,
                "gpu_seconds": None if time is None else time * gpus,
                "figures": canonical_json(dict(counts)) if counts else None,
            }
        )
    return pa.Table.from_pylist(rows, LEDGER)


def shares(seconds: float, costs: Sequence[float]) -> list[float]:
    """Divide `seconds` in proportion to the rows' costs, or equally if all are 0."""
    total = sum(costs)
    return [seconds * cost / total for cost in costs] if total > 0 else [seconds / len(costs)] * len(costs)


def append(store: TableStore, asset: str, shard: str, rows: pa.Table, first: bool = False) -> None:
    """Add `rows` in the schema `LEDGER`. Raises `StoreError`.

    `first` means that the shard's table was never made, so that there are no entries to look for.
    """
    if not rows.num_rows:
        return
    parts = store.parts(_FOLDER, asset, shard)
    if first:
        parts.expect_none()
    computed = len(rows) - rows["seconds"].null_count
    parts.append(rows, f"{rows['run_id'][0].as_py()[:_RUN_DIGITS]}-{computed}")
    names = parts.seen()
    if len(names) > _MOST_PARTS:
        # Repeated entries count once, so a kill or a second writer does no harm here.
        parts.append(_once(parts.read(lambda _: names)), _MERGED)
        parts.remove(names)


def carry(store: TableStore, asset: str, source: str, shard: str, keys: Collection[tuple[str, str]]) -> None:
    """Copy the newest entries of (id, fingerprint) `keys` from shard `source` to `shard`.

    Keys that already have an entry in `shard` are skipped. The copies keep their place in time, so that they do not
    pass for what was computed last.
    """
    missing = set(keys) - set(keys_of(read(store, asset, shard)))
    rows = newest(read(store, asset, source)) if missing else LEDGER.empty_table()
    rows = rows.filter(pa.array([key in missing for key in keys_of(rows)], pa.bool_()))
    if rows.num_rows:
        moment = 1000 * max(rows["made_at"].cast(pa.int64()).to_pylist())
        store.parts(_FOLDER, asset, shard).insert(rows, moment, f"{uuid.uuid4().hex[:_RUN_DIGITS]}-{_MERGED}")


def read(store: TableStore, asset: str, shard: str) -> pa.Table:
    """Return all entries of a shard, oldest first; a row computed twice has two."""
    return _once(store.parts(_FOLDER, asset, shard).read())


def keys_of(ledger: pa.Table) -> Iterator[tuple[str, str]]:
    """Return the (id, fingerprint) of each entry."""
    return zip(ledger["row_id"].to_pylist(), ledger["fingerprint"].to_pylist(), strict=True)


def newest(ledger: pa.Table) -> pa.Table:
    """Return the last entry of every (id, fingerprint)."""
    last = {key: at for at, key in enumerate(keys_of(ledger))}
    return ledger.take(pa.array(sorted(last.values()), pa.int64()))


def sum_costs(rows: pa.Table) -> TimeCost:
    """Return the total cost of the rows of a ledger."""
    costs = _timed(rows)
    seconds, gpu_seconds = costs["seconds"].to_pylist(), costs["gpu_seconds"].to_pylist()
    return TimeCost(costs.num_rows, math.fsum(seconds), math.fsum(gpu_seconds))


def rates(store: TableStore, assets: Iterable[str]) -> dict[str, TimeCost]:
    """Return the recent cost of rows by asset, from the latest parts.

    An asset that has never computed anything is left out.
    """
    names_of = {asset: list[str]() for asset in assets}
    if not names_of:
        return {}
    log = store.parts(_FOLDER)
    for name in log.names():
        if (asset := _shard(name)[0]) in names_of:
            names_of[asset].append(name)
    costs: dict[str, TimeCost] = {}
    for asset, names in names_of.items():
        # A part may be gone by now, merged into a newer one by another run; it is skipped.
        runs: list[pa.Table] = []
        for part in filter(None, map(log.read_one, sorted(names, key=_file)[-_SAMPLE:])):
            timed = part.filter(pc.field("seconds").is_valid())
            if timed.num_rows:
                timed = timed.filter(pc.field("made_at") == max(timed["made_at"].to_pylist()))
            runs.append(timed)
        cost = sum_costs(_join_parts(runs))
        if cost.rows:
            costs[asset] = cost
    return costs


def last_run(store: TableStore, shards: Mapping[str, Collection[str]]) -> LastRun | None:
    """Return the run that last computed rows of the `shards` of each asset.

    None if no shard has an entry: a run that computed nothing enters nothing. Raises `StoreError` if a part is damaged.
    """
    log = store.parts(_FOLDER)

    def of_shards(names: Sequence[str]) -> list[str]:
        return [name for name in names if _shard(name)[1] in shards.get(_shard(name)[0], ())]

    parts = log.read(
        # The last part that has rows.
        lambda names: sorted((name for name in of_shards(names) if not name.endswith("-0.parquet")), key=_file)[-1:]
    )
    if not parts or not (last := _timed(_join_parts(parts))).num_rows:
        return None
    moments = last["made_at"].cast(pa.int64()).to_pylist()
    at = moments.index(max(moments))
    run_id, ended = last["run_id"][at].as_py(), moment_of(moments[at])
    names = of_shards(log.seen())
    # A merged part may repeat entries of other parts, also of other shards, and its name does not say how many rows a
    # run computed.
    to_read = {_shard(name)[0]: dict[str, None]() for name in names if _run(name) is None}
    rows = dict.fromkeys(shards, 0)
    for name in names:
        (asset, shard), run = _shard(name), _run(name)
        if run is not None and run[0] != run_id[:_RUN_DIGITS]:
            continue
        if asset in to_read:
            to_read[asset][shard] = None
        elif run is not None:
            rows[asset] += run[1]
    for asset, shards_to_read in to_read.items():
        # Each row counts once, because the entries of rows that moved to another shard are in both.
        keys = set[tuple[str, str]]()
        for shard in shards_to_read:
            entries = _timed(read(store, asset, shard))
            runs = entries["run_id"].to_pylist()
            keys.update(key for entered, key in zip(runs, keys_of(entries), strict=True) if entered == run_id)
        rows[asset] = len(keys)
    return LastRun(run_id, ended, rows)


def _timed(rows: pa.Table) -> pa.Table:
    """Return the rows whose time is known."""
    # A mask and numeric times are used, because filter expressions and Python datetimes load pandas.
    return rows.filter(rows["seconds"].is_valid())


def _file(name: str) -> str:
    return name.rpartition("/")[2]


def _shard(name: str) -> tuple[str, str]:
    """Return the asset and shard of a part in the log of all assets."""
    asset, _, rest = name.partition("/")
    return asset, rest.partition("/")[0]


def _run(name: str) -> tuple[str, int] | None:
    """Return a run id's first digits and a row count from a part's name."""
    run, _, computed = _file(name).removesuffix(".parquet").partition("-")[2].rpartition("-")
    return (run, int(computed)) if run and computed.isdigit() else None


def moment_of(made_at: int) -> datetime:
    """Return a moment of the ledger, which holds microseconds since 1970, in UTC."""
    return _EPOCH + timedelta(microseconds=made_at)


def _once(parts: Sequence[pa.Table]) -> pa.Table:
    """Return the entries of all `parts`, oldest first, without the repeats in merged parts."""
    entries = _join_parts(parts)
    made_at = entries["made_at"].cast(pa.int64()).to_pylist()
    columns = (*(entries[name].to_pylist() for name in ("row_id", "fingerprint", "run_id")), made_at)
    first: dict[tuple[object, ...], int] = {}
    for at, entry in enumerate(zip(*columns, strict=True)):
        first.setdefault(entry, at)
    if len(first) < entries.num_rows:
        entries = entries.take(pa.array(list(first.values()), pa.int64()))
    return entries


def _join_parts(parts: Sequence[pa.Table]) -> pa.Table:
    """Return all entries of the parts; a column that an old part lacks is null."""
    return pa.concat_tables([pa.Table.from_batches([], LEDGER), *parts], promote_options="default")
