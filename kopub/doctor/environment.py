"""The examination of a machine for a profile: engines, servers and weights."""

import importlib
import importlib.metadata
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kopub.config.memory import memory_demands, memory_sums
from kopub.config.settings import Settings
from kopub.doctor import checks
from kopub.doctor.checks import Finding, ok, problem, warning
from kopub.embedding.base import Embedder
from kopub.engine import INSTALL, Engine
from kopub.errors import EngineError, HubError, KopubError
from kopub.parallel import usable_cores
from kopub.release.versions import require_place
from kopub.vllm.lease import list_servers
from kopub.vllm.served_engine import ServedEngine
from kopub.vllm.server import VLLMServer
from kopub.vllm.server_fields import listed_flags, serve_arguments, unknown_flags
from kopub.vllm.supervisor import replica
from kopub.weights.fetch import CachedFiles, check_cache, free_bytes
from kopub.weights.hub import (
    UNREACHABLE,
    RepositoryFile,
    Weights,
    ask_hub,
    cache_folder,
    is_offline,
    managed_server,
    pinned_weights,
    read_cached_list,
    server_of,
)

Step = Callable[[str, int], None]
_SHM_FLAG = "torch_shm"
_LIBRARIES = ("cv2", "pyarrow", "datasets")
"""Modules with native libraries, for which a machine may lack something."""


def examine(
    settings: Settings, probe: Callable[[], Mapping[str, Any]] = checks.ask_torch, step: Step = lambda *_: None
) -> Iterator[Finding]:
    """Yield the finding of every check that concerns the profile, one by one.

    `probe` asks torch for its GPUs. `step` is called for each file of weights.
    """
    engines = settings.engines
    managed = managed_servers(engines)
    url = settings.store.url
    tables = settings.home if "://" in url else Path(url)
    yield checks.check_python()
    yield _libraries()
    yield checks.check_office_files()
    yield checks.check_pdf_fonts()
    yield checks.check_confinement()
    yield checks.check_home(settings.home)
    yield checks.check_store(url)
    yield _release(settings)
    yield checks.check_room_for_tables(tables, settings.corpus.manifest.rows, free_bytes)
    yield checks.check_open_files(checks.open_file_limit(), _requests(engines))
    for section, engine in engines.items():
        yield from _engine(section, engine)
    if settings.card is not None:
        sums, fits = memory_sums(engines, settings.card)
        check = f"memory of {settings.card.gpu}"
        if not fits:
            yield problem(check, sums, "lower gpu_memory_utilization, kv_cache_memory or layout.batch_size")
        elif sums:
            yield ok(check, sums)
    if checks.need_gpus(engines):
        seen = probe()
        yield checks.check_gpus(seen)
        yield checks.check_compiler()
        yield checks.check_headers()
        if "problem" not in seen:
            warm = [server.specification.model for server in list_servers()]
            yield from checks.check_memory(memory_demands(engines, len(seen["gpus"])), seen["gpus"], warm)
    elif idle := checks.find_idle_card(engines):
        yield idle
    yield from check_programs(engines)
    yield from check_shared_gpus(engines)
    yield from check_external(engines)
    if any(_SHM_FLAG in server.extra_flags for server in managed.values()):
        yield checks.check_shared_memory()
    yield from check_weights(pinned_weights(engines), step)


def _release(settings: Settings) -> Finding:
    """Check that the release may be written where the settings say."""
    try:
        require_place(settings.release, settings.corpus, settings.store.url)
    except KopubError as error:
        return problem("release", str(error), "set release.folder in the profile, or KOPUB_RELEASE__FOLDER")
    return ok("release", f"{settings.release.folder} is new, empty or a release")


def _engine(section: str, engine: Engine) -> Iterator[Finding]:
    """Yield what the engine reports as missing, and what it cannot do."""
    name = engine.code_version.bare_name
    if isinstance(engine, Embedder) and engine.passage_dim:
        # Its vectors of pages may be those of another engine.
        name = engine.passage_recipe()["engine"]
    lines = engine.lacks()
    if not lines:
        yield ok(section, f"{name} has what it needs here")
        for limit in engine.limits:
            yield ok(section, limit)
    for line in lines:
        says, _, do = line.partition(": ")
        yield problem(section, says, do)
    for line in engine.advises():
        says, _, do = line.partition(": ")
        yield warning(section, says, do)


def _libraries() -> Finding:
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:
            do = "install the named library, or the package again: pip install -c requirements.lock -e ."
            return problem("libraries", f"{name} cannot be loaded: {error}", do)
    return ok("libraries", f"{', '.join(_LIBRARIES)} load")


