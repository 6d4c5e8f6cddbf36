"""The store as a resource of Dagster."""

import dagster as dg
from pydantic import Field

from resources.store.table_store import KEPT, TableStore


class ShardStore(dg.ConfigurableResource, TableStore):
    """Tables under `url`, at `<asset>/<shard>.parquet`; any fsspec URL or folder."""

    url: str = Field(description="Folder or fsspec URL (s3://bucket/prefix, memory://store) of the tables.")
    keep_versions: int = Field(
        default=KEPT, ge=0, description="Replaced tables to keep of each; every one takes its size."
    )
