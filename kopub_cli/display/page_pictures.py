"""The picture of a page for an HTML file, small enough to be in it."""

from collections.abc import Mapping
from typing import Any

from resources.diff.html import Picture
from resources.errors import SourceError, UndecodableImage
from resources.pages.corpus import Corpus

PICTURE_COLUMNS = ["page_id", "page_idx", "sha256", "upright"]
"""Of `raw_pages`: what finds a page's picture and sets it upright."""


def picture_of(corpus: Corpus, shard: str, page: Mapping[str, Any], most: int) -> Picture | None:
    """Return the upright page of a row of `PICTURE_COLUMNS` in at most `most` bytes.

    None where it cannot be read, or is another one now.
    """
    from resources.pages.pixels.drawing import preview

    try:
        with corpus.reader(shard) as source:
            image = source.page(page["page_id"], page["page_idx"], page["sha256"], page.get("upright")).image
    except (SourceError, UndecodableImage):
        return None
    height, width = image.shape[:2]
    return Picture(preview(image, max_bytes=most), width, height)
