"""Where pages come from, where tables are kept, and where a release goes."""

from typing import Any

import dagster as dg
import pyarrow as pa

from kopub.errors import StoreError
from kopub.store.table_store import ShardStore
from resources.base import ProfileResource


class CorpusResource(ProfileResource):
    """The pages of the corpus, by its index."""

    cache_gb: float
    upright: bool


class StoreResource(ProfileResource):
    """The tables of every shard, on disk or on object storage."""

    keep_versions: int
    allow_downgrade: bool


class ReleaseResource(ProfileResource):
    """The release as a folder that `datasets` opens."""

    title: str
    license: str | None
    publish_under: str | None
    page_images: bool
    corrections: str


class HubResource(ProfileResource):
    """The repository of the Hugging Face Hub that a run may push the release to."""

    branch: str
    create: bool


class SinkResource(ProfileResource):
    """A vector store outside, which no run may change for another."""


class ShardTables(dg.IOManager):
    """An IO manager that reads tables of shards, for notebooks and assets of your own.

    It writes nothing, because an asset publishes each shard by itself. Dagster's default could be given a folder in the
    Launchpad, and its in-memory one prevents retries of failed runs.
    """

    def __init__(self, store: ShardStore) -> None:
        self._store = store

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise dg.DagsterInvariantViolationError(f"{context.step_key} returned a value; the store holds the tables")

    def load_input(self, context: dg.InputContext) -> pa.Table:
        """Return the asset's table over the shards, in their order. Raises `dg.Failure`."""
        asset = context.asset_key.path[-1]
        shards = context.asset_partition_keys if context.has_asset_partitions else self._store.published(asset)
        try:
            return pa.concat_tables([self._store.read(asset, shard) for shard in shards])
        except StoreError as error:
            raise dg.Failure(str(error), allow_retries=False) from None


@dg.io_manager(required_resource_keys={"store"}, description="Reads the tables of shards; assets write their own.")
def shard_tables(context: dg.InitResourceContext) -> ShardTables:
    """Return the IO manager for the tables of the resource `store`."""
    return ShardTables(context.resources.store)
