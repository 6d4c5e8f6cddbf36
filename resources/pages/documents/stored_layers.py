"""The text layers of a shard's pages as its file holds them."""

from collections.abc import Sequence

from resources.errors import SourceError
from resources.pages.documents.text_layer import TextLayer, layer_id
from resources.printable import quoted


class StoredLayers:
    """The text layers of one shard, by row; `stored` are those that its file holds now."""

    def __init__(self, place: str, shard_key: str, stored: Sequence[str | None]) -> None:
        self._place = place
        self._shard_key = shard_key
        self._stored = stored

    def layer(self, page_id: str, row: int, text_layer_id: str | None) -> TextLayer | None:
        """The layer at `row`, from 0, of which `raw_pages` has the id; None where that is None.

        Raises `SourceError` when the row holds another one.
        """
        if text_layer_id is None:
            return None
        stored = self._stored[row] if row < len(self._stored) else None
        if stored is None or layer_id(stored) != text_layer_id:
            raise SourceError(
                f"{self._place}: row {row} does not hold the text layer that raw_pages saw of {quoted(page_id)}: "
                f"materialize raw_pages of {self._shard_key} again"
            )
        return TextLayer.from_json(stored)
