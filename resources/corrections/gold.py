"""Checked pages as known answers: what the next reader is judged by."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from resources.corrections.log import CorrectionLog
from resources.errors import SourceError
from resources.files import replace_bytes
from resources.release.base import image_suffix, page_images
from resources.store.corpus_tables import TABLES

if TYPE_CHECKING:
    from resources.pages.corpus import Corpus
    from resources.store.shard_store import ShardStore

FOLDER = "checked_pages"
"""Folder in a home with the pictures of checked pages and their texts, as markdown beside them."""


def write_checked_pages(corpus: "Corpus", store: "ShardStore", folder: Path) -> int:
    """Make `folder` hold the picture and the markdown of every checked page, and nothing else; return how many.

    The text is what the page said when a person checked it, whatever has read it since. Raises `SourceError` where no
    page is checked, and `StoreError`.
    """
    checked = {page_id: done.checked for page_id, done in CorrectionLog(store).by_page().items() if done.checked}
    written: set[str] = set()
    for shard in corpus.manifest.keys if checked else ():
        raw = store.read(TABLES.pages.name, shard)
        here = [page_id for page_id in raw["page_id"].to_pylist() if page_id in checked]
        with page_images(corpus, shard, raw, upright=True) as image_of:
            for page_id in here:
                mark, data = checked[page_id], image_of(page_id)
                if mark is None or data is None:
                    continue
                markdown = json.loads(mark.after)["markdown"]
                for name, content in ((f"{page_id}{image_suffix(data)}", data), (f"{page_id}.md", markdown.encode())):
                    replace_bytes(folder / name, content)
                    written.add(name)
    if not written:
        raise SourceError("no page is checked yet: `kopub browse --edit`, and mark the pages that are right")
    for path in folder.iterdir():
        if path.name not in written and path.is_file():
            path.unlink()
    return len(written) // 2
