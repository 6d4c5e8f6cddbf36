"""Client processes of a model server: what they import and how they end."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import psutil
import pytest

from kopub.embedding.qwen3_vl import Qwen3VLEmbedder
from kopub.errors import EngineError
from kopub.figures.noters import ChatNoter, DeepSeekNoter
from kopub.recognition.deepseek_layout.detector import DeepSeekOcrLayout
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.vllm.client.client import Client, RetryPolicy
from kopub.vllm.client.worker_pool import WorkerPool, boot_process
from kopub.vllm.client.worker_process import NewJob, WarmUp, WorkerFailure, WorkerSettings, run_worker
from kopub.vllm.served_engine import ServedEngine
from kopub.vllm.server import VLLMServer
from tests.support.installed import needs
from tests.support.processes.living import lives
from tests.support.processes.pool_process import COMMAND, Endless, NoServer, ProcessNamer, SlowToClose, slow_to_exit
from tests.support.reporting_engines import RESIZED, embedder_reports, recognizer_reports
from tests.support.waiting import SOON, until

pytestmark = pytest.mark.services

ROOT = Path(__file__).resolve().parents[2]
WAITING = """
import time
from kopub.vllm.client.worker_pool import boot_process
waiting = [boot_process() for _ in range(2)]
time.sleep(3600)
"""
QUICK = 8.0
"""Seconds after which a process has not ended by itself: it is killed after 10."""
READY_MODULES = 700
"""Modules until a client process asks for its first job: PyTorch or Dagster alone bring more. Seconds are measured by
`benchmarks.reading.client_start`."""


@pytest.mark.parametrize("engine", [DeepSeekOcrLayout, GlmOcrRecognizer, Qwen3VLEmbedder, ChatNoter, DeepSeekNoter])
def test_what_a_client_process_imports_while_it_waits_is_there(engine: type[ServedEngine]):
    """The import of a missing module fails silently while the process waits."""
    own = [name for name in engine.worker_modules if name.startswith("resources.")]
    assert [name for name in own if find_spec(name) is None] == []


def test_a_recognizer_s_client_process_is_light(tmp_path: Path) -> None:
    for report in recognizer_reports(tmp_path).values():
        assert report.ready.modules < READY_MODULES
        assert report.prepared.heavy == ()


@needs("torch", "tokenizers")
def test_an_embedder_s_client_process_is_light_until_it_resizes_a_page(tmp_path: Path) -> None:
    for name, report in embedder_reports(tmp_path).items():
        assert report.ready.modules < READY_MODULES
        assert report.ready.heavy == ()
        assert report.prepared.heavy == (("torch",) if name == RESIZED else ())


@pytest.fixture
def pool_process(tmp_path: Path) -> Any:
    """Start a pool of two workers in its own process group, as a shell does."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()


