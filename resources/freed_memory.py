"""What becomes of memory that a process of many threads has freed: back to the system, or kept for the next block.

Where the C library is not glibc, it is left as it is.
"""

import ctypes
import os
import sys
from functools import cache

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
"""The names that glibc's malloc.h has for them."""
ARENAS = 2
"""Heaps that glibc shares among threads: by default 8 for each core, and each keeps what its threads once needed."""
_LARGE = 256 * 1024
"""Bytes of a block that is mapped by itself, and given back when it is freed. By itself glibc raises it to 32 MB."""

_LARGEST_KEPT = 32 << 20
"""Bytes of the largest block that glibc can keep: pixels of 11 million in colour; A4 at 300 dpi has 8.7 million."""
_HEAP = 64 << 20
"""Bytes of a heap of a thread, which may have several."""


def keep_little() -> None:
    """Tell the allocators of this process to keep little of what is freed. Call it before Arrow is loaded.

    Arrow then allocates by the C library: mimalloc, which it brings along, keeps 40 MB. The analyser of Korean has a
    mimalloc of its own. Both read the environment when they are loaded.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)


def keep_blocks() -> None:
    """Tell the allocator of this process to keep freed blocks of up to 32 MB, for threads that soon want as much again.

    By itself glibc gives a thread's heap back once more is free in it than twice the largest block, and each further
    heap once all of it is free. So it does for each page of which a thread decodes 26 MB by way of as much again: the
    system clears up to 19,000 pieces of 4 KB for the next one, and the threads wait for one another. What is kept,
    at most what was needed at once, is given back by `give_back`.
    """
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _HEAP)
        libc.mallopt(_M_TOP_PAD, _HEAP)


def give_back() -> None:
    """Give back what is free between blocks that are used, after work that made many small ones. Takes some ms."""
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
