"""Commands and the analyser return freed memory; threads that decode pages reuse theirs."""

import platform
import re
import subprocess
import sys

import pytest

from kopub.config.settings import ROOT
from kopub.processes import ARENAS

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries are left as they are")
THREADS = 8
HEAPS = f"""
import ctypes, threading
from kopub.processes import keep_little

keep_little()
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
told = ctypes.c_void_p(libc.fopen(b"/dev/stderr", b"w"))
libc.malloc_info(0, told)
libc.fflush(told)
import pyarrow
print(pyarrow.default_memory_pool().backend_name)
"""
HOLES = """
import ctypes, os
from pathlib import Path
from kopub.processes import give_back

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
blocks = [libc.malloc(20_000) for _ in range(2_000)]
for block in blocks:
    ctypes.memset(ctypes.c_void_p(block), 1, 20_000)
for at, block in enumerate(blocks):
    if at % 10:
        libc.free(ctypes.c_void_p(block))
before = resident()
give_back()
print(before - resident())
"""

BLOCKS = """
import resource, threading
from kopub.processes import keep_blocks

def faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

def page_after_page():
    encoded = [bytes([1]) * 650_000 for _ in range(ENCODED)]
    for _ in range(4):
        before = faults()
        work, pixels, small = (bytes([1]) * size for size in (26_103_000, 26_099_520, 1_920_000))
        del work, pixels, small
        print(faults() - before)

keep_blocks()
thread = threading.Thread(target=page_after_page)
thread.start()
thread.join()
"""

EXPORT = """
import os
from kopub.cli.commands.export import export
from kopub.errors import KopubError

os.environ["KOPUB_PROFILE"] = "no such profile"
try:
    export("out")
except KopubError:
    import pyarrow
    print(pyarrow.default_memory_pool().backend_name)
"""


def ran(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)


def test_threads_and_arrow_share_few_heaps():
    done = ran(HEAPS)
    assert 1 <= len(re.findall("<heap nr=", done.stderr)) <= ARENAS
    assert done.stdout.split() == ["system"]


@pytest.mark.slow
def test_an_export_keeps_little():
    assert ran(EXPORT).stdout.split() == ["system"]


def test_what_is_free_between_used_blocks_is_given_back():
    assert int(ran(HOLES).stdout) > 20_000_000


@pytest.mark.parametrize("encoded", [0, 60])
def test_what_a_thread_frees_after_a_page_is_there_for_the_next(encoded: int):
    """This also holds when encoded pages leave a thread's heap too little room."""
    first, *others = map(int, ran(BLOCKS.replace("ENCODED", str(encoded))).stdout.split())
    assert first > 100
    assert max(others) < first / 10


@pytest.mark.slow
def test_the_analyser_of_korean_keeps_nothing_where_nobody_asked_for_it():
    """A run does not call `keep_little`, because its process loads Arrow long before."""
    code = "from kopub.search.morphemes import korean_analyser; korean_analyser()"
    environment = {"PATH": "/usr/bin:/bin", "MIMALLOC_VERBOSE": "1"}
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stderr
    assert re.findall(r"'purge_delay': (\S+)", said)[-1] == "0"
