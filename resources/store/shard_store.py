"""The store that a profile configures."""

from pydantic import Field

from resources.engine import ProfileOnly, Resource
from resources.store.table_store import KEPT, TableStore


class ShardStore(Resource, TableStore):
    """The configured store: tables at `<asset>/<shard>.parquet` under `url`.

    `url` is any fsspec URL or folder.
    """

    url: ProfileOnly[str] = Field(
        description="Folder or fsspec URL (s3://bucket/prefix, memory://store) of the tables."
    )
    keep_versions: int = Field(
        default=KEPT, ge=0, description="Replaced tables to keep of each; every one takes its size."
    )
    allow_downgrade: bool = Field(
        default=False, description="Replace tables that a newer release of KoPub made, instead of refusing to."
    )
