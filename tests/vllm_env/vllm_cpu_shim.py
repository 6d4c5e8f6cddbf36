"""Let vLLM run with a torchvision whose compiled operators need missing CUDA libraries.

torchvision's Python part registers fakes for operators of its C++ part and cannot be imported when
that part does not load, as on a CPU machine. Declaring them is enough: vLLM's image processors use
the Python part only. Imported at start-up by the `.pth` file beside it.
"""

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_libraries: list[Any] = []  # operators vanish with the library object that declared them


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            spec = PathFinder.find_spec(fullname, path)
            if spec is not None and spec.origin is not None:
                _declare_missing(Path(spec.origin).parent)
        return None


def _declare_missing(package: Path) -> None:
    import torch

    try:
        for compiled in package.glob("_C*.so"):
            torch.ops.load_library(str(compiled))
    except OSError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for name, schema in _SCHEMAS.items():
            library.define(name + schema)
        _libraries.append(library)


sys.meta_path.insert(0, _BeforeTorchvision())
