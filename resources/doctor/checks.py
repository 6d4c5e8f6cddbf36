"""The findings of an examination, and the checks of the machine itself."""

import os
import platform
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from resources.errors import ConfigError
from resources.pages.documents import conversion
from resources.store.faults import require_reachable


class Level(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It runs, with a disadvantage that the line names."""
    PROBLEM = "problem"
    """A run would fail, or make rubbish."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of an examination.

    `check` names what was looked at, `says` what was found and what that means, `do` what to do about it.
    """

    check: str
    level: Level
    says: str
    do: str = ""


def ok(check: str, says: str) -> Finding:
    """Return a finding that needs nothing."""
    return Finding(check, Level.OK, says)


def warning(check: str, says: str, do: str) -> Finding:
    """Return a finding that a run can bear."""
    return Finding(check, Level.WARNING, says, do)


def problem(check: str, says: str, do: str) -> Finding:
    """Return a finding that a run cannot bear."""
    return Finding(check, Level.PROBLEM, says, do)


def is_well(findings: Iterable[Finding]) -> bool:
    """Return whether there is no problem among them."""
    return all(finding.level is not Level.PROBLEM for finding in findings)


_OLDEST, _TOO_NEW = (3, 11), (3, 15)
_TABLE_BYTES_A_PAGE = 200_000
"""Tables, journal and release of a page with two vectors of 2048 numbers, text and a few cut-out pictures."""
_OPEN_FILES = 256
"""The files of a shard, of libraries and of Dagster; requests in flight have a connection each besides."""
_SHARED_MEMORY = 4 * 2**30
"""Pixels of 128 pages of 22 MB, or of a thousand regions, wait in shared memory for the engine."""


def check_python() -> Finding:
    """Return the interpreter and the platform."""
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if _OLDEST <= sys.version_info[:2] < _TOO_NEW:
        return ok("python", found)
    return problem("python", f"{found} is not supported", "make setup PYTHON=python3.12, with Python 3.11 to 3.14")


def check_home(folder: Path) -> Finding:
    """Return whether KOPUB_HOME can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".doctor-{os.getpid()}"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        return problem("home", f"{folder} cannot be written ({error.strerror})", "set KOPUB_HOME to a folder that can")
    return ok("home", f"{folder} can be written")


def check_store(url: str) -> Finding:
    """Return whether the store answers."""
    try:
        require_reachable(url)
    except ConfigError as error:
        said, _, do = str(error).rpartition(": ")
        return problem("store", said, do)
    return ok("store", f"{url} answers")


def check_office_files() -> Finding:
    """Return whether HWP and office files become pages here, and with Hangul."""
    if not conversion.has_korean_font():
        says = "no Korean font is here: Hangul of HWP and office files would be lost, and said page by page"
        return warning("office files", says, conversion.KOREAN_FONTS)
    lacking = conversion.all_lacking()
    if not lacking:
        return ok("office files", "a Korean font is here, and what converts each format")
    said = [line.partition(": ") for line in lacking]
    return warning("office files", "; ".join(says for says, _, _ in said), "; ".join(do for _, _, do in said))


def check_room_for_tables(folder: Path, pages: int, free: Callable[[Path], int]) -> Finding:
    """Return whether the disk holds what the pages become.

    `free` are the bytes where a folder lies.
    """
    wanted, there = pages * _TABLE_BYTES_A_PAGE, free(folder)
    says = f"{there / 1e9:.0f} GB free for tables; {pages:,} pages take about {max(wanted / 1e9, 0.1):.1f} GB"
    if there > wanted:
        return ok("disk", says)
    return problem("disk", says, f"free some space where {folder} lies, or set KOPUB_HOME to another disk")


def check_open_files(limit: int, requests: int) -> Finding:
    """Return whether a process may open the files that its `requests` in flight need."""
    wanted = _OPEN_FILES + requests
    if limit >= wanted:
        return ok("open files", f"a process may open {limit:,}")
    return problem(
        "open files", f"a process may open {limit:,}, and needs {wanted:,}", f"ulimit -n {2 * wanted}, before the run"
    )


def check_shared_memory(folder: Path = Path("/dev/shm")) -> Finding:
    """Return whether pixels fit where vLLM's processes hand them over."""
    try:
        size = shutil.disk_usage(folder).free
    except OSError:
        return problem(
            "shared memory", f"there is no {folder}", "mount a tmpfs there, or drop torch_shm of extra_flags"
        )
    says = f"{size / 1e9:.1f} GB free in {folder}"
    if size >= _SHARED_MEMORY:
        return ok("shared memory", says)
    do = f"give the container --shm-size {_SHARED_MEMORY // 2**30}g, or drop --mm-tensor-ipc torch_shm of extra_flags"
    return problem("shared memory", f"{says}; the server hands pixels over there", do)


def open_file_limit() -> int:
    """Return the number of files that this process, and those it starts, may open."""
    try:
        import resource
    except ImportError:
        return sys.maxsize
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


_COMPILERS = ("gcc", "clang")


def check_compiler() -> Finding:
    """Return the C compiler that Triton would take: $CC, or one on the path."""
    asked = os.environ.get("CC")
    found = next(filter(None, map(shutil.which, (asked,) if asked else _COMPILERS)), None)
    if found:
        return ok("compiler", found)
    looked = f"CC is {asked}, which is not there" if asked else f"there is no {' and no '.join(_COMPILERS)}"
    return problem("compiler", f"{looked}: Triton cannot build its kernels", "apt-get install gcc libc6-dev")


def check_headers(folder: str | None = None) -> Finding:
    """Return whether Python.h of this interpreter is there."""
    path = Path(folder or sysconfig.get_paths()["include"]) / "Python.h"
    if path.is_file():
        return ok("Python.h", str(path))
    version = sysconfig.get_python_version()
    do = f"apt-get install python{version}-dev, or use a Python that brings its headers along (uv, conda)"
    return problem("Python.h", f"there is no {path}: Triton cannot build its kernels", do)
