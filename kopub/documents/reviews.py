"""The reviews of pages: the doubts about their texts, and the marks of their corrections."""

from collections.abc import Sequence
from dataclasses import replace

from kopub.corrections.log import CorrectionHistory, CorrectionLog
from kopub.documents.document import Review
from kopub.store.corpus_tables import TABLES
from kopub.store.table_store import TableStore


def page_reviews(store: TableStore, shards: Sequence[str]) -> dict[str, Review]:
    """Return the reviews of pages by id. Raises `StoreError`."""
    reviews: dict[str, Review] = {}
    for shard in shards:
        if store.has(TABLES.texts.name, shard):
            for row in store.read(TABLES.texts.name, shard, ["page_id", "doubt", "doubts"]).to_pylist():
                reviews[row["page_id"]] = Review(row["doubt"], tuple(row["doubts"] or ()))
    for page_id, history in CorrectionLog(store).by_page().items():
        reviews[page_id] = replace(reviews.get(page_id, Review()), corrections=corrections_mark(history))
    return reviews


def corrections_mark(history: CorrectionHistory) -> str:
    """Return the mark of a page's corrections, empty if there are none."""
    return history.seen if history.every else ""
