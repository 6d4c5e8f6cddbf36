"""The sample pages with what is printed on them, and the questions that they answer."""

from collections.abc import Sequence
from dataclasses import dataclass

from resources.pages.arrow import open_pages
from resources.pages.manifest import NAME, SAMPLES, Manifest
from resources.pages.page import Page
from resources.pages.queries import Query, from_table, read_table

GOLD = SAMPLES / "gold"


@dataclass(frozen=True, slots=True)
class Samples:
    """Pages, the text of each by its id, and queries."""

    pages: Sequence[Page]
    texts: dict[str, str]
    queries: Sequence[Query]

    def some(self, count: int) -> "Samples":
        """The first `count` pages and the queries that they answer."""
        pages = self.pages[:count]
        ids = {page.page_id for page in pages}
        texts = {page_id: text for page_id, text in self.texts.items() if page_id in ids}
        return Samples(pages, texts, [query for query in self.queries if ids.issuperset(query.ground_truth)])


def read_samples() -> Samples:
    """The twelve pages that come with the project. Raises `SourceError`."""
    manifest = Manifest.read(SAMPLES / NAME)
    pages, queries = [], []
    table = read_table(SAMPLES / manifest.queries.file) if manifest.queries else None
    for shard in manifest.shards:
        file = open_pages(SAMPLES / shard.file, shard.format)
        rows = (file.row(index) for index in range(shard.rows))
        pages += [Page(row.id, bytes(row.image)) for row in rows if row.id is not None and row.image is not None]
        queries += from_table(table, shard.key) if table is not None else []
    texts = {page.page_id: (GOLD / f"{page.page_id}.txt").read_text("utf-8") for page in pages}
    return Samples(pages, texts, queries)
