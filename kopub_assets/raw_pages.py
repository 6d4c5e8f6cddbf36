"""The pages of a shard as they came: identity, size, and whether their bytes can be used."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from kopub_assets.materialize.asset import Metadata
from kopub_assets.materialize.row_table import RowTable
from kopub_assets.materialize.rows import Row, RowSpec
from resources.code_version import CodeVersion
from resources.errors import UndecodableImage
from resources.fingerprints import fingerprint
from resources.pages.images import inspect
from resources.states import State
from resources.store.corpus_tables import TABLES
from resources.store.table import Table


class RawPages(RowTable):
    """Every page of the source shard, in its order: id, document, SHA-256 of the encoded bytes, format and size.

    The images stay in the source file, memory-mapped. A page whose id, row or bytes cannot be used
    is quarantined with the reason.
    """

    table: ClassVar[Table] = TABLES.pages
    code_version: ClassVar[CodeVersion] = CodeVersion("raw_pages", {1: "the first release"})
    group: ClassVar[str] = "pages"
    kinds: ClassVar[frozenset[str]] = frozenset({"arrow"})

    def source(self, shard: str) -> str:
        """The file of a shard as it was indexed."""
        entry = self.corpus.manifest.shard(shard)
        return fingerprint([Path(entry.file).name, entry.rows, entry.sha256, entry.duplicates])

    def expected_rows(self, shard: str, made: int | None) -> int:
        return self.corpus.manifest.shard(shard).rows

    def rows(self, shard: str) -> Iterator[RowSpec]:
        for row in self.corpus.rows(shard):
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
            yield RowSpec(row.page_id, [self.own_recipe, sha256], known, settled=settled)

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[tuple[str, Row]]:
        with self.corpus.reader(shard) as source:
            for page in todo:
                try:
                    info = inspect(source.page(page.id, page.known["page_idx"], page.known["sha256"]).data)
                    size = {"format": info.format, "width": info.width, "height": info.height}
                    yield page.id, {**size, "state": State.OK}
                except UndecodableImage as error:
                    yield page.id, {"state": State.QUARANTINED, "reason": str(error)}

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        formats = Counter(filter(None, table["format"].to_pylist()))
        return {"bytes": sum(filter(None, table["n_bytes"].to_pylist())), "formats": dict(formats.most_common())}
