"""Memory that a server of many threads has freed goes back to the system, as its allocators do not do by themselves."""

import ctypes
import os
import sys

_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
"""The names that glibc's malloc.h has for them."""
ARENAS = 2
"""Heaps that glibc shares among threads: by default 8 for each core, and each keeps what its threads once needed."""
_LARGE = 256 * 1024
"""Bytes of a block that is mapped by itself, and given back when it is freed. By itself glibc raises it to 32 MB."""


def give_back_freed_memory() -> None:
    """Tell the allocators of this process to keep little. Nothing that allocates much may be loaded before it.

    Arrow and the analyser of Korean have an allocator of their own each, mimalloc, which reads the environment when
    they are loaded. Where the C library is not glibc, it is left as it is.
    """
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        libc.mallopt(_M_ARENA_MAX, ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)
