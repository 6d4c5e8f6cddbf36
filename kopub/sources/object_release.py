"""A release on object storage: files come when they are first needed, into what this machine keeps of such files."""

from pathlib import Path
from typing import Self

from kopub.sources.parquet_rows import ParquetRows
from kopub.sources.release import PAGES, ReleaseSource
from resources.errors import SourceError
from resources.pages.places.fetched_files import FetchedFiles
from resources.release.files import CONFIGS, DATA_PATH, ReleaseManifest, part_path
from resources.release.remote import PublishedRelease

_DIGITS = 16
"""Of a file's SHA-256, which tell it from others at its place."""


class ObjectReleaseSource(ReleaseSource):
    """The release that was published at a URL when it was opened."""

    def __init__(self, url: str, fetched: FetchedFiles) -> None:
        self._published, self._fetched = PublishedRelease.at(url), fetched
        self._listed = self._published.manifest()
        parts: dict[str, dict[str, str]] = {config: {} for config in CONFIGS}
        for path, file in self._listed.files.items():
            if (of := DATA_PATH.fullmatch(path)) and of["config"] in parts:
                parts[of["config"]][of["shard"]] = file.sha256[:_DIGITS]
        if not parts[PAGES]:
            raise SourceError(f"{url} is no release of KoPub: it has no data/{PAGES}/shard_*.parquet")
        super().__init__(Path(url), parts)

    @property
    def location(self) -> str:
        return self._published.folder

    def fresh(self) -> Self:
        now = type(self)(self._published.url, self._fetched)
        return self if now._published == self._published else now

    def _manifest(self) -> ReleaseManifest:
        return self._listed

    def _opened(self, config: str, shard: str) -> ParquetRows:
        path = part_path(config, shard)
        url = f"{self._published.folder}/{path}"
        with self._fetched.held(url) as found:
            if path in self._listed.files and found.sha256 != self._listed.files[path].sha256:
                raise SourceError(f"{url} is not the file that the release lists: publish it again")
            return self._open(found.path)
