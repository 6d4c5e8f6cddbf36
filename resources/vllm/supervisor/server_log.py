"""How a server's start goes and why it ended, by its log. Standard library only."""

import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

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
    """Return how long it still takes, as learnt from the last start."""
    if last is None:
        return "first start here, so its weights may have to be fetched and compiled"
    if elapsed > last:
        return f"longer than the {last:.0f} s of the last start"
    return f"about {last - elapsed:.0f} s to go"


def stages(lines: Iterable[str], began: float, ready: float) -> str:
    """Return how long each stage of a start took, by the times that its log's lines carry: `importing vLLM 8 s, ...`.

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
        """Return what was added since the last call, without the log's own prefixes and empty lines."""
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


_MEMORY = (
    r"CUDA out of memory|OutOfMemoryError|No available memory for the cache blocks|Free memory on device"
    r"|is less than desired GPU memory utilization|larger than the available KV cache memory|Error in memory profiling"
)
"""What vLLM says when the card's memory does not suffice, or changes while it is measured."""

_CAUSES: tuple[tuple[str, str], ...] = (
    (
        r"Address already in use|Errno 98",
        "the port is taken; free it, or leave `port` at 0 for any free one",
    ),
    (
        _MEMORY,
        "the GPU's memory does not suffice; stop what else runs there, or lower max_model_len, max_num_seqs or "
        "max_num_batched_tokens, or change gpu_memory_utilization",
    ),
    (
        r"DefaultCPUAllocator: can't allocate|Cannot allocate memory|MemoryError|Not enough .*memory",
        "the machine's memory does not suffice; lower max_num_batched_tokens or the cache, or free memory",
    ),
    (
        r"NVIDIA driver on your system is too old|CUDA driver version is insufficient|unsupported display driver"
        r"|PTX was compiled with an unsupported toolchain",
        "the NVIDIA driver is too old for this build of PyTorch: one for CUDA 13 needs driver 580 or newer "
        "(nvidia-smi says which there is)",
    ),
    (
        r"no CUDA-capable device|Found no NVIDIA driver|Failed to infer device type|libcuda\.so"
        r"|CUDA error: no kernel image",
        "no GPU that this build of vLLM can use; check nvidia-smi and the driver's version",
    ),
    (
        r"Python\.h: No such file|fatal error: Python\.h",
        "Triton compiles for this GPU and finds no Python headers; install those of this Python (python3-dev)",
    ),
    (
        r"Failed to find C compiler|No such file or directory: '(gcc|cc|clang|g\+\+|c\+\+)'"
        r"|(gcc|cc|g\+\+): (command )?not found",
        "Triton compiles for this GPU and finds no C compiler; install gcc, or name one in CC",
    ),
    (
        r"[Cc]ould not find nvcc|nvcc: (command )?not found|No such file or directory: '[^']*nvcc'|nvcc fatal"
        r"|CUDA_HOME environment variable is not set",
        "something is to be compiled by nvcc, which is not there or does not fit; leave VLLM_USE_FLASHINFER_SAMPLER "
        "at 0, or install the CUDA toolkit of the version that PyTorch has",
    ),
    (
        r"is not a subclass of|must be a subclass of LogitsProcessor",
        "a logits processor has the interface of vLLM's other model runner; set VLLM_USE_V2_MODEL_RUNNER in the "
        "server's env (0 for the older one)",
    ),
    (
        r"Failed to load \d+th LogitsProcessor plugin",
        "the environment of this vLLM lacks a logits processor that extra_flags name; install kopub there too, or name "
        "one that vLLM has itself",
    ),
    (
        r"RepositoryNotFoundError|RevisionNotFoundError|GatedRepoError|LocalEntryNotFoundError|OfflineModeIsEnabled"
        r"|Can't load the (configuration|model)|is not a local folder and is not a valid model"
        r"|does not appear to have a file|Invalid repository ID or local directory"
        r"|Cannot find any (model )?weights|couldn't connect to"
        r"|Repo id must|safetensors_rust\.SafetensorError|HeaderTooLarge",
        "the model or its weights cannot be found or read; check model, revision and access to the hub",
    ),
    (
        r"No space left on device",
        "the disk is full; free space where the model cache or the log lies",
    ),
    (
        r"unrecognized arguments?|invalid choice|expected one argument|invalid .* value|error: argument",
        "this vLLM does not know a flag or its value; compare extra_flags with `vllm serve --help=all`",
    ),
    (
        r"are not supported for now|does not recognize this architecture|No module named|ImportError"
        r"|has no attribute|undefined symbol|PackageNotFoundError",
        "this vLLM, or a library beside it, is of another version than the model needs; install the pinned one",
    ),
    (
        r"max_num_batched_tokens .*(smaller|larger)|max_model_len .*is greater than|validation errors? for",
        "the lengths in the profile contradict each other or the model; the message says which",
    ),
)
"""(what the log says, the cause and what to do), most telling first: a cause often drags later ones behind it."""

_ERROR = re.compile(r"(^|\s)(\w*(Error|Exception)\b.*|error: .*|ERROR.*)")
_PREFIX = re.compile(r"^(\(\S+( pid=\d+)?\) )*((ERROR|WARNING|INFO|DEBUG|CRITICAL) \d\S* \d\S* (\[\S+\] ?)?)?")
_ECHO = r"See root cause above"
"""Processes that wait for an engine process do not say what it died of."""
_NEAR = 60
"""Lines at the end that are searched first: a traceback. The cause of an engine's end lies before a second one."""
_KILLED = 128 + 9
_LONGEST = 300
"""Characters of a log line that a one-line message can bear."""


def likely_cause(lines: Sequence[str], status: int | None = None) -> str:
    """Return the cause in words and the line that tells it.

    The last error line when none is known. `status` is the server's exit status, 128 + n for signal n.
    """
    if status == _KILLED:
        return "it was ended by SIGKILL; when nobody did that, the machine ran out of memory (see dmesg)"
    for searched in (lines[-_NEAR:], lines):
        for pattern, meaning in _CAUSES:
            telling = [line for line in searched if re.search(pattern, line)]
            if telling:
                return f"{meaning} ({plain(telling[-1])})"
    errors = [line for line in lines if _ERROR.search(line) and not re.search(_ECHO, line)]
    last = errors or [line for line in lines if line.strip()]
    return plain(last[-1]) if last else "it printed nothing"


def port_taken(lines: Sequence[str]) -> bool:
    """Return whether another process got the port first."""
    return any(re.search(_CAUSES[0][0], line) for line in lines)


def memory_lacked(lines: Sequence[str]) -> bool:
    """Return whether the GPU's memory did not suffice."""
    return any(re.search(_MEMORY, line) for line in lines)


def plain(line: str) -> str:
    """Return a log line without the prefixes of process, level and time."""
    return _PREFIX.sub("", line.strip()).strip()[:_LONGEST]
