"""PP-DocLayoutV3 in a real process of its own, with a tiny checkpoint."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from kopub import processes
from kopub.errors import EngineError
from kopub.folders import ROOT
from kopub.layout.pp_doclayout import page_regions, process
from kopub.layout.pp_doclayout.detector import PPDocLayout
from kopub.pages.page import Page
from kopub.states import State
from tests.support.checkpoints.tiny_checkpoints import save_pp_doclayout
from tests.support.drawn_pages import some_pages
from tests.support.installed import imported
from tests.support.layouts import assert_alike, by_id
from tests.support.waiting import SOON, until

torch = imported("torch")
imported("transformers.models.pp_doclayout_v3")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pp_doclayout(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def make(folder: Path) -> Iterator[Callable[..., PPDocLayout]]:
    """Return a factory of resources on the CPU that stops their processes after the test."""
    every: list[PPDocLayout] = []

    def made(**changed: Any) -> PPDocLayout:
        plain = {"device": "cpu", "dtype": "float32", "compile": False, "batch_size": 4, "decode_threads": 2}
        every.append(PPDocLayout(**{"repo": str(folder), **plain, **changed}))
        return every[-1]

    yield made
    for each in every:
        each.release()
    until(lambda: not workers())


def workers(of: int | None = None) -> list[psutil.Process]:
    """Return the layout model processes that a process, by default this one, has started."""
    found = []
    for child in psutil.Process(of).children(recursive=True):
        with suppress(psutil.ZombieProcess, psutil.NoSuchProcess):
            found += [child] if "pp_doclayout.process" in " ".join(child.cmdline()) else []
    return found


def counts(resource: PPDocLayout) -> dict[str, float | str]:
    """Return the resource's last report without times and speeds."""
    report = resource.report()
    return {name: value for name, value in report.items() if not name.startswith(("seconds", "pages_per_second"))}


@pytest.mark.parametrize("device", ["cpu", "cpu,cpu"])
def test_it_finds_what_the_model_finds_here(make: Callable[..., PPDocLayout], device: str) -> None:
    pages = [*some_pages(11), Page("broken", b"no image")]
    here, apart = (make(device=device, decode_threads=1, own_process=own) for own in (False, True))
    expected, found = by_id(here.detect(pages)), by_id(apart.detect(pages))
    assert_alike(found, expected)
    assert found["broken"].state is State.QUARANTINED
    assert counts(apart) == counts(here)
    assert 0 < float(apart.report()["seconds_model"]) < float(apart.report()["seconds_total"]) * len(device.split(","))


