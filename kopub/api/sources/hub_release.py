"""The release in a dataset repository of the Hub, read page by page."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Self

import httpx2
from huggingface_hub import hf_hub_download, snapshot_download
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RevisionNotFoundError

from kopub.api.sources.release import PAGES, ReleaseSource, is_release
from kopub.errors import HubError, SourceError
from kopub.release.files import MANIFEST, part_path
from kopub.release.hub_calls import explain_hub_error

_AT_ONCE = [f"data/{PAGES}/*.parquet", MANIFEST]
"""The files of a release from which a catalogue is made."""


class HubSource(ReleaseSource):
    """The release of a repository at one commit.

    Offline, only the files in the cache are read.
    """

    def __init__(self, repo: str, revision: str | None) -> None:
        with _translate_errors(repo):
            folder = snapshot_download(repo, repo_type="dataset", revision=revision, allow_patterns=_AT_ONCE)
        self._repo, self._revision, self._commit = repo, revision, Path(folder).name
        if not is_release(Path(folder)):
            raise SourceError(f"{repo} is no release of KoPub: it has no data/{PAGES}/shard_*.parquet")
        super().__init__(Path(folder))

    @property
    def location(self) -> str:
        return f"{self._repo} at {self._commit}"

    def fresh(self) -> Self:
        now = type(self)(self._repo, self._revision)
        return self if now._commit == self._commit else now

    def stamp(self, config: str, shard: str) -> str | None:
        return self._commit

    def _path(self, config: str, shard: str) -> Path:
        path = super()._path(config, shard)
        if path.exists():
            return path
        with _translate_errors(self._repo):
            return Path(
                hf_hub_download(self._repo, part_path(config, shard), repo_type="dataset", revision=self._commit)
            )


@contextmanager
def _translate_errors(repo: str) -> Iterator[None]:
    """Turn errors of the Hub's client into a `HubError`.

    They are not chained, since they can contain signed addresses.
    """
    try:
        yield
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        cause = error.__cause__ or error
        reason = explain_hub_error(error, repo)
        if isinstance(cause, GatedRepoError):
            reason = f"{repo}: its owners grant access on its page on the Hub: ask for it there"
        elif (
            isinstance(cause, HfHubHTTPError)
            and not isinstance(cause, RevisionNotFoundError)
            and cause.response.status_code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND)
        ):
            what = "is neither a folder nor a dataset on the Hub that you may see"
            reason = f"{repo} {what}: correct it, or `hf auth login`"
        raise HubError(reason) from None
