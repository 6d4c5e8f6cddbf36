"""The examination of the machine for a profile, check by check."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from resources.config.settings import Settings
from resources.doctor import gpus, machine, servers
from resources.doctor.finding import Finding, ok, problem
from resources.doctor.servers import Step, weights
from resources.engine import Engine
from resources.errors import KopubError
from resources.release.place import require_place
from resources.vllm.running_servers import servers as running_servers
from resources.vllm.served_engine import ServedEngine
from resources.weights.fetch import free_bytes
from resources.weights.pinned import pinned_weights

_SHM_FLAG = "torch_shm"
_LIBRARIES = ("cv2", "pyarrow", "sklearn", "datasets")
"""Modules with libraries of their own, which a machine may lack something for."""


def examine(
    settings: Settings, probe: Callable[[], Mapping[str, Any]] = gpus.probe, step: Step = lambda *_: None
) -> Iterator[Finding]:
    """Yield every check that concerns the profile, as it is made. `probe` asks torch.

    `step` is told of each weights file.
    """
    engines = settings.engines
    managed = servers.managed(engines)
    yield machine.python()
    yield _libraries()
    yield machine.office_files()
    yield machine.home(settings.home)
    yield machine.store(settings.store.url)
    yield _release(settings)
    yield machine.room_for_tables(_tables(settings), settings.corpus.manifest.rows, free_bytes)
    yield machine.open_files(machine.open_file_limit(), _requests(engines))
    for section, engine in engines.items():
        yield from _engine(section, engine)
    if gpus.are_used(engines):
        seen = probe()
        yield gpus.visible_gpus(seen)
        yield machine.compiler()
        yield machine.headers()
        if "problem" not in seen:
            warm = [server.specification.model for server in running_servers()]
            yield from gpus.memory(gpus.memory_demands(engines, len(seen["gpus"])), seen["gpus"], warm)
    elif idle := gpus.idle_card(engines):
        yield idle
    yield from servers.programs(engines)
    yield from servers.shared_gpus(engines)
    yield from servers.external(engines)
    if any(_SHM_FLAG in server.extra_flags for server in managed.values()):
        yield machine.shared_memory()
    yield from weights(pinned_weights(engines), step)


def _release(settings: Settings) -> Finding:
    """Return whether the release may be written where the settings say."""
    try:
        require_place(settings.release, settings.corpus, settings.store.url)
    except KopubError as error:
        return problem("release", str(error), "set release.folder in the profile, or KOPUB_RELEASE__FOLDER")
    return ok("release", f"{settings.release.folder} is new, empty or a release")


def _engine(section: str, engine: Engine) -> Iterator[Finding]:
    """Yield what an engine says that it lacks."""
    name = engine.code_version.name.rpartition(".")[2]
    lines = engine.lacks()
    if not lines:
        yield ok(section, f"{name} has what it needs here")
    for line in lines:
        says, _, do = line.partition(": ")
        yield problem(section, says, do)


def _libraries() -> Finding:
    import importlib

    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:
            do = "install the named library, or the package again: pip install -c requirements.lock -e ."
            return problem("libraries", f"{name} cannot be loaded: {error}", do)
    return ok("libraries", f"{', '.join(_LIBRARIES)} load")


def _requests(engines: Mapping[str, Engine]) -> int:
    """Most requests that one client process of a served engine has in flight."""
    found = [0]
    for engine in engines.values():
        if isinstance(engine, ServedEngine):
            found.append(engine.slots // (engine.processes or max(1, (os.cpu_count() or 1) // 4)))
    return max(found)


def _tables(settings: Settings) -> Path:
    """Return where tables lie on this machine; with an object store, where they are worked on."""
    url = settings.store.url
    return settings.home if "://" in url else Path(url)
