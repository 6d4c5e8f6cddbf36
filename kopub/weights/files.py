"""Single files of weights, pinned by address and hash, beside the Hub's cache."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from filelock import FileLock

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
        """Whether the file is there with its hash, which reads it all."""
        return self.path.is_file() and file_sha256(self.path) == self.sha256


def fetch_file(file: WeightsFile) -> None:
    """Fetch a file, going on where an interrupted download stopped.

    Raises `HubError`, one line, also if it has another hash.
    """
    import httpx2
    from huggingface_hub.file_download import http_get

    file.path.parent.mkdir(parents=True, exist_ok=True)
    begun = file.path.with_suffix(".partial")
    with FileLock(f"{begun}.lock"):
        if file.is_whole:
            return
        try:
            with begun.open("ab") as target:
                http_get(file.url, target, resume_size=target.tell(), displayed_filename=file.path.name)
        except (httpx2.HTTPError, OSError, ValueError, RuntimeError) as error:
            said = f"{file.path.name} cannot be fetched from {urlsplit(file.url).netloc} ({first_line(error)})"
            raise HubError(f"{said}: check the network and run `kopub pull` again; what came is kept") from None
        if (actual := file_sha256(begun)) != file.sha256:
            begun.unlink()
            raise HubError(
                f"{file.path.name} was fetched and is not the pinned one (its hash is {actual[:8]}, not "
                f"{file.sha256[:8]}): run `kopub pull` again"
            )
        begun.replace(file.path)
