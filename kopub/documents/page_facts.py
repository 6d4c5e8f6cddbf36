"""The facts about pages besides their regions: doubts, and the mark of their corrections."""

from collections.abc import Sequence
from dataclasses import replace

from kopub.corrections.log import CorrectionHistory, CorrectionLog
from kopub.documents.document import PageFacts
from kopub.store.corpus_tables import TABLES
from kopub.store.table_store import TableStore


def page_facts(store: TableStore, shards: Sequence[str]) -> dict[str, PageFacts]:
    """Return the facts about pages by id. Raises `StoreError`."""
    facts: dict[str, PageFacts] = {}
    for shard in shards:
        if store.has(TABLES.texts.name, shard):
            for row in store.read(TABLES.texts.name, shard, ["page_id", "doubt", "doubts"]).to_pylist():
                facts[row["page_id"]] = PageFacts(row["doubt"], tuple(row["doubts"] or ()))
    for page_id, done in CorrectionLog(store).by_page().items():
        facts[page_id] = replace(facts.get(page_id, PageFacts()), corrections=corrections_mark(done))
    return facts


def corrections_mark(done: CorrectionHistory) -> str:
    """Return the mark of a page's corrections, empty if there are none."""
    return done.seen if done.every else ""
