"""What a model said about a picture goes out with the document that holds it."""

from pathlib import Path

import pyarrow as pa

from resources.figures.notes import FigureNote, sound_notes
from resources.states import State
from resources.store.schemas import FIGURE_NOTES
from resources.store.shard_store import ShardStore


def test_a_picture_has_its_own_note_where_that_is_sound(tmp_path: Path) -> None:
    store = ShardStore(url=str(tmp_path))
    notes = [
        {"index": 2, "kind": "bar_chart", "description": "막대 그래프", "keywords": ["매출"], "state": "ok"},
        {"index": 3, "description": "cut off", "state": "failed"},
    ]
    rows = [{"page_id": "a_1", "notes": notes, "state": "ok"}, {"page_id": "a_2", "notes": None, "state": "ok"}]
    table = pa.Table.from_pylist([{**row, "reason": None, "fingerprint": "f"} for row in rows], FIGURE_NOTES)
    store.write("figure_notes", "shard_00", table, {})
    note_of = sound_notes(store, ["shard_00", "shard_01"])
    note = FigureNote("a_1/2", State.OK, None, "bar_chart", "막대 그래프", ("매출",))
    assert [note_of("a_1", 2), note_of("a_1", 3), note_of("a_2", 2)] == [note, None, None]
