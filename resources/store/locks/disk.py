"""A lock on a local disk: the system gives it back when its process ends, however that ends."""

import os
from pathlib import Path

from filelock import FileLock, Timeout

from resources.errors import StoreError, TableBusy
from resources.files import cannot_write


class DiskLock:
    """A locked file at `path`; `what` it is for. It may be released by another thread."""

    def __init__(self, path: str, what: str) -> None:
        self._path, self._what = path, what
        self._file = FileLock(path, thread_local=False)

    def acquire(self, wait: bool) -> None:
        try:
            os.makedirs(Path(self._path).parent, exist_ok=True)
            self._file.acquire(blocking=wait)
        except Timeout:
            raise TableBusy(f"{self._what} is being made by another run") from None
        except OSError as error:
            raise StoreError(cannot_write(self._path, error)) from error

    def release(self) -> None:
        self._file.release()

    def check(self) -> None:
        """It cannot be lost."""

    def confirm(self) -> None:
        """It cannot be lost."""
