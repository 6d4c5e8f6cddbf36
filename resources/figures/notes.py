"""What a model says of figures: a note, notes as text, and the notes of a corpus."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resources.recognition.readings import RegionText
from resources.states import State
from resources.store.corpus_tables import FIGURE_NOTES
from resources.texts.markdown import page_text

if TYPE_CHECKING:
    from resources.store.table_store import TableStore

KINDS = (
    "photo", "drawing", "diagram", "flowchart", "map", "bar_chart", "line_chart", "pie_chart", "other_chart", "table",
    "formula", "molecule", "geometry", "screenshot", "logo", "other",
)  # fmt: skip
"""What a figure can be."""


@dataclass(frozen=True, slots=True)
class FigureNote:
    """What a model made up about a figure; nothing of it was read from the page.

    `kind` is one of `KINDS`. `data_html` is the data of a chart as `<table>` HTML, `smiles` a molecule's formula;
    `language` is that of the description. All of them are empty unless the state is `ok`.
    """

    id: str
    state: State
    reason: str | None = None
    kind: str | None = None
    description: str = ""
    keywords: tuple[str, ...] = ()
    data_html: str | None = None
    smiles: str | None = None
    language: str | None = None
    attempts: int = 1
    seconds: float = 0.0


def notes_text(notes: Iterable[Mapping[str, Any]] | None) -> str:
    """Description, keywords and data of each note, a blank line apart; `notes` is of a row of `figure_notes`."""
    return "\n\n".join(text for note in notes or () if (text := _text(note)))


def _text(note: Mapping[str, Any]) -> str:
    data = note["data_html"] and page_text([RegionText(0, "table", note["data_html"])])
    return "\n".join(part for part in (note["description"], ", ".join(note["keywords"] or ()), data) if part)


_FIELDS = ("kind", "description", "data_html", "smiles", "language")


def sound_notes(store: "TableStore", shards: Sequence[str]) -> Callable[[str, int], FigureNote | None]:
    """Return what gives the note on a figure by its page's id and its region; None where no model described it.

    Of 40,781 pages with a figure and a half each, of 200 characters, it holds 40 MB. Raises `StoreError`.
    """
    known: dict[tuple[str, int], FigureNote] = {}
    for shard in shards:
        if not store.has(FIGURE_NOTES.name, shard):
            continue
        for row in store.read(FIGURE_NOTES.name, shard, ["page_id", "notes"]).to_pylist():
            for note in row["notes"] or ():
                if note["state"] == State.OK:
                    said = {name: note[name] for name in _FIELDS if note[name] is not None}
                    keywords = tuple(note["keywords"] or ())
                    figure = f"{row['page_id']}/{note['index']}"
                    known[row["page_id"], note["index"]] = FigureNote(figure, State.OK, keywords=keywords, **said)
    return lambda page_id, index: known.get((page_id, index))
