"""Child processes on a pipe, and this process's caches and memory.

Standard library only.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from queue import LifoQueue
from typing import TYPE_CHECKING, Any, BinaryIO

from kopub.states import Reason

if TYPE_CHECKING:
    from kopub.confinement import Reach

STOP_SECONDS = 10.0
"""Time for a process to end after it is told to; then it is killed."""
_BOOT = (
    "import sys; from importlib import import_module; from multiprocessing.connection import Connection; "
    "main, pipe, further, closed, *sys.path = sys.argv[1:]; module, _, name = main.partition(':'); "
    "closed and import_module('kopub.confinement').confine(**import_module('json').loads(closed)); "
    "getattr(import_module(module), name)(Connection(int(pipe)), *map(int, further.split()))"
)


def start_child(
    main: str,
    *descriptors: int,
    group: int | None = None,
    environment: Mapping[str, str] | None = None,
    confined: "Reach | None" = None,
) -> "tuple[Connection, subprocess.Popen[bytes]]":
    """Start `module:function` in a process at the other end of a pipe.

    The function is called with its end of the pipe and `descriptors`. Unlike `multiprocessing`, this does not import
    the main module again: that of a Dagster run imports all of Dagster, and a script that reads a file may have no
    guard. In its own process `group` (0), Ctrl-C does not reach it. A `confined` process reaches nothing else, from
    before the module is imported.
    """
    closed = ""
    if confined is not None:
        from kopub.confinement import bare_environment

        closed, environment = json.dumps(confined), bare_environment()
    # Without the folders of packages in others: OpenCV adds its own, with a `typing`, while another thread imports it.
    path = list(sys.path)
    modules = [
        folder for folder in path if str(Path(folder).parent) not in path or not Path(folder, "__init__.py").exists()
    ]
    ours, theirs = Pipe()
    # After this block only the child holds its end, so its death closes the pipe.
    with theirs:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _BOOT,
                main,
                str(theirs.fileno()),
                " ".join(map(str, descriptors)),
                closed,
                *modules,
            ],
            stdin=subprocess.DEVNULL,
            env=environment,
            pass_fds=(theirs.fileno(), *descriptors),
            process_group=group,
        )
    return ours, process


def end_child(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a process that was told to end; kill it after `STOP_SECONDS`."""
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def how_it_ended(code: int) -> str:
    """Return the signal or status with which a process ended, from `Popen.returncode`."""
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with status {code}"


class LostAnswer(Exception):
    """The reason why a request to a child process has no answer.

    With `is_certain`, the same request would end like this again.
    """

    def __init__(self, reason: str, is_certain: bool = False) -> None:
        super().__init__(reason)
        self.is_certain = is_certain


_ATTEMPTS = 2
"""Attempts at a request whose process crashes, because the machine may have run out of memory the first time."""
OF_REQUEST = {getattr(signal, name) for name in ("SIGABRT", "SIGFPE", "SIGILL", "SIGSEGV", "SIGTRAP")}
"""Signals with which a process ends itself: if twice, the request is to blame."""


_MOST_KEPT = 128 << 20
"""Bytes that an idle process may keep while other work takes its place."""


def private_memory(process: int, parent: bytes = b"") -> int:
    """Return the bytes that a process and its descendants use, but for mapped files.

    0 if the process has ended, or the system does not say. `parent` is the command line of its parent.
    """
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes()
        _, resident, shared, *_ = map(int, Path(f"/proc/{process}/statm").read_text().split())
        threads = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(child) for thread in threads for child in (thread / "children").read_text().split()]
    except OSError:
        return 0
    # A process that starts another program shares its parent's memory until then.
    own = 0 if command == parent else (resident - shared) * os.sysconf("SC_PAGESIZE")
    return own + sum(private_memory(child, command) for child in children)


class ChildWorker:
    """A child process that answers one request at a time.

    It is started with its first request, and again after a crash. `main` is called, and `confined`, as `start_child`
    says; an answer takes at most `seconds`.
    """

    def __init__(self, main: str, seconds: float, confined: "Reach | None" = None) -> None:
        self._main, self._seconds, self._confined = main, seconds, confined
        self._cancelled = False
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, request: object, file: BinaryIO | None = None) -> Any:
        """Return the answer to a request, both picklable. Raises `LostAnswer`.

        The child, which may be unable to open the `file`, gets its descriptor by `recv_handle`.
        """
        failure = LostAnswer("nobody wants it any more")
        for attempt in range(_ATTEMPTS):
            if self._cancelled:
                break
            process = self._process or self._start()
            with suppress(EOFError, OSError):
                self._connection.send(request)
                if file is not None:
                    send_handle(self._connection, file.fileno(), process.pid)
                if not self._connection.poll(self._seconds):
                    self.end()
                    raise LostAnswer(Reason("given up after {seconds:,.0f} seconds", seconds=self._seconds))
                return self._connection.recv()
            end_child(process)
            self.end()
            code = process.wait()
            if -code == signal.SIGPROF:  # from the timer of its computing time
                raise LostAnswer("it takes too long to compute", is_certain=True)
            is_certain = attempt > 0 and -code in OF_REQUEST
            failure = LostAnswer(Reason("the process that read it ended {how}", how=how_it_ended(code)), is_certain)
        raise failure

    def cancel(self) -> None:
        """Kill the process; a thread waiting for its answer gets a `LostAnswer`."""
        self._cancelled = True
        if (process := self._process) is not None:
            process.kill()

    def shrink(self) -> None:
        """End a process that keeps much memory."""
        if self._process is not None and private_memory(self._process.pid) > _MOST_KEPT:
            self.end()

    def end(self) -> None:
        """Kill the process, if there is one."""
        if self._process is None:
            return
        self._connection.close()
        self._process.kill()
        self._process.wait()
        self._process = None

    def _start(self) -> "subprocess.Popen[bytes]":
        self._connection, self._process = start_child(self._main, confined=self._confined)
        return self._process


