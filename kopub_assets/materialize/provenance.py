"""What a table is stamped with: how it came to be, so that nobody has to guess whether it still would."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from kopub_assets.recipes import PARENTS, recipe
from resources.fingerprints import table_fingerprint
from resources.store.footer_cache import SOURCES
from resources.store.shard_store import ShardStore
from resources.store.table_source import SOURCE, sources


@dataclass(frozen=True, slots=True)
class Provenance:
    """A table's own recipe, spelt out in `made_with`, and the contents of what it was made from, by name."""

    own: str
    made_with: str
    made_from: Mapping[str, str]
    sources: str

    @property
    def recipe(self) -> str:
        return recipe(self.own, self.made_from)

    def metadata(self, table: pa.Table) -> dict[str, str]:
        """What the store keeps with the table."""
        return {
            "recipe": self.recipe,
            "content": content(table),
            "made_with": self.made_with,
            "made_from": json.dumps(dict(self.made_from), sort_keys=True),
            SOURCES: self.sources,
        }


def provenance(
    store: ShardStore, asset: str, shard: str, own: str, made_with: str, source: str | None = None
) -> Provenance:
    """Of a table that is about to be made. Raises `StoreError` when a parent has not been made yet."""
    metadata = {parent: store.metadata(parent, shard) for parent in PARENTS[asset]}
    parents = {parent: held(found) for parent, found in metadata.items()}
    made_from = parents if source is None else {SOURCE: source, **parents}
    return Provenance(own, made_with, made_from, sources(asset, source, metadata.values()))


def content(table: pa.Table) -> str:
    """Fingerprint of a table's rows whoever made them: a model that changes nothing gives the same."""
    return table_fingerprint(table.drop_columns([name for name in ("fingerprint",) if name in table.column_names]))


def held(metadata: Mapping[str, str]) -> str:
    """The content of a stored table; one of before contents were recorded goes by its recipe."""
    return metadata.get("content", metadata["recipe"])
