"""A start-up as people want to see it: the log as it grows, the stage it is in, and how long it will take."""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from resources.vllm.supervisor.diagnosis import plain

_STAGES = (
    (r"Application startup complete", "answering a first request"),
    (r"Starting vLLM server on", "opening the port"),
    (r"Capturing CUDA graphs|Graph capturing", "capturing CUDA graphs"),
    (r"KV cache size|KV cache memory|for KV cache", "sizing the cache"),
    (r"torch\.compile|Compiling", "compiling"),
    (r"Starting to load model|Loading safetensors|Loading weights", "loading the weights"),
    (r"Initializing a V1 LLM engine", "starting the engine"),
    (r"non-default args|Resolved architecture", "reading the model's configuration"),
)
"""Log lines that begin a stage, the latest first."""


def stage(line: str) -> str | None:
    """The stage that a log line begins."""
    return next((name for pattern, name in _STAGES if re.search(pattern, line)), None)


def remaining(elapsed: float, last: float | None) -> str:
    """How long it still takes, as learnt from the last start."""
    if last is None:
        return "first start here, so its weights may have to be fetched and compiled"
    if elapsed > last:
        return f"longer than the {last:.0f} s of the last start"
    return f"about {last - elapsed:.0f} s to go"


_PHASES = (
    (r"non-default args", "configuration"),
    (r"Using max model len", "imports of the engine"),
    (r"Initializing a V1 LLM engine", "device"),
    (r"Starting to load model", "weights"),
    (r"Model loading took", "compiling and first pass"),
    (r"KV cache size|KV Cache as specified by kv_cache_memory_bytes", "CUDA graphs and warm-up"),
    (r"init engine \(profile", "HTTP processes"),
    (r"Starting vLLM server on", "first answer"),
)
"""Log lines that begin a phase of a start, in their order; before the first one are vLLM's imports."""

_TIME = re.compile(r"(?:INFO|WARNING|DEBUG|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d) ")


def phases(lines: Iterable[str], began: float, ready: float) -> str:
    """How long each phase of a start took, by the times that its log's lines carry: `imports 8 s, weights 4 s, ...`.

    `began` and `ready` are Unix times. A phase that the log does not tell is part of the one before; phases of
    several processes that overlap count from the first line of each.
    """
    found = [("imports", began)]
    ahead = list(_PHASES)
    for line in lines:
        at = next((number for number, (pattern, _) in enumerate(ahead) if re.search(pattern, line)), None)
        told = None if at is None else _TIME.search(line)
        if at is not None and told is not None:
            year = time.localtime(began).tm_year
            moment = time.mktime(time.strptime(f"{year}-{told[1]}", "%Y-%m-%d %H:%M:%S"))
            found.append((ahead[at][1], min(max(moment, found[-1][1]), ready)))
            del ahead[: at + 1]
    ends = [moment for _, moment in found[1:]] + [ready]
    return ", ".join(f"{name} {end - start:.0f} s" for (name, start), end in zip(found, ends, strict=True))


class LogTail:
    """New whole lines of a log that may be replaced by a new one at any time; `skip` leaves out what is there now."""

    def __init__(self, path: Path, skip: bool = False) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        if skip and path.exists():
            status = path.stat()
            self._inode, self._offset = status.st_ino, status.st_size

    def lines(self) -> list[str]:
        """What was added since the last call, without the log's own prefixes and empty lines."""
        try:
            with self._path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode:
                    self._inode, self._offset = inode, 0
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [text for line in whole.decode(errors="replace").splitlines() if (text := plain(line))]
