"""The provenance of a table: the stamp that shows whether it is stale."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from kopub.errors import StoreError
from kopub.fingerprints import fingerprint, table_fingerprint
from kopub.states import count_states
from kopub.store.table_source import SOURCE, SOURCES, Entry, sources
from kopub.store.table_store import ShardStore

_OF_A_RUN = frozenset({"fingerprint", "seconds", "attempts", "scale"})
"""Columns, and fields of struct lists, that describe how a row was made, not what it is.

What is measured in a run belongs here: any other column that differs makes the tables downstream stale.
"""


def recipe_of(own: str, made_from: Mapping[str, str]) -> str:
    """Return the fingerprint of a table's own recipe and its inputs' contents.

    So a change of the source reaches every table downstream, until the first one whose content it leaves unchanged.
    """
    return fingerprint({"own": own, "parents": dict(made_from)})


@dataclass(frozen=True, slots=True)
class Provenance:
    """A table's own recipe, spelt out, and the contents it was made from.

    `made_from` also holds the profile settings outside the engine's section that decide its rows, by dotted key.
    """

    own: str
    made_with: str
    made_from: Mapping[str, str]
    sources: str
    """Everything in the corpus that the table derives from, as JSON."""

    @classmethod
    def of(
        cls, asset: str, own: str, made_with: str, parents: Mapping[str, "StoredProvenance"], beside: Mapping[str, str]
    ) -> Self:
        """Return the provenance of a table that is to be made.

        `beside` holds its other inputs: `SOURCE`, if the asset reads the corpus itself, and settings.
        """
        contents = {name: parent.content for name, parent in parents.items()}
        inherited = (parent.sources for parent in parents.values())
        return cls(own, made_with, {**beside, **contents}, sources(asset, beside.get(SOURCE), inherited))

    @property
    def recipe(self) -> str:
        return recipe_of(self.own, self.made_from)

    def metadata(self, table: pa.Table) -> dict[str, str]:
        """Return what the store keeps with the table."""
        states = count_states(table["state"].to_pylist()) if "state" in table.column_names else {}
        return {
            "recipe": self.recipe,
            "content": content(table),
            "made_with": self.made_with,
            "made_from": json.dumps(dict(self.made_from), sort_keys=True),
            "states": json.dumps(states),
            SOURCES: self.sources,
        }


@cache
def newer_code(made_with: str, now: str) -> str:
    """Name the code behind a table that is newer than `now`; empty if none is.

    Both arguments are JSON, as in `Provenance.made_with`. A different engine does not count as a newer version.
    """
    if not made_with or made_with == now:
        return ""
    there, here = _code_versions(made_with), _code_versions(now)
    newer: list[str] = []
    for name, number in there.items():
        if number > here.get(name, number):
            newer.append(f"version {number} of the {name}, here {here[name]}")
    return ", ".join(newer)


def _code_versions(made_with: str) -> dict[str, int]:
    recipe = json.loads(made_with)
    return {
        "table": recipe["version"],
        **{f"{engine['engine']} engine": engine["version"] for engine in recipe["engines"]},
    }


def content(table: pa.Table) -> str:
    """Return the fingerprint of a table's rows, without the figures of the run.

    Equal readings therefore have equal content.
    """
    columns, nested = {}, {}
    for name in table.column_names:
        if name in _OF_A_RUN:
            continue
        column = table[name]
        if pa.types.is_list(column.type) and pa.types.is_struct(column.type.value_type):
            columns[name] = pc.call_function("list_value_length", [column])
            parts = pa.table(pc.call_function("list_flatten", [column]).flatten(), column.type.value_type.names)
            nested[name] = table_fingerprint(parts.drop_columns(list(_OF_A_RUN & set(parts.column_names))))
        else:
            columns[name] = column
    return fingerprint([table_fingerprint(pa.table(columns)), nested])


@dataclass(frozen=True, slots=True)
class StoredProvenance:
    """The provenance stored with a table: its content, its inputs, and their sources."""

    content: str
    made_from: Mapping[str, str]
    sources: str

    @classmethod
    def of(cls, footer: Entry) -> Self:
        return cls(footer.content, footer.made_from, footer.sources_json)


def footer_of(store: ShardStore, asset: str, shard: str, version: str | None = None) -> StoredProvenance:
    """Return a stored table's provenance. Raises `StoreError` if table or provenance is missing."""
    footer = store.metadata(asset, shard, version)
    if not {"content", "made_from", SOURCES} <= footer.keys():
        raise StoreError("{asset} of {shard} does not say how it was made: materialize {asset} again", asset, shard)
    return StoredProvenance(footer["content"], json.loads(footer["made_from"]), footer[SOURCES])
