"""The language of every page, by the scripts of its letters."""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

import pyarrow as pa

from kopub.fingerprints import CodeVersion
from kopub.states import State
from kopub.store.corpus_tables import Table
from kopub.store.schemas import PAGE_ID, STATE
from kopub.tables.asset import Metadata, RowTable
from kopub.tables.ocr_and_texts import ParsedTexts
from kopub.tables.rows import RowResult, RowSpec

SCRIPT = pa.field("script", pa.string(), metadata={"description": "HANGUL, LATIN, CJK, ..."})
SCHEMA = pa.schema([PAGE_ID, SCRIPT, *STATE])


class PageLanguages(RowTable):
    """The script that most letters of a page are of; a page without letters is `blank`."""

    table: ClassVar[Table] = Table("page_languages", SCHEMA)
    code_version: ClassVar[CodeVersion] = CodeVersion("page_languages", {1: "the first release"})
    parents = (ParsedTexts,)

    def rows(self, shard: str) -> Iterator[RowSpec]:
        for row in self.store.read(ParsedTexts.table.name, shard).to_pylist():
            yield RowSpec.after(row, [self.recipe_hash, row["text"]], {"page_id": row["page_id"]}, row["text"])

    def make(self, shard: str, todo: Sequence[RowSpec]) -> Iterator[RowResult]:
        for page in todo:
            script = main_script(page.given)
            yield RowResult(page.id, {"script": script, "state": State.OK if script else State.BLANK})

    def describe(self, shard: str, table: pa.Table) -> Metadata:
        return {"scripts": dict(Counter(filter(None, table["script"].to_pylist())).most_common())}


def main_script(text: str) -> str | None:
    """The first word of the Unicode names of most letters; None where there is no letter."""
    scripts = Counter(unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha())
    return scripts.most_common(1)[0][0] if scripts else None