def test_the_rules_for_regions_are_no_work_of_the_run(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules would hold the GIL that the run's decoding threads need."""

    def here(*_: Any) -> Any:
        raise AssertionError("rules are applied in the run's process")

    monkeypatch.setattr(page_regions, "postprocess", here)
    resource = make()
    assert {layout.state for layout in resource.detect(some_pages(4))} == {State.OK}
    assert float(resource.report()["seconds_post"]) > 0
    # The worker's own threads must not take cores from the decoding threads either.
    assert {"OPENCV_FOR_THREADS_NUM": "1", "OMP_WAIT_POLICY": "PASSIVE"}.items() <= workers()[0].environ().items()


def test_one_process_serves_a_run_and_ends_with_its_last_step(make: Callable[..., PPDocLayout]) -> None:
    resource = make()
    resource.prepare()
    until(workers)
    first = by_id(resource.detect(some_pages(3)))
    (process,) = workers()
    assert_alike(by_id(resource.detect(some_pages(3))), first)
    assert workers() == [process]
    resource.release()
    until(lambda: not process.is_running())


def test_the_run_imports_no_torch(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "from kopub.layout.pp_doclayout.detector import PPDocLayout\n"
        "from tests.support.drawn_pages import some_pages\n"
        f"layout = PPDocLayout(repo={str(folder)!r}, device='cpu', dtype='float32', compile=False)\n"
        "print(sorted(str(each.state) for each in layout.detect(some_pages(2))))\n"
        "layout.release()\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    made = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=SOON, check=False)
    assert made.stdout.splitlines() == ["['ok', 'ok']", "[]"], made.stderr


def test_a_process_that_is_killed_ends_the_step_with_its_reason_and_the_next_one_works(
    make: Callable[..., PPDocLayout],
) -> None:
    resource = make(batch_size=1, decode_threads=1)

    def pages() -> Iterator[Page]:
        for number, page in enumerate(some_pages(40)):
            if number == 20:
                workers()[0].kill()
            yield page

    came = []
    with pytest.raises(EngineError, match=r"process of the layout model ended by SIGKILL; .*out-of-memory killer"):
        came.extend(resource.detect(pages()))
    assert {layout.state for layout in came} <= {State.OK}
    assert len(by_id(resource.detect(some_pages(2)))) == 2


def test_one_that_is_killed_while_it_loads_says_so(make: Callable[..., PPDocLayout]) -> None:
    resource = make()
    resource.prepare()
    until(workers)
    workers()[0].kill()
    with pytest.raises(EngineError, match="process of the layout model ended by SIGKILL"):
        list(resource.detect(some_pages(1)))


def test_what_keeps_the_model_from_loading_is_told_here(make: Callable[..., PPDocLayout], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no PP-DocLayoutV3 weights in .*config\.json and model\.safetensors"):
        list(make(repo=str(tmp_path)).detect(some_pages(1)))
    if not torch.cuda.is_available():
        with pytest.raises(EngineError, match="no CUDA GPU is visible here"):
            list(make(device="cuda").detect(some_pages(1)))


def test_nobody_waits_for_one_that_is_not_needed_after_all(
    make: Callable[..., PPDocLayout], begins_with: Callable[[str], None]
) -> None:
    begins_with("import time\ntime.sleep(5)\n")
    resource = make()
    resource.prepare()
    until(workers)
    resource.release()
    assert workers()
    until(lambda: not workers())


def test_nobody_waits_for_its_end_and_one_that_does_not_end_is_killed(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "STOP_SECONDS", 2.0)
    resource = make()
    assert len(by_id(resource.detect(some_pages(1)))) == 1
    (process,) = workers()
    process.suspend()
    resource.release()
    assert process.is_running()
    until(lambda: not process.is_running())


def test_it_keeps_what_it_compiles(make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without .pyc files each start would compile PyTorch's sources again."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)  # importing PyTorch in this process may set it
    make().prepare()
    until(workers)
    environment = workers()[0].environ()
    assert environment["PYTHONDONTWRITEBYTECODE"] == ""
    assert environment["TORCHINDUCTOR_CACHE_DIR"].endswith("kopub/inductor")


def test_it_ends_with_a_run_that_is_killed(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import time\n"
        "from kopub.layout.pp_doclayout.detector import PPDocLayout\n"
        f"layout = PPDocLayout(repo={str(folder)!r}, device='cpu', dtype='float32', compile=False, keep_loaded=True)\n"
        "list(layout.detect([]))\n"
        "print('loaded', flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "loaded\n"
        (process,) = workers(run.pid)
        run.kill()
    until(lambda: not process.is_running())


def test_a_package_that_cannot_be_imported_is_told_in_one_line(
    make: Callable[..., PPDocLayout], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "transformers.py").write_text("raise OSError('libtorch_cuda.so: cannot open\\nshared object file')\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(EngineError) as caught:
        list(make().detect(some_pages(1)))
    assert str(caught.value) == "the layout model cannot be loaded: OSError: libtorch_cuda.so: cannot open"
    assert "Traceback" in capfd.readouterr().err


@pytest.fixture
def begins_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that makes every started process run some Python first."""

    def begin(script: str) -> None:
        (tmp_path / "sitecustomize.py").write_text(script)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))

    return begin


@pytest.fixture
def forward(begins_with: Callable[[str], None]) -> Callable[[str], None]:
    """Return a function that replaces the forward pass in every started process."""

    def replaced(by: str) -> None:
        begins_with(
            "import time\n"
            "import kopub.layout.pp_doclayout.model as model\n"
            f"def forward(*_, **__):\n    {by}\n"
            "model.forward = forward\n"
        )

    return replaced


def test_an_error_of_the_model_stops_the_run_with_its_reason(
    make: Callable[..., PPDocLayout], forward: Callable[[str], None]
) -> None:
    forward("raise RuntimeError('CUDA error: an illegal memory access was encountered')")
    with pytest.raises(EngineError, match="the layout model stopped: RuntimeError: CUDA error: an illegal memory"):
        list(make().detect(some_pages(2)))


def test_an_answer_that_cannot_be_given_is_waited_for_by_nobody(
    make: Callable[..., PPDocLayout], begins_with: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    begins_with(
        "from kopub.layout.pp_doclayout.replicas import Replicas\nReplicas.memory_peak = property(lambda _: [][0])\n"
    )
    with pytest.raises(EngineError, match="the process of the layout model ended with status 1"):
        list(make().detect(some_pages(2)))
    assert "IndexError" in capfd.readouterr().err


def test_a_model_that_hangs_is_killed_and_the_next_one_works(
    make: Callable[..., PPDocLayout], forward: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    resource = make()
    forward("time.sleep(600)")
    list(resource.detect([]))  # loads the model
    monkeypatch.setattr(process, "_ANSWER_SECONDS", 1.0)
    with pytest.raises(EngineError, match="the layout model did not answer within 1 s, so its process was killed"):
        list(resource.detect(some_pages(2)))
    monkeypatch.undo()
    assert len(by_id(resource.detect(some_pages(2)))) == 2


def test_one_that_hangs_while_it_is_loaded_is_killed(
    make: Callable[..., PPDocLayout], begins_with: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    begins_with(
        "import time\n"
        "import kopub.layout.pp_doclayout.process as process\n"
        "process.import_packages = lambda *_: time.sleep(600)\n"
    )
    monkeypatch.setattr(process, "_ANSWER_SECONDS", 1.0)
    with pytest.raises(EngineError, match="the layout model was not loaded within 1 s, so its process was killed"):
        list(make().detect(some_pages(2)))


def test_a_run_that_is_stopped_does_not_wait_for_a_batch(
    make: Callable[..., PPDocLayout], forward: Callable[[str], None]
) -> None:
    """A batch takes long when the model is compiled first."""
    forward("time.sleep(600)")
    resource = make(batch_size=1, decode_threads=1)
    list(resource.detect([]))  # loads the model, so the pages before the last one are in flight
    stream = resource.detect([*some_pages(2), Page("text", b"hello")])
    assert next(stream).state is State.QUARANTINED
    started = time.monotonic()
    stream.close()  # type: ignore[attr-defined]
    resource.release()
    assert time.monotonic() - started < SOON
    until(lambda: not workers())
