"""Records of runs: what engines counted, by run and asset, and self-test results."""

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Any, Self

import pyarrow as pa

from kopub.files import replace_bytes
from kopub.fingerprints import fingerprint
from kopub.states import phrase
from kopub.store.ledger import moment_of

ANSWER_TOKENS = "answer_tokens"
"""Number of tokens that a model wrote for a row."""
COUNTED = {
    "requests": "requests",
    "image_tokens": "image tokens",
    ANSWER_TOKENS: "answer tokens",
    "second_tries": "retries",
    "second_tries_taken": "of them taken",
    "second_tries_left_out": "retries left out",
    "answers_loop": "loops",
    "answers_cut": "cut answers",
    "answers_empty": "empty answers",
    "answers_runaway": "runaway answers",
    "regions_reused": "answers reused",
    "cells_pruned": "cells pruned",
    "tables_dropped": "tables dropped",
    "regions_blank": "blank regions",
    "regions_failed": "failed regions",
    "rows_blank": "blank",
    "rows_partial": "partial",
    "rows_failed": "failed",
    "rows_quarantined": "quarantined",
}
"""The figures of a summary with their display names; engines count more, which only the UI shows."""
_LISTED = 5
"""Number of rows with the most tokens that are named."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Sums over the rows with counts, and the answer tokens of each row."""

    rows: int
    counted: Mapping[str, float]
    tokens: Mapping[str, int]

    @property
    def most_tokens(self) -> list[tuple[str, int]]:
        """The (id, tokens) of the rows with the longest answers, longest first."""
        return sorted(self.tokens.items(), key=lambda row: (-row[1], row[0]))[:_LISTED]

    def figures(self) -> dict[str, float]:
        """Return the sums by name, with the mean, median and maximum of the tokens."""
        sums = {name: self.counted[name] for name in COUNTED if self.counted.get(name)}
        if not self.tokens:
            return sums
        tokens = list(self.tokens.values())
        return {**sums, "tokens_per_row": mean(tokens), "tokens_median": median(tokens), "tokens_most": max(tokens)}


@dataclass(frozen=True, slots=True)
class AssetRun:
    """One run of one asset: its end, rows of known cost, seconds and counts."""

    run_id: str
    ended: datetime
    rows: int
    seconds: float
    summary: Summary | None

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds else 0.0


def sum_rows(figures: Mapping[tuple[str, str], Mapping[str, float]]) -> Summary | None:
    """Return the summary of rows by (id, fingerprint), or None if nothing was counted."""
    sums: Counter[str] = Counter()
    tokens: Counter[str] = Counter()
    rows = 0
    for (row_id, _), counts in figures.items():
        sums.update(counts)  # pyright: ignore[reportCallIssue, reportArgumentType]
        if counts.get(ANSWER_TOKENS):
            tokens[row_id] += int(counts[ANSWER_TOKENS])
        rows += bool(counts)
    return Summary(rows, dict(sums), dict(tokens)) if rows else None


def runs_of(ledger: pa.Table, most: int | None = None) -> list[AssetRun]:
    """Return at most `most` runs of an asset's ledger, newest first.

    Rows of unknown cost are left out.
    """
    # Plain values and numeric times are used, because expressions and Python datetimes load pandas.
    timed = ledger.filter(ledger["seconds"].is_valid())
    moments: list[Any] = timed["made_at"].cast(pa.int64()).to_pylist()
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    ended: dict[str, int] = {}
    values = timed.select(["row_id", "fingerprint", "run_id", "seconds", "figures"]).to_pylist()
    for row, moment in zip(values, moments, strict=True):
        run_id = row["run_id"]
        rows[run_id].append(row)
        ended[run_id] = max(moment, ended.get(run_id, moment))
    newest = sorted(ended, key=lambda run_id: -ended[run_id])
    runs = []
    for run_id in newest[:most]:
        of_run = rows[run_id]
        figures = {(row["row_id"], row["fingerprint"]): json.loads(row["figures"]) for row in of_run if row["figures"]}
        seconds = sum(row["seconds"] for row in of_run)
        runs.append(AssetRun(run_id, moment_of(ended[run_id]), len(of_run), seconds, sum_rows(figures)))
    return runs


_FOLDER = "self_tests"
TESTED = ("layout", "recognition", "embedding")
"""The profile sections whose engines the samples can judge; notes on figures have no right answer."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The result of an engine's self-test on the samples, with its recipe and time.

    `figures` are keyed by name, and each of the `problems` is one line.
    """

    section: str
    engine: str
    recipe: str
    tested_at: str
    figures: Mapping[str, float]
    problems: list[str] = field(default_factory=list)

    @classmethod
    def now(cls, section: str, recipe: Mapping[str, Any], figures: Mapping[str, float], problems: list[str]) -> Self:
        """Return the result of a test that has just run; `recipe` is the engine's."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(section, str(recipe["engine"]), fingerprint(recipe), when, figures, problems)

    @property
    def passed(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        """Return `passed on 2026-11-22 with CER 0.021`, or `failed on ...: why`."""
        day = self.tested_at.partition("T")[0]
        if not self.passed:
            return phrase("failed on {day}: {reason}", day, self.problems[0])
        figures = ", ".join(f"{name} {value:.3f}" for name, value in self.figures.items())
        return f"passed on {day}{f' with {figures}' if figures else ''}"


def keep(home: Path, result: SelfTest) -> None:
    """Write the result over the last one of its recipe. Raises `StoreError`."""
    content = json.dumps(asdict(result), ensure_ascii=False, indent=1) + "\n"
    replace_bytes(_path(home, result.recipe), content.encode())


def find(home: Path, recipe: Mapping[str, Any]) -> SelfTest | None:
    """Return the last readable result of an engine's recipe in this home, if any."""
    try:
        return SelfTest(**json.loads(_path(home, fingerprint(recipe)).read_bytes()))
    except (OSError, ValueError, TypeError):
        # A record that is cut off or of another release is useless; the next test rewrites it.
        return None


def of_table(home: Path, made_with: str) -> SelfTest | None:
    """Return the last result of the engine in a table's `made_with`, if it has one."""
    engines = json.loads(made_with or "{}").get("engines", ())
    return next(filter(None, (find(home, recipe) for recipe in engines)), None)


def _path(home: Path, recipe: str) -> Path:
    return home / _FOLDER / f"{recipe}.json"
