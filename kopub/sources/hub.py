"""A release in a dataset repository of the Hub: files come when they are first needed, into the Hub's own cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Self

from kopub.sources.release import PAGES, ReleaseSource, is_release
from resources.errors import HubError, SourceError
from resources.release.files import MANIFEST, part_path
from resources.release.hub_calls import explain_hub_error

_AT_ONCE = [f"data/{PAGES}/*.parquet", MANIFEST]
"""What a catalogue is made of."""


class HubSource(ReleaseSource):
    """The release of a repository at one commit. Offline, what the cache has of it is read."""

    def __init__(self, repo: str, revision: str | None = None) -> None:
        from huggingface_hub import snapshot_download

        with _told(repo):
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
        from huggingface_hub import hf_hub_download

        path = super()._path(config, shard)
        if path.exists():
            return path
        with _told(self._repo):
            return Path(
                hf_hub_download(self._repo, part_path(config, shard), repo_type="dataset", revision=self._commit)
            )


@contextmanager
def _told(repo: str) -> Iterator[None]:
    """Turn what the Hub's client raises into a `HubError`; not chained, since it can hold signed addresses."""
    import httpx2

    try:
        yield
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        raise HubError(_refused(error.__cause__ or error, repo) or explain_hub_error(error, repo)) from None


def _refused(error: BaseException, repo: str) -> str | None:
    """What the Hub does not give to a reader; None for other trouble."""
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RevisionNotFoundError

    if isinstance(error, GatedRepoError):
        return f"{repo}: its owners grant access on its page on the Hub: ask for it there"
    if not isinstance(error, HfHubHTTPError) or isinstance(error, RevisionNotFoundError):
        return None
    if error.response.status_code not in (HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND):
        return None
    return f"{repo} is neither a folder nor a dataset on the Hub that you may see: correct it, or `hf auth login`"
