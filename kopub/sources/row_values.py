"""Rows of the tables, of a home or a release, as the values that a page shows. Pure."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kopub.rows import Facts, Region, Step
from resources.states import State

Row = Mapping[str, Any]


def facts(page: Row, states: Mapping[str, str], reason: str | None, doubts: Iterable[str] | None) -> Facts:
    """Of a row of `raw_pages` or `pages`."""
    return Facts(
        page["width"],
        page["height"],
        page["sha256"],
        page["license"],
        page["source"],
        reason,
        {asset: State(state) for asset, state in states.items()},
        tuple(doubts or ()),
    )


def region(row: Row) -> Region:
    """Of a row with the columns of the release's config `regions`."""
    polygon, box, box_2d = row["polygon"], row["bbox"], row["bbox_2d"]
    return Region(
        index=row["index"],
        label=row["native_label"],
        task=row["task"],
        score=row["score"],
        box=(box[0], box[1], box[2], box[3]),
        box_2d=(box_2d[0], box_2d[1], box_2d[2], box_2d[3]),
        polygon=None if polygon is None else tuple((x, y) for x, y in polygon),
        content=row["content"],
        state=None if row["state"] is None else State(row["state"]),
        reason=row["reason"],
        origin=row["origin"],
    )


def steps(lineage: pa.Table) -> Iterator[Step]:
    """Of rows of `LINEAGE`."""
    for row in lineage.to_pylist():
        yield Step(
            asset=row["asset"],
            state=State(row["state"]),
            reason=row["reason"],
            engine=row["engine"],
            model=row["model"],
            revision=row["revision"],
            parameters=_json(row["parameters"]),
            versions=_json(row["versions"]),
            code_version=_json(row["code_version"]),
            recipe=row["recipe"],
            fingerprint=row["fingerprint"],
            run_id=row["run_id"],
            made_at=row["made_at"],
            gpu_seconds=row["gpu_seconds"],
        )


def vector(values: Iterable[Any] | None) -> np.ndarray | None:
    """float16 of shape (dim,)."""
    return None if values is None else np.array(values, np.float16)


def _json(text: str | None) -> Mapping[str, Any]:
    return json.loads(text) if text else {}
