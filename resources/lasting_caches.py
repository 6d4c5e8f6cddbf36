"""What the start of a process need not make again: caches that outlive it. Standard library only.

vLLM itself keeps its compiled graphs, what it found out about models, and Triton's kernels in the user's cache folder.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

_CACHE = "~/.cache/kopub"
_WRITE_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_BYTECODE = "PYTHONPYCACHEPREFIX"
_INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"


def lasting_caches(environ: Mapping[str, str], packages: Iterable[Path]) -> dict[str, str]:
    """Variables for a process that imports `packages`, given by their folders, beside those that `environ` has.

    Without compiled Python files (an image that sets PYTHONDONTWRITEBYTECODE, or an installer that compiles nothing)
    each import of PyTorch or vLLM takes two to three times as long. Python writes them beside the sources, or into
    the user's cache folder where it must not.
    """
    given = {_WRITE_NO_BYTECODE: ""}
    if _BYTECODE not in environ and not all(map(_may_compile, packages)):
        given[_BYTECODE] = _folder("bytecode")
    if _INDUCTOR not in environ:
        # The default is in /tmp, which a restart of the machine empties.
        given[_INDUCTOR] = _folder("inductor")
    return given


def beside_program(program: Path, package: str) -> list[Path]:
    """The folder of a package in the environment that a program is of; none where it lies elsewhere."""
    return [*program.parent.parent.glob(f"lib/python3*/site-packages/{package}")]


def _may_compile(package: Path) -> bool:
    """Whether a package has compiled files, or may get them."""
    return any(package.glob("__pycache__/*.pyc")) or os.access(package, os.W_OK)


def _folder(name: str) -> str:
    return str(Path(_CACHE).expanduser() / name)
