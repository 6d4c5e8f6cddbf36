"""Keeps a process that opens a user's file from other files and the network.

It reaches the programs, the fonts and that file. Linux sees to it: Landlock keeps it from other files, and a filter of
system calls from the network. Both hold for ordinary users, for whatever the process starts, and until it ends.
Standard library only, because a child does this first.
"""

import ctypes
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from glob import glob
from pathlib import Path
from typing import TypedDict

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""Landlock's system calls, which have these numbers on every processor."""
_ASK_VERSION = _PATH_BENEATH = 1
_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""How many rights to files Landlock knows, from a version on."""
_EXECUTE, _WRITE, _READ, _LIST, _REMOVE, _MAKE_SOCKET, _TRUNCATE = (1 << bit for bit in (0, 1, 2, 3, 5, 9, 14))
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE
"""Rights that a rule about a file, unlike one about a folder, may name."""
_TO_USE = _EXECUTE | _READ | _LIST
_NO_NEW_PRIVILEGES, _GET_SECCOMP, _SET_SECCOMP, _FILTER = 38, 21, 22, 2

_PROCESSORS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
"""A processor's number among the kernel's, and that of its system call `socket`."""
_IO_URING = 425
"""A system call that could open sockets, too, on every processor."""
_FOREIGN = 0x40000000
"""System calls from here on are those of x86's other interfaces."""
_WITHIN_MACHINE = 1
"""The family of sockets without a network; LibreOffice opens one for itself."""

_PROGRAMS = ("/bin", "/usr/bin", "/usr/local/bin", "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib64", "/usr/libexec")
_SETTINGS = ("/etc/ld.so.cache", "/etc/localtime", "/etc/fonts", "/usr/share/zoneinfo")
_OFFICE = ("/etc/libreoffice", "/var/lib/libreoffice", "/var/spool/libreoffice")
_SHARED = ("fontconfig", "glib-2.0", "hunspell", "hyphen", "icu", "libreoffice", "liblangtag", "locale", "mime", "xml")
_FONTS = ("/usr/share/fonts", "/usr/local/share/fonts", "/usr/share/X11/fonts", "/var/cache/fontconfig")
_OWN_FONTS = (".fonts", ".local/share/fonts", ".config/fontconfig", ".cache/fontconfig")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_KEPT = ("PATH", "HOME", "LANG", "LANGUAGE", "TMPDIR", "TZ", "LD_LIBRARY_PATH")
_KEPT_PREFIXES = ("LC_", "PYTHON", "FONTCONFIG_", "XDG_")


class Reach(TypedDict, total=False):
    """The paths that a confined process may read, and below which it may write."""

    reads: list[str]
    writes: list[str]


def bare_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables for a process that is confined, without anyone's keys."""
    variables = {name: value for name, value in environment.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)}
    # One page at a time needs no threads, each of which would reserve memory.
    return {**variables, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


def confine(reads: Sequence[str] = (), writes: Sequence[str] = ()) -> None:
    """Let this process read only the paths `reads`, and write only below `writes`.

    Python, its packages, and the machine's programs and fonts stay readable; there is no network. Call it before other
    threads start, which would stay as they are. Does only what the kernel can: `why_open` says what is missing.
    """
    if sys.platform != "linux" or platform.machine() not in _PROCESSORS:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return
    # A filter refuses new sockets but those within the machine.
    number, socket = _PROCESSORS[platform.machine()]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    refuse, allow = 0x00050000 | 13, 0x7FFF0000  # EACCES
    program = (
        (load, 0, 0, 4),  # the processor
        (equal, 0, 6, number),
        (load, 0, 0, 0),  # the system call
        (at_least, 4, 0, _FOREIGN),
        (equal, 3, 0, _IO_URING),
        (equal, 0, 3, socket),
        (load, 0, 0, 16),  # its first argument, the family
        (equal, 1, 0, _WITHIN_MACHINE),
        (answer, 0, 0, refuse),
        (answer, 0, 0, allow),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    fields = struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    libc.prctl(_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(fields), 0, 0)
    if _landlock() > 0:
        _leave_files(libc, reads, writes)


@cache
def why_open() -> str | None:
    """Say why this machine cannot keep a process from files and network, else None."""
    if sys.platform != "linux":
        return "only Linux can"
    if platform.machine() not in _PROCESSORS:
        return "it is not known how on this processor"
    if ctypes.CDLL(None).prctl(_GET_SECCOMP, 0, 0, 0, 0) < 0:
        return "the kernel cannot filter system calls"
    return None if _landlock() > 0 else "the kernel has no Landlock, as Linux 5.13 and newer have"


def _landlock() -> int:
    """Return the version of the kernel's Landlock, or -1."""
    return ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)


def _leave_files(libc: ctypes.CDLL, reads: Sequence[str], writes: Sequence[str]) -> None:
    """Give up all rights to files but those that `confine` names."""
    version = _landlock()
    all_rights = (1 << max(count for since, count in _RIGHTS.items() if since <= version)) - 1
    # Python, its packages, the machine's programs and its fonts. Folders of modules that nothing was installed into,
    # such as a project or the present one, may hold documents.
    paths = [str(Path(__file__).parent), *_PROGRAMS, *_SETTINGS, *_OFFICE, *_FONTS, *reads]
    paths += [path for path in sys.path if glob("*.dist-info", root_dir=path or ".")]
    paths += [sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [os.path.join(sys.prefix, "lib"), os.path.join(sys.base_prefix, "lib")]
    paths += [f"/usr/share/{name}" for name in _SHARED]
    paths += [os.path.expanduser(f"~/{name}") for name in _OWN_FONTS]
    paths += filter(None, map(os.environ.get, ("FONTCONFIG_FILE", "FONTCONFIG_PATH")))
    rules = dict.fromkeys(paths, _TO_USE)
    rules |= dict.fromkeys(_DEVICES, _READ | _WRITE)
    if writes:
        rules["/tmp"] = _MAKE_SOCKET | _REMOVE  # LibreOffice has its socket there, whatever TMPDIR is
    rules |= dict.fromkeys(writes, all_rights)
    ruleset = _call(libc, _CREATE_RULESET, struct.pack("Q", all_rights), 8, 0)
    for path, rights in rules.items():
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)  # pyright: ignore[reportAttributeAccessIssue]
            allowed = rights & all_rights if os.path.isdir(path) else rights & all_rights & _OF_FILES
            try:
                _call(libc, _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, descriptor), 0)
            finally:
                os.close(descriptor)
    _call(libc, _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _call(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    result = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"Landlock refuses: {os.strerror(ctypes.get_errno())}")
    return result
