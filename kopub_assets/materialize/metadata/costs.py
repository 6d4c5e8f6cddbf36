"""What a run's pages cost: into the ledger, and to the UI."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from kopub_assets.materialize.rows import Key, Work
from resources.store.records import ledger
from resources.store.records.run_summary import summed
from resources.store.shard_store import ShardStore

_SHOWN = 5
"""Costliest pages of a shard that the UI lists; `kopub costs` lists those of the whole corpus."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one asset computes in one run; `gpus` are those its engine holds, `own` its own recipe."""

    store: ShardStore
    asset: str
    run_id: str
    own: str
    gpus: int

    def enter(self, shard: str, work: Work, first: bool = False) -> None:
        """Add the work on a shard to the ledger, whatever becomes of its table; `first` where it has none yet.

        Raises `StoreError`.
        """
        made = list(work.made)
        rows = (
            [self._entries(made, ledger.shares(work.seconds, list(work.made.values())), work.figures)] if made else []
        )
        if work.found:
            before = ledger.read(self.store, self.asset, shard)
            known = set(zip(before["row_id"].to_pylist(), before["fingerprint"].to_pylist(), strict=True))
            unknown = [key for key in work.found if key not in known]
            rows.insert(0, self._entries(unknown, [None] * len(unknown), {}))
        if rows:
            ledger.append(self.store, self.asset, shard, pa.concat_tables(rows), first and not work.found)

    def _entries(
        self, keys: Sequence[Key], seconds: Sequence[float | None], figures: Mapping[Key, Mapping[str, float]]
    ) -> pa.Table:
        return ledger.entries(keys, seconds, self.gpus, self.run_id, self.own, figures)

    def metadata(self, work: Work) -> dict[str, Any]:
        """What the UI plots and lists; nothing where nothing was computed."""
        if not work.made:
            return {}
        costs = list(work.made.values())
        shares = ledger.shares(work.seconds, costs)
        shown: dict[str, Any] = {
            "rows_per_second": len(costs) / work.seconds,
            "seconds_per_row": work.seconds / len(costs),
            "gpu_seconds": work.seconds * self.gpus,
            "gpu_seconds_per_row": work.seconds * self.gpus / len(costs),
        }
        if (summary := summed(work.figures)) is not None:
            shown |= summary.figures()
            records = [{"id": row_id, "tokens": tokens} for row_id, tokens in summary.most_tokens]
            shown |= {"most_tokens": records} if records else {}
        # Where the engine gives each row a cost of its own, the costliest rows.
        if len(set(costs)) > 1:
            ranked = sorted(zip(shares, work.made, strict=True), reverse=True)[:_SHOWN]
            records = [{"id": key[0], "seconds": round(share, 3)} for share, key in ranked]
            shown["costliest"] = records
        return shown
