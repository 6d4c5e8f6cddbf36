"""What Triton and torch.compile need to build their kernels at the first start: a C compiler, and Python's headers."""

import os
import shutil
import sysconfig
from pathlib import Path

from resources.doctor.finding import Finding, ok, problem

_COMPILERS = ("gcc", "clang")


def compiler() -> Finding:
    """The C compiler that Triton would take: $CC, or one on the path."""
    asked = os.environ.get("CC")
    found = next(filter(None, map(shutil.which, (asked,) if asked else _COMPILERS)), None)
    if found:
        return ok("compiler", found)
    looked = f"CC is {asked}, which is not there" if asked else f"there is no {' and no '.join(_COMPILERS)}"
    return problem("compiler", f"{looked}: Triton cannot build its kernels", "apt-get install gcc libc6-dev")


def headers(folder: str | None = None) -> Finding:
    """Python.h of this interpreter."""
    path = Path(folder or sysconfig.get_paths()["include"]) / "Python.h"
    if path.is_file():
        return ok("Python.h", str(path))
    version = sysconfig.get_python_version()
    do = f"apt-get install python{version}-dev, or use a Python that brings its headers along (uv, conda)"
    return problem("Python.h", f"there is no {path}: Triton cannot build its kernels", do)
