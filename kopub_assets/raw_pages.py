"""The pages of a shard as they came: identity, size, and whether their bytes can be used."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import dagster as dg
import pyarrow as pa

from kopub_assets.materialize.dagster_assets import ShardRun, accounting_checks, table_asset
from kopub_assets.materialize.loop import Owed, Row
from kopub_assets.recipes import own_recipe
from kopub_assets.sources import pages_of
from resources.errors import UndecodableImage
from resources.pages.corpus import Corpus
from resources.pages.images import inspect
from resources.states import State
from resources.store.schemas import RAW_PAGES
from resources.store.shard_store import ShardStore

OWN = own_recipe("raw_pages")


@table_asset("raw_pages", "pages", RAW_PAGES, OWN, accounting_checks("raw_pages"), kinds={"arrow"})
def raw_pages(context: dg.AssetExecutionContext, store: ShardStore, corpus: Corpus):
    """Every page of the source shard, in its order: id, document, SHA-256 of the encoded bytes, format and size.

    The images stay in the source file, memory-mapped. A page whose id, row or bytes cannot be used
    is quarantined with the reason.
    """

    def owed(shard: str) -> Iterator[Owed]:
        for row in corpus.rows(shard):
            sha256 = None if row.data is None else hashlib.sha256(row.data).hexdigest()
            known = {
                "page_id": row.page_id,
                "page_idx": row.row,
                "doc_id": row.doc_id,
                "page_no": row.page_no,
                "sha256": sha256,
                "n_bytes": None if row.data is None else len(row.data),
                "license": row.license,
                "source": row.source,
            }
            settled = {"state": State.QUARANTINED, "reason": row.problem} if row.problem else None
            yield Owed(row.page_id, [OWN, sha256], known, settled=settled)

    def make(shard: str, todo: Sequence[Owed]) -> Iterator[tuple[str, Row]]:
        with corpus.reader(shard) as source:
            for page in todo:
                try:
                    info = inspect(source.page(page.id, page.known["page_idx"], page.known["sha256"]).data)
                    size = {"format": info.format, "width": info.width, "height": info.height}
                    yield page.id, {**size, "state": State.OK}
                except UndecodableImage as error:
                    yield page.id, {"state": State.QUARANTINED, "reason": str(error)}

    def describe(table: pa.Table, shard: str) -> dict[str, object]:
        formats = Counter(filter(None, table["format"].to_pylist()))
        return {"bytes": sum(filter(None, table["n_bytes"].to_pylist())), "formats": dict(formats.most_common())}

    yield from ShardRun(
        context, store, RAW_PAGES, OWN, owed, make, describe, source=partial(pages_of, corpus)
    ).materialize()
