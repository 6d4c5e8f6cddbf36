"""The forms and values of reasons in tables, for all languages.

A table holds the English sentence alone. One that was stored before its form was kept is said in English.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kopub.states import Reason

if TYPE_CHECKING:
    from kopub.store.append_log import AppendLog

FOLDER = ".reasons"
_SCHEMA = pa.schema([pa.field("reason", pa.string(), nullable=False)])
_MOST_FILES = 16
"""Most files of an asset before they are merged."""


def reasons_in(row: dict[str, Any]) -> set[Reason]:
    """Return the reasons in a row and in its doubts, regions, notes or figures."""
    parts = [part for value in row.values() if isinstance(value, list | tuple) for part in value]
    reasons = [part.get("reason") if isinstance(part, dict) else part for part in parts]
    return {reason for reason in (*row.values(), *reasons) if isinstance(reason, Reason)}


def keep_reasons(log: "AppendLog", reasons: Collection[Reason]) -> None:
    """Keep reasons in the log of an asset. Raises `StoreError`."""
    if not reasons:
        return
    log.append(pa.table([[reason.packed() for reason in reasons]], _SCHEMA))
    if len(names := log.names()) > _MOST_FILES:
        # A reason counts once, so neither a kill nor a second writer does harm here.
        packed = pa.concat_tables(log.read())["reason"].unique()
        log.append(pa.table([packed], _SCHEMA))
        log.remove(names)


def stored_reasons(log: "AppendLog") -> dict[str, Reason]:
    """Return the reasons in the logs by what they say. Raises `StoreError`."""
    packed = [text for part in log.read() for text in part["reason"].to_pylist()]
    return {reason: reason for reason in map(Reason.unpacked, packed)}
