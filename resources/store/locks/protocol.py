"""What a lock is, wherever it lies."""

from typing import Protocol


class Lock(Protocol):
    """The right of one writer to make a table, which others wait for."""

    def acquire(self, wait: bool) -> None:
        """Take the lock. Raises `TableBusy` without `wait` where another has it, and `StoreError`."""
        ...

    def release(self) -> None:
        """Give it back. Whoever lost it gives back nothing."""
        ...

    def check(self) -> None:
        """Raise `LockLost` when this process knows that it may have lost the lock; asks nobody."""
        ...

    def confirm(self) -> None:
        """`check`, and ask the storage whose lock it is: before anything is published. Raises `StoreError`."""
        ...
