"""Single files of weights, pinned by address and hash, beside the Hub's cache."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from kopub.errors import HubError, first_line
from kopub.files import file_sha256
from kopub.weights.hub import cache_folder


@dataclass(frozen=True, slots=True)
class WeightsFile:
    """A file of weights at an address, known by its SHA-256."""

    url: str
    sha256: str

    @property
    def path(self) -> Path:
        """Where the file is, once it is fetched."""
        name = Path(urlsplit(self.url).path).name
        return cache_folder().parent / "kopub" / self.sha256[:16] / name

    @property
    def is_whole(self) -> bool:
        """The whole file is there, which its hash tells."""
        return self.path.is_file() and file_sha256(self.path) == self.sha256


def fetch_file(file: WeightsFile) -> None:
    """Fetch a file, going on where an interrupted download stopped.

    Raises `HubError`, one line, also if it has another hash.
    """
    import httpx2

    from kopub.weights.fetch import fetch_whole

    if file.path.is_file() and not file.is_whole:
        file.path.unlink()
    name = file.path.name
    try:
        actual = fetch_whole(
            file.url, file.path, file.path.with_suffix(".partial"), file.sha256, displayed_filename=name
        )
    except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
        form = (
            "{file} cannot be fetched from {host} ({error}): check the network and run `kopub pull` again; what came "
            "is kept"
        )
        raise HubError(form, name, urlsplit(file.url).netloc, first_line(error)) from None
    if actual is not None:
        form = (
            "{file} was fetched and is not the pinned one (its hash is {actual}, not {pinned}): run `kopub pull` again"
        )
        raise HubError(form, name, actual[:8], file.sha256[:8])