def started(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    return until(lambda: len(found := psutil.Process(process.pid).children()) == 2 and found)


def at_work(folder: Path) -> bool:
    return len(list(folder.iterdir())) >= 4


@pytest.mark.parametrize("moment", ["starting", "working"])
def test_ctrl_c_ends_the_client_processes_quietly(
    moment: str, pool_process: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    workers = started(pool_process)
    if moment == "working":
        until(lambda: at_work(tmp_path))
    os.killpg(pool_process.pid, signal.SIGINT)
    assert pool_process.communicate(timeout=SOON)[1] == "interrupted\n"
    assert pool_process.returncode == 130
    until(lambda: not any(worker.is_running() for worker in workers))


def test_a_client_process_ignores_ctrl_c(pool_process: "subprocess.Popen[str]", tmp_path: Path) -> None:
    workers = started(pool_process)
    until(lambda: at_work(tmp_path))
    for worker in workers:
        worker.send_signal(signal.SIGINT)
    os.kill(pool_process.pid, signal.SIGINT)
    assert pool_process.communicate(timeout=SOON)[1] == "interrupted\n"
    assert (tmp_path / "closed").exists()


def test_the_client_processes_of_a_killed_run_end_by_themselves(
    pool_process: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    workers = started(pool_process)
    until(lambda: at_work(tmp_path))
    pool_process.kill()
    until(lambda: not any(map(lives, workers)))
    assert pool_process.communicate(timeout=SOON)[1] == ""
    assert (tmp_path / "closed").exists()


def test_the_processes_that_wait_in_a_killed_run_end_by_themselves() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", WAITING], cwd=ROOT, env=environment, text=True) as run:
        waiting = started(run)
        run.kill()
    until(lambda: not any(map(lives, waiting)))


def test_processes_that_are_up_already_are_used_first(tmp_path: Path) -> None:
    others = psutil.Process().children()
    spares = [boot_process() for _ in range(2)]
    for spare in spares:
        spare.send(WarmUp(tuple(partial(import_module, name) for name in ("no_such_module", "sqlite3"))))
    waiting = [process for process in psutil.Process().children() if process not in others]
    pool = WorkerPool(NoServer(), ProcessNamer, lambda job, reason: job, 4, RetryPolicy(), 2, spares=spares)
    found = set(pool.run(range(8)))
    assert found <= {(process.pid, True) for process in waiting}
    assert spares == []
    until(lambda: not any(process.is_running() for process in waiting))


def test_a_run_does_not_wait_until_its_processes_have_ended() -> None:
    pool = WorkerPool(NoServer(), SlowToClose, lambda job, reason: job, 4, RetryPolicy(), 2)
    found = [result[0] for result in pool.run(range(8)) if isinstance(result, tuple)]
    assert all(psutil.pid_exists(process) for process in found)
    for thread in pool.leaving:
        thread.join()
    assert not any(psutil.pid_exists(process) for process in found)


def test_a_process_whose_work_is_closed_takes_no_interpreter_down() -> None:
    process = boot_process()
    process.send(WarmUp((slow_to_exit,)))
    started = time.monotonic()
    process.close()
    process.join()
    assert time.monotonic() - started < QUICK


def test_processes_that_nobody_needed_end_with_the_step_whatever_they_import() -> None:
    others = psutil.Process().children()
    server = VLLMServer(model="glm", revision="r1", mode="external", urls=["http://127.0.0.1:9"], images_per_prompt=0)
    engine = GlmOcrRecognizer.model_validate({"server": server, "processes": 2})
    for _ in range(2):
        engine.prepare()
    waiting = [process for process in psutil.Process().children() if process not in others]
    assert len(waiting) == 2
    engine.prepare_workers((), partial(time.sleep, SOON))
    started = time.monotonic()
    engine.release()
    assert time.monotonic() - started < QUICK
    assert not any(process.is_running() for process in waiting)


def test_a_handler_that_a_process_cannot_import_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_a_script = type("OfAScript", (Endless,), {"__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "OfAScript", of_a_script, raising=False)
    pool = WorkerPool(NoServer(), partial(of_a_script, tmp_path), lambda job, reason: job, 4, RetryPolicy(), 2)
    with pytest.raises(EngineError, match=r"cannot load its handler.*in a module that can be imported"):
        list(pool.run([1]))
    assert "Traceback" not in capfd.readouterr().err


class ClosingPipe:
    """A pipe with one job, which is closed while the worker waits for the next."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._jobs = [NewJob(0, "job")]
        self._ended = threading.Event()

    @property
    def closed(self) -> bool:
        return self._ended.is_set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def recv(self) -> NewJob:
        if self._jobs:
            return self._jobs.pop()
        self._ended.wait()
        raise TypeError("'NoneType' object cannot be interpreted as an integer")  # as Connection.recv does


class Refusing:
    """A handler that ends the run on its first job."""

    def prepare(self, job: Any) -> Any:
        raise EngineError("it cannot run here")

    async def finish(self, ready: Any, client: Client) -> Any:
        raise AssertionError

    def close(self) -> None:
        pass


def test_a_worker_that_closes_its_pipe_while_it_listens_ends_quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    others = set(threading.enumerate())
    pipe: Any = ClosingPipe()
    run_worker(pipe, Refusing, WorkerSettings(4, RetryPolicy(), 1))
    until(lambda: set(threading.enumerate()) <= others)
    assert not raised
    assert [message.reason for message in pipe.sent if isinstance(message, WorkerFailure)] == ["it cannot run here"]
