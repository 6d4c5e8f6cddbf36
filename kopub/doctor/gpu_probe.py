"""A script that prints what torch sees of the GPUs as JSON: `python gpu_probe.py`.

It runs in its own process, because it creates torch's CUDA context, whose memory is freed when the process ends.
"""

import json
import sys
from pathlib import Path
from typing import Any


def probe() -> dict[str, Any]:
    """Ask torch for its GPUs.

    `torch` and `cuda` are versions; `problem` is torch's own reason for finding no GPU, else `gpus` lists them.
    """
    try:
        import torch
    except ImportError as error:
        return {"problem": f"torch cannot be imported: {error}"}
    answer: dict[str, Any] = {"torch": torch.__version__, "cuda": torch.version.cuda, "driver": driver()}
    try:
        torch.cuda.init()
        gpus = []
        for index in range(torch.cuda.device_count()):
            free, total = torch.cuda.mem_get_info(index)
            gpus.append({"name": torch.cuda.get_device_name(index), "free": free, "total": total})
    except (RuntimeError, AssertionError) as error:
        return {**answer, "problem": " ".join(str(error).split())}
    return {**answer, "gpus": gpus}


def driver(version: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """Return the release of NVIDIA's driver, such as `580.95.05`, or None if unknown."""
    try:
        words = version.read_text("utf-8").split()
    except OSError:
        return None
    return next((word for word in words if word[:1].isdigit() and word.count(".") >= 1), None)


if __name__ == "__main__":
    json.dump(probe(), sys.stdout)
