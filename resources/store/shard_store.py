"""The store as a profile configures it."""

from pydantic import Field

from resources.resource import ProfileOnly, Resource
from resources.store.table_store import KEPT, TableStore


class ShardStore(Resource, TableStore):
    """Tables under `url`, at `<asset>/<shard>.parquet`; any fsspec URL or folder."""

    url: ProfileOnly[str] = Field(
        description="Folder or fsspec URL (s3://bucket/prefix, memory://store) of the tables."
    )
    keep_versions: int = Field(
        default=KEPT, ge=0, description="Replaced tables to keep of each; every one takes its size."
    )
    allow_downgrade: bool = Field(
        default=False, description="Replace tables that a newer release of KoPub made, instead of refusing to."
    )
