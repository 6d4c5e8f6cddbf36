"""What a model said about the pictures of a corpus, for those who show a picture without its page."""

from collections.abc import Callable, Sequence

from resources.states import State
from resources.store.corpus_tables import FIGURE_NOTES
from resources.store.table_store import TableStore


def descriptions(store: TableStore, shards: Sequence[str]) -> Callable[[str, int], str | None]:
    """The description of a picture by its page's id and its region; None where no model described it.

    Of 40,781 pages with a figure and a half each, of 200 characters, it holds 20 MB. Raises `StoreError`.
    """
    said: dict[tuple[str, int], str] = {}
    for shard in shards:
        if not store.has(FIGURE_NOTES.name, shard):
            continue
        for row in store.read(FIGURE_NOTES.name, shard, ["page_id", "notes"]).to_pylist():
            for note in row["notes"] or ():
                if note["state"] == State.OK and note["description"]:
                    said[row["page_id"], note["index"]] = note["description"]
    return lambda page_id, index: said.get((page_id, index))
