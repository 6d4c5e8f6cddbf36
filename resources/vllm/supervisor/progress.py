"""A start-up as people want to see it: the log as it grows, the stage it is in, and how long it will take."""

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path

from resources.vllm.supervisor.diagnosis import plain

_FIRST = "importing vLLM"
_STAGES = (
    (r"non-default args", "reading the model's configuration"),
    (r"Using max model len", "importing vLLM in the engine"),
    (r"Initializing a V1 LLM engine", "preparing the device"),
    (r"Starting to load model", "loading the weights"),
    (r"Model loading took", "compiling"),
    (r"KV cache size|KV Cache as specified by kv_cache_memory_bytes", "capturing CUDA graphs"),
    (r"init engine \(profile", "opening the port"),
    (r"Starting vLLM server on", "answering a first request"),
)
"""Log lines that begin a stage of a start, in their order; before the first one is `_FIRST`."""

_TIME = re.compile(r"(?:INFO|WARNING|DEBUG|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d) ")


def stage(line: str, before: str) -> str:
    """The stage after a log line, where it was `before`. A process that lags behind the others changes nothing."""
    names = [_FIRST, *(name for _, name in _STAGES)]
    ahead = _STAGES[names.index(before) if before in names else 0 :]
    return next((name for pattern, name in ahead if re.search(pattern, line)), before)


def remaining(elapsed: float, last: float | None) -> str:
    """How long it still takes, as learnt from the last start."""
    if last is None:
        return "first start here, so its weights may have to be fetched and compiled"
    if elapsed > last:
        return f"longer than the {last:.0f} s of the last start"
    return f"about {last - elapsed:.0f} s to go"


def stages(lines: Iterable[str], began: float, ready: float) -> str:
    """How long each stage of a start took, by the times that its log's lines carry: `importing vLLM 8 s, ...`.

    `began` and `ready` are Unix times. A stage that the log does not tell is part of the one before.
    """
    found = [(_FIRST, began)]
    for line in lines:
        name, told = stage(line, found[-1][0]), _TIME.search(line)
        if name != found[-1][0] and told is not None:
            year = time.localtime(began).tm_year
            moment = time.mktime(time.strptime(f"{year}-{told[1]}", "%Y-%m-%d %H:%M:%S"))
            found.append((name, min(max(moment, found[-1][1]), ready)))
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