class ChildPool:
    """`count` child processes that threads share; the arguments are those of `ChildWorker`."""

    def __init__(self, main: str, count: int, seconds: float, confined: "Reach | None" = None) -> None:
        self.workers = [ChildWorker(main, seconds, confined) for _ in range(count)]
        # The worker that finished last is used first, so that no process starts while another is idle.
        self._idle: LifoQueue[ChildWorker] = LifoQueue()
        for worker in self.workers:
            self._idle.put(worker)

    def ask(self, request: object, file: BinaryIO | None = None) -> Any:
        """Return the answer of the next idle worker. Raises `LostAnswer`."""
        worker = self._idle.get()
        try:
            return worker.ask(request, file)
        finally:
            self._idle.put(worker)

    @contextmanager
    def place(self) -> Iterator[None]:
        """Do other work in the place of a worker, whose process keeps little memory meanwhile."""
        worker = self._idle.get()
        try:
            worker.shrink()
            yield
        finally:
            self._idle.put(worker)

    def cancel(self) -> None:
        for worker in self.workers:
            worker.cancel()

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


def answer_requests(connection: Connection, answer: Callable[[Any], object]) -> None:
    """Answer the requests of a `ChildWorker` until the parent closes the pipe or exits."""
    # Ctrl-C reaches all processes of a terminal; the parent then closes the pipes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(EOFError, ConnectionError):
        while True:
            connection.send(answer(connection.recv()))


_CACHE = "~/.cache/kopub"
_WRITE_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"
_BYTECODE = "PYTHONPYCACHEPREFIX"
_INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"


def lasting_caches(environ: Mapping[str, str], packages: Iterable[Path]) -> dict[str, str]:
    """Return the additional variables for a process that imports `packages`.

    Packages are given by their folders; `environ` has the present variables. Without compiled Python files (an image
    that sets PYTHONDONTWRITEBYTECODE, or an installer that compiles nothing) each import of PyTorch or vLLM takes two
    to three times as long. Python writes them beside the sources, or into the user's cache folder if it must not.
    """
    variables = {_WRITE_NO_BYTECODE: ""}
    for package in packages if _BYTECODE not in environ else ():
        if not any(package.glob("__pycache__/*.pyc")) and not os.access(package, os.W_OK):
            variables[_BYTECODE] = str(Path(_CACHE, "bytecode").expanduser())
    if _INDUCTOR not in environ:
        # The default is in /tmp, which is emptied when the machine restarts.
        variables[_INDUCTOR] = str(Path(_CACHE, "inductor").expanduser())
    return variables


def beside_program(program: Path, package: str) -> list[Path]:
    """Return the folders of a package in the environment of a program."""
    return [*program.parent.parent.glob(f"lib/python3*/site-packages/{package}")]


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -2, -3, -8
"""Parameters of `mallopt`, as named in glibc's malloc.h."""
ARENAS = 2
"""Heaps that glibc shares among threads: by default 8 per core, each of which keeps what its threads once needed."""
_LARGE = 256 * 1024
"""Bytes from which a block is mapped on its own and given back when freed. glibc would raise this to 32 MB."""

_LARGEST_KEPT = 32 << 20
"""Bytes of the largest block that glibc can keep: 11 million pixels in colour; A4 at 300 dpi has 8.7 million."""
_HEAP = 64 << 20
"""Bytes of a thread's heap, of which it may have several."""


def keep_little() -> None:
    """Make this process's allocators keep little freed memory.

    Call it before Arrow is loaded. Arrow then allocates with the C library: its own mimalloc keeps 40 MB. The analyser
    of Korean has another mimalloc. Both read the environment when they are loaded.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_ARENA_MAX, ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE)


def keep_blocks() -> None:
    """Make the allocator keep freed blocks of up to 32 MB.

    They are for threads that soon need as much again. Otherwise glibc returns memory of a thread's heap once more than
    twice the largest block is free in it, and each further heap once all of it is free. This would happen for every
    page, for which a thread decodes 26 MB and needs as much again on the way: the system would clear up to 19,000
    pieces of 4 KB for the next page while the threads wait for one another. `give_back` returns the kept memory, which
    is at most what was needed at once.
    """
    if (libc := _glibc()) is not None:
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)
        libc.mallopt(_M_TRIM_THRESHOLD, 2 * _HEAP)
        libc.mallopt(_M_TOP_PAD, _HEAP)


def give_back() -> None:
    """Give back the memory that is free between used blocks.

    Call it after work that made many small blocks. It takes some ms.
    """
    if (libc := _glibc()) is not None:
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
