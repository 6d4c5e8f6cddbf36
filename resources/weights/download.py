"""One large file of a repository, fetched into the cache's blobs; it goes on where an earlier try stopped.

The Hub's client keeps a part of a file only within one call, and a file of 4 GB takes half an hour at 20 Mbit/s. What
is written here is what it would have written: a blob with the name of its hash.
"""

from resources.errors import HubError
from resources.files import file_sha256
from resources.weights.hub_errors import called
from resources.weights.pinned import Weights
from resources.weights.repository import Listed, repository_folder

BEGUN = ".begun"
"""End of the name of a blob that is not whole."""


def download(weights: Weights, file: Listed) -> None:
    """Fetch a file that is known by its SHA-256, unless its blob is there. Raises `HubError`, one line."""
    from filelock import FileLock
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    assert file.hash is not None
    blob = repository_folder(weights) / "blobs" / file.hash
    begun = blob.with_name(f"{file.hash}{BEGUN}")
    with called(weights):
        blob.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{begun}.lock"):
            if blob.exists():
                return
            with begun.open("ab") as target:
                if target.tell() > file.size:
                    target.truncate(0)
                http_get(
                    hf_hub_url(weights.repo, file.path, revision=weights.revision),
                    target,
                    resume_size=target.tell(),
                    headers=build_hf_headers(),
                    expected_size=file.size,
                    displayed_filename=file.path,
                )
            actual = file_sha256(begun)
            if actual == file.hash:
                begun.replace(blob)
                return
            begun.unlink()
    raise HubError(
        f"{weights}: {file.path} was fetched and is not whole (its hash is {actual[:8]}, not {file.hash[:8]}): "
        "run `kopub pull` again"
    )
