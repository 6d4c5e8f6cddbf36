"""What a model said about a picture goes out with the document that holds it."""

from pathlib import Path

import pyarrow as pa

from resources.figures.descriptions import descriptions
from resources.store.schemas import FIGURE_NOTES
from resources.store.shard_store import ShardStore


def test_a_picture_has_the_description_of_its_own_note_where_that_is_sound(tmp_path: Path) -> None:
    store = ShardStore(url=str(tmp_path))
    notes = [
        {"index": 2, "description": "막대 그래프", "state": "ok"},
        {"index": 3, "description": "cut off", "state": "failed"},
    ]
    rows = [{"page_id": "a_1", "notes": notes, "state": "ok"}, {"page_id": "a_2", "notes": None, "state": "ok"}]
    table = pa.Table.from_pylist([{**row, "reason": None, "fingerprint": "f"} for row in rows], FIGURE_NOTES)
    store.write("figure_notes", "shard_00", table, {})
    said = descriptions(store, ["shard_00", "shard_01"])
    assert [said("a_1", 2), said("a_1", 3), said("a_2", 2)] == ["막대 그래프", None, None]
