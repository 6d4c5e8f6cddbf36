"""The log of a server: its start's progress and its end's cause. Standard library only."""

import logging
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from kopub.errors import EngineError
from kopub.vllm.supervisor.server_state import Phase, ServerFolder, ServerState, server_folders

_REPORT_SECONDS = 10.0
"""Seconds between two lines about the progress of a start."""
_TURN_REPORT_SECONDS = 60.0
_TURN_SECONDS = 1.0
"""Seconds after which a waiting start is reported: every start waits for an instant, but longer only for a GPU."""
_SHOWN = 20
"""Log lines shown when a start fails."""


class StartReport:
    """The log messages about a start."""

    def __init__(self, folder: ServerFolder, log: logging.Logger, restart: bool) -> None:
        self._folder = folder
        self._log = log
        self._tail = LogTail(folder.log(0), skip=restart)
        self._began = time.monotonic()
        self._last_report = 0.0
        self._stage = "starting"
        self._boots: set[int] = set()
        self._reasons: set[tuple[int, str]] = set()

    def progress(self, state: ServerState) -> None:
        """Log the server's new lines at level debug, and occasionally the stage."""
        if state.phase is Phase.WAITING:
            reported = self._last_report and time.monotonic() - self._last_report <= _TURN_REPORT_SECONDS
            if time.time() - state.since >= _TURN_SECONDS and not reported:
                others: list[str] = []
                for other in server_folders():
                    gpus = set(other.specification.gpus) & set(self._folder.specification.gpus)
                    if gpus and other != self._folder and other.is_supervised:
                        others.append(server_name(other))
                self._say("%s waits for the GPU of %s", server_name(self._folder), ", ".join(others) or "another")
            return
        if state.boot not in self._boots:
            self._boots.add(state.boot)
            self._stage = "starting"
            self._log.info("%s starts; its log is %s", server_name(self._folder), self._folder.log(0))
        if state.reason and (state.boot, state.reason) not in self._reasons:
            self._reasons.add((state.boot, state.reason))
            self._log.warning("%s is started again: %s", server_name(self._folder), state.reason)
        before = self._stage
        for line in self._tail.lines():
            self._log.debug("vllm: %s", line)
            self._stage = stage(line, self._stage)
        if self._stage != before or time.monotonic() - self._last_report > _REPORT_SECONDS:
            elapsed, last = time.time() - state.since, self._folder.boot_seconds
            if last is None:
                to_go = "first start here, so its weights may have to be fetched and compiled"
            elif elapsed > last:
                to_go = f"longer than the {last:.0f} s of the last start"
            else:
                to_go = f"about {last - elapsed:.0f} s to go"
            self._say("%s: %s, %.0f s so far, %s", server_name(self._folder), self._stage, elapsed, to_go)

    def ready(self, state: ServerState) -> None:
        """Log that the server is ready, unless it was ready immediately."""
        if self._last_report:
            seconds = time.monotonic() - self._began
            name, stages, urls = server_name(self._folder), self._folder.stages, ", ".join(state.urls)
            self._log.info("%s is ready after %.0f s at %s; its start: %s", name, seconds, urls, stages)

    def failure(self, state: ServerState) -> EngineError:
        """Return the error for a server that ended, and log the end of its log."""
        log = self._folder.log(state.failed)
        if state.phase is Phase.STOPPED:
            return EngineError("{server} was stopped: {reason}", server_name(self._folder), state.reason)
        if log.exists():
            lines = log.read_text("utf-8", errors="replace").splitlines()[-_SHOWN:]
            self._log.error("the last lines of %s:\n%s", log, "\n".join(lines))
        form = "{server} is not to be had: {reason}; its log is {log}"
        return EngineError(form, server_name(self._folder), state.reason, log)

    def _say(self, message: str, *arguments: object) -> None:
        self._last_report = time.monotonic()
        self._log.info(message, *arguments)


def server_name(folder: ServerFolder) -> str:
    """Return the name of a server for log lines and errors."""
    return f"vLLM {folder.specification.model} ({folder.path.name[:6]})"


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
"""Log lines that begin a stage of a start, in order; the stage before the first one is `_FIRST`."""

