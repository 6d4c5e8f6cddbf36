"""A folder of documents, and the home that it is indexed into."""

from pathlib import Path

import numpy as np

from kopub.pages.corpus import Corpus, SourceRow
from kopub.pages.indexing import Others, index
from kopub.pages.manifest import Manifest
from kopub.pages.page import decode


class SourceFolder:
    """A folder and its home; PDFs are rendered at 72 dpi, a pixel per point."""

    def __init__(self, place: Path) -> None:
        self.source, self.home = place / "source", place / "home"
        self.lines: list[str] = []

    def put(self, name: str, content: bytes) -> Path:
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def index(self, dpi: int = 72, source: Path | None = None, others: Others = Others.REPLACE) -> Manifest:
        self.lines = []
        return index(str(source or self.source), self.home, self.lines.append, dpi, others)

    @property
    def made(self) -> list[str]:
        """Return the log lines of the shards that the last indexing made."""
        return [said for line in self.lines if (said := line.rpartition(": ")[2]).endswith("made")]

    def rows(self) -> list[SourceRow]:
        corpus = Corpus(home=str(self.home))
        return [row for key in corpus.manifest.keys for row in corpus.rows(key)]

    def shards(self) -> list[list[str]]:
        corpus = Corpus(home=str(self.home))
        return [[row.page_id for row in corpus.rows(key)] for key in corpus.manifest.keys]

    def page(self, at: int = 0) -> np.ndarray:
        return decode(self.rows()[at].data or b"")

    def files(self) -> dict[str, tuple[int, int]]:
        """Return size and modification time in nanoseconds of every shard file by name."""
        found = sorted((self.home / "rendered").glob("pages-*"))
        return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in found}
