"""Whether the folder or bucket of the tables answers."""

import fsspec
from fsspec.implementations.local import LocalFileSystem

from resources.errors import ConfigError
from resources.printable import first_line
from resources.store.files.faults import error_code


def require_reachable(url: str) -> None:
    """Raise `ConfigError`, one line, when the store at `url` cannot be opened or listed. A local folder always can."""
    try:
        fs, root = fsspec.core.url_to_fs(url)
        if not isinstance(fs, LocalFileSystem):
            fs.invalidate_cache()
            fs.ls(root)
    except FileNotFoundError as error:
        if error_code(error) == "NoSuchBucket":
            raise ConfigError(f"store.url {url}: there is no such bucket: make it, or correct store.url") from None
        # Nothing was made yet.
        return
    except ImportError as error:
        raise ConfigError(f"store.url {url} needs another package ({first_line(error)}): install it") from None
    except Exception as error:
        # Each object store has errors of its own, and most of them are no OSError.
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise ConfigError(
            f"store.url {url} cannot be read ({reason}): check the address, the credentials and the network"
        ) from None