def _requests(engines: Mapping[str, Engine]) -> int:
    """Return the most requests that one client process has in flight."""
    most = 0
    for engine in engines.values():
        if isinstance(engine, ServedEngine):
            most = max(most, engine.slots // (engine.processes or max(1, usable_cores() // 4)))
    return most


_OWN_COMMAND = ["vllm", "serve"]
"""The command of a server installed in this environment."""


def check_programs(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """Check the release and the flags of each installed managed server."""
    flags: dict[tuple[str, ...], frozenset[str]] = {}
    for section, server in managed_servers(engines).items():
        check = f"{section} server"
        try:
            if server.find_program() is None:
                continue  # its engine reports this
            program = server.program()
            release = installed_release(server.command)
            if server.version and release and release != server.version.partition("+")[0]:
                do = f"pip install vllm=={server.version}, or change {section}.server.version"
                yield problem(check, f"vLLM {release} is installed, and the profile was made for {server.version}", do)
                continue
            if program not in flags:
                flags[program] = listed_flags(program)
            unknown = unknown_flags(serve_arguments(server), flags[program])
        except EngineError as error:
            yield problem(check, str(error), f"{INSTALL}; or change the server's `command`")
            continue
        if unknown:
            do = f"install vllm=={server.version or '0.32.0'}, or take them out of {section}.server"
            yield problem(check, f"this vLLM does not know {', '.join(unknown)}", do)
        else:
            yield ok(check, f"{program[0]} {release or ''} knows every flag of the profile".replace("  ", " "))


def check_shared_gpus(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """Check that replicas on one GPU can work at the same time."""
    for section, server in managed_servers(engines).items():
        if not server.mps:
            continue
        if (program := shutil.which(replica.PROGRAM)) is not None:
            yield ok(f"{section} MPS", f"replicas share a GPU by {program}")
        else:
            do = f"install it (Debian: nvidia-compute-utils), or set {section}.server.mps to false"
            yield warning(f"{section} MPS", f"replicas take turns on a GPU: {replica.PROGRAM} is not installed", do)


def check_external(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """Check that each external server answers and serves the model."""
    for section, engine in engines.items():
        server = server_of(engine)
        if server is None or server.mode != "external":
            continue
        try:
            with server.lease() as endpoint:
                yield ok(f"{section} server", f"{', '.join(endpoint.urls)} serves {server.model}")
        except EngineError as error:
            yield problem(f"{section} server", str(error), f"start it, or correct {section}.server.urls")


def managed_servers(engines: Mapping[str, Engine]) -> dict[str, VLLMServer]:
    """Return the servers that this platform starts, by section."""
    servers = {section: managed_server(engine) for section, engine in engines.items()}
    return {section: server for section, server in servers.items() if server is not None}


def installed_release(command: Sequence[str]) -> str | None:
    """Return the release of vLLM in this environment, if that is what the command runs."""
    if list(command) != _OWN_COMMAND:
        return None
    try:
        return importlib.metadata.version("vllm").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


_PULL = "kopub pull"


def check_weights(pins: Sequence[Weights], step: Step = lambda *_: None) -> Iterator[Finding]:
    """Check the Hub, each set of weights, and the disk space for what is missing."""
    if not pins:
        return
    lists: dict[Weights, list[RepositoryFile]] = {}
    refused: dict[Weights, str] = {}
    for pin in pins if not is_offline() else ():
        try:
            lists[pin] = ask_hub(pin)
        except HubError as error:
            refused[pin] = str(error).removeprefix(f"{pin}: ")
            if refused[pin].startswith(UNREACHABLE):
                break
    caches = {pin: check_cache(pin, lists.get(pin) or read_cached_list(pin), step) for pin in pins}
    cached = all(files.is_whole for files in caches.values())
    yield _hub(list(refused.values()), cached)
    online = {pin for pin in pins if pin in lists}
    for pin, files in caches.items():
        refusal = refused.get(pin, "")
        yield _weights(pin, files, pin in online, "" if refusal.startswith(UNREACHABLE) else refusal)
    missing = sum(files.bytes_missing for files in caches.values())
    if missing:
        free = free_bytes(cache_folder())
        says = f"{free / 1e9:.0f} GB free for weights in {cache_folder()}; {missing / 1e9:.1f} are to be fetched"
        if free > missing:
            yield ok("disk for weights", says)
        else:
            yield problem("disk for weights", says, "free some space, or set HF_HUB_CACHE to another disk")


def _hub(refusals: Sequence[str], cached: bool) -> Finding:
    if is_offline():
        return ok("hub", f"HF_HUB_OFFLINE is set: only {cache_folder()} is searched")
    silent = [line for line in refusals if line.startswith(UNREACHABLE)]
    if not silent:
        return ok("hub", "it answers")
    reason, _, do = silent[0].rpartition(": ")
    if cached:
        return warning("hub", f"{reason}; the weights are in its cache", "HF_HUB_OFFLINE=1 avoids waiting for it")
    return problem("hub", reason, do)


def _weights(pin: Weights, files: CachedFiles, listed: bool, refused: str) -> Finding:
    check = f"{' and '.join(pin.sections)} weights"
    if refused:
        reason, _, do = refused.partition(": ")
        return problem(check, f"{pin}: {reason}", do)
    if files.damaged:
        name, what = next(iter(files.damaged.items()))
        return problem(check, f"{pin}: {name} is damaged ({what})", f"{_PULL} fetches it again")
    if files.is_whole:
        proof = "sizes and hashes are the Hub's" if listed else "hashes are those that the cache names them by"
        return ok(check, f"{pin}: {files.bytes / 1e9:.2f} GB, {len(files.whole)} files; {proof}")
    begun = f", of which {files.partial_bytes / 1e9:.2f} were begun" if files.partial_bytes else ""
    size = f"{files.bytes_missing / 1e9:.2f} GB" if files.bytes_missing else ", ".join(files.missing)
    says = f"{pin}: {size} are not in the cache{begun}"
    if listed:
        return warning(check, f"{says}; the first run fetches them while its server starts", f"{_PULL} does it now")
    return problem(check, says, f"{_PULL} where there is a network, or copy the Hub's cache to this machine")
