"""The notes on a page's figures as plain text. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from resources.recognition.readings import RegionText
from resources.texts.plain_text import page_text


def notes_text(notes: Iterable[Mapping[str, Any]] | None) -> str:
    """Description, keywords and data of each note, a blank line apart; `notes` is of a row of `figure_notes`."""
    return "\n\n".join(text for note in notes or () if (text := _text(note)))


def _text(note: Mapping[str, Any]) -> str:
    data = note["data_html"] and page_text([RegionText(0, "table", note["data_html"])])
    return "\n".join(part for part in (note["description"], ", ".join(note["keywords"] or ()), data) if part)