_TIME = re.compile(r"(?:INFO|WARNING|DEBUG|ERROR) (\d\d-\d\d \d\d:\d\d:\d\d) ")


def stage(line: str, before: str) -> str:
    """Return the stage of a start after a log line; earlier stages change nothing."""
    names = [name for _, name in _STAGES]
    for pattern, name in _STAGES[names.index(before) + 1 if before in names else 0 :]:
        if re.search(pattern, line):
            return name
    return before


def stages(lines: Iterable[str], began: float, ready: float) -> str:
    """Return the seconds of each stage of a start, such as `importing vLLM 8 s`.

    `began` and `ready` are Unix times. A stage that is not in the log counts as part of the previous one.
    """
    name, start = _FIRST, began
    lengths = []
    for line in lines:
        following, stamp = stage(line, name), _TIME.search(line)
        if following != name and stamp is not None:
            years = {time.localtime(began).tm_year, time.localtime(ready).tm_year}  # the log names none
            moments = [time.mktime(time.strptime(f"{year}-{stamp[1]}", "%Y-%m-%d %H:%M:%S")) for year in years]
            end = min(max(min(moments, key=lambda moment: abs(moment - began)), start), ready)
            lengths.append(f"{name} {end - start:.0f} s")
            name, start = following, end
    return ", ".join([*lengths, f"{name} {ready - start:.0f} s"])


class LogTail:
    """A reader of a log that may be replaced; with `skip`, only of new lines."""

    def __init__(self, path: Path, skip: bool = False) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        if skip and path.exists():
            status = path.stat()
            self._inode, self._offset = status.st_ino, status.st_size

    def lines(self) -> list[str]:
        """Return the lines added since the last call, without prefixes and empty lines."""
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


PORT_TAKEN = r"Address already in use|Errno 98"
MEMORY_LACKED = (
    r"CUDA out of memory|OutOfMemoryError|No available memory for the cache blocks|Free memory on device"
    r"|is less than desired GPU memory utilization|larger than the available KV cache memory|Error in memory profiling"
)
"""Messages of vLLM if the GPU's memory does not suffice, or changes while it is measured."""

_CAUSES: tuple[tuple[str, str], ...] = (
    (
        PORT_TAKEN,
        "the port is taken; free it, or leave `port` at 0 for any free one",
    ),
    (
        r"larger than the available KV cache memory",
        "the KV cache does not hold one longest request; raise kv_cache_memory (or gpu_memory_utilization, where that "
        "is not set), or lower max_model_len",
    ),
    (
        MEMORY_LACKED,
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
"""(pattern in the log, the cause and what to do), most specific first, because one cause often triggers others."""

_ERROR = re.compile(r"(^|\s)(\w*(Error|Exception)\b.*|error: .*|ERROR.*)")
_PREFIX = re.compile(r"^(\(\S+( pid=\d+)?\) )*((ERROR|WARNING|INFO|DEBUG|CRITICAL) \d\S* \d\S* (\[\S+\] ?)?)?")
_ECHO = r"See root cause above"
"""The message of processes that wait for an engine process, which does not say why it died."""
_NEAR = 60
"""Lines at the end that are searched first, which hold a traceback; an engine's own one comes before a second one."""
_KILLED = 128 + 9
_LONGEST = 300
"""Most characters of a log line in a one-line message."""


def likely_cause(lines: Sequence[str], status: int | None = None) -> str:
    """Return the cause and the line that shows it, else the last error line.

    `status` is the server's exit status, 128 + n for signal n.
    """
    if status == _KILLED:
        return "it was ended by SIGKILL; when nobody did that, the machine ran out of memory (see dmesg)"
    for searched in (lines[-_NEAR:], lines):
        for pattern, meaning in _CAUSES:
            for line in reversed(searched):
                if re.search(pattern, line):
                    return f"{meaning} ({plain(line)})"
    for line in reversed(lines):
        if _ERROR.search(line) and not re.search(_ECHO, line):
            return plain(line)
    return plain(next(filter(str.strip, reversed(lines)), "it printed nothing"))


def plain(line: str) -> str:
    """Return a log line without the prefixes of process, level and time."""
    return _PREFIX.sub("", line.strip()).strip()[:_LONGEST]
