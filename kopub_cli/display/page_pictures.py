"""The picture of a page for an HTML file, small enough to be in it."""

from resources.diff.html import Picture
from resources.errors import SourceError, UndecodableImage
from resources.pages.corpus import Corpus


def picture_of(corpus: Corpus, shard: str, page_id: str, row: int, sha256: str | None, most: int) -> Picture | None:
    """The page at `row` of a shard in at most `most` bytes; None where it cannot be read, or is another one now."""
    from resources.pages.pixels.drawing import preview

    try:
        with corpus.reader(shard) as source:
            image = source.page(page_id, row, sha256).image
    except (SourceError, UndecodableImage):
        return None
    height, width = image.shape[:2]
    return Picture(preview(image, max_bytes=most), width, height)
