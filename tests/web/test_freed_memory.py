"""What `kopub browse` frees goes back to the system."""

import platform
import re
import subprocess
import sys

import pytest

from kopub_cli.freed_memory import ARENAS
from resources.config.settings import ROOT

THREADS = 8
HEAPS = f"""
import ctypes, threading
from kopub_cli.freed_memory import give_back_freed_memory

give_back_freed_memory()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier({THREADS})

def allocate():
    together.wait()
    for _ in range(50):
        libc.malloc(10_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
told = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, told)
libc.fflush(told)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have one heap")
def test_threads_share_few_heaps():
    told = subprocess.run([sys.executable, "-c", HEAPS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert 1 <= len(re.findall("<heap nr=", told)) <= ARENAS
