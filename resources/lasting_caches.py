"""What a start need not make again: caches that outlive a server. Standard library only.

vLLM itself keeps its compiled graphs, what it found out about models, and Triton's kernels in the user's cache folder.
"""

import os
from collections.abc import Mapping
from pathlib import Path

_CACHE = "~/.cache/kopub"
_WRITE_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_BYTECODE = "PYTHONPYCACHEPREFIX"
_INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"


def lasting_caches(environ: Mapping[str, str], program: Path) -> dict[str, str]:
    """Variables for a server that `program` starts, beside those that `environ` has.

    A server is six processes or more that import vLLM and PyTorch one after the other. Without compiled Python
    files (an image that sets PYTHONDONTWRITEBYTECODE, or an installer that compiles nothing) each import takes more
    than twice as long. Python writes them beside the sources, or into the user's cache folder where it must not.
    """
    given = {_WRITE_NO_BYTECODE: ""}
    if _BYTECODE not in environ and not _may_compile(program):
        given[_BYTECODE] = _folder("bytecode")
    if _INDUCTOR not in environ:
        # The default is in /tmp, which a restart of the machine empties.
        given[_INDUCTOR] = _folder("inductor")
    return given


def _may_compile(program: Path) -> bool:
    """Whether the libraries beside a program have compiled files, or may get them."""
    libraries = [*program.parent.parent.glob("lib/python3*/site-packages/vllm")]
    return all(any(library.glob("__pycache__/*.pyc")) or os.access(library, os.W_OK) for library in libraries)


def _folder(name: str) -> str:
    return str(Path(_CACHE).expanduser() / name)
