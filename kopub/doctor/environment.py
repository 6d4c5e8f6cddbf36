"""The examination of a machine for a profile: engines, servers and weights."""

import importlib
import importlib.metadata
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kopub.config.memory import memory_demands, memory_sums
from kopub.config.settings import Settings
from kopub.doctor import checks
from kopub.doctor.checks import Finding, ok, problem, warning
from kopub.embedding.base import Embedder
from kopub.engine import INSTALL, Engine
from kopub.errors import EngineError, HubError, KopubError
from kopub.release.versions import require_place
from kopub.states import Reason, phrase
from kopub.vllm.client.worker_pool import process_count
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
    most_requests = 0
    for engine in engines.values():
        if isinstance(engine, ServedEngine):
            # Those that one client process has in flight.
            most_requests = max(most_requests, engine.slots // process_count(engine.processes))
    yield checks.check_open_files(checks.open_file_limit(), most_requests)
    for section, engine in engines.items():
        yield from _engine(section, engine)
    if settings.card is not None:
        sums, fits = memory_sums(engines, settings.card)
        check = phrase("memory of {gpu}", settings.card.gpu)
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
    return ok("release", "{folder} is new, empty or a release", folder=settings.release.folder)


def _engine(section: str, engine: Engine) -> Iterator[Finding]:
    """Yield what the engine reports as missing, and what it cannot do."""
    name = engine.code_version.bare_name
    if isinstance(engine, Embedder) and engine.passage_dim:
        # Its vectors of pages may be those of another engine.
        name = engine.passage_recipe()["engine"]
    lines = engine.lacks()
    if not lines:
        yield ok(section, "{engine} has what it needs here", engine=name)
        for limit in engine.limits:
            yield ok(section, limit)
    for line in lines:
        yield problem(section, *checks.parts_of(line))
    for line in engine.advises():
        yield warning(section, *checks.parts_of(line))


def _libraries() -> Finding:
    for name in _LIBRARIES:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:
            do = "install the named library, or the package again: pip install -c requirements.lock -e ."
            return problem("libraries", "{name} cannot be loaded: {error}", do, name=name, error=error)
    return ok("libraries", "{modules} load", modules=", ".join(_LIBRARIES))


_OWN_COMMAND = ["vllm", "serve"]
"""The command of a server installed in this environment."""


def check_programs(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """Check the release and the flags of each installed managed server."""
    flags: dict[tuple[str, ...], frozenset[str]] = {}
    for section, server in managed_servers(engines).items():
        check = phrase("{section} server", section)
        try:
            if server.find_program() is None:
                continue  # its engine reports this
            program = server.program()
            release = None
            if list(server.command) == _OWN_COMMAND:
                with suppress(importlib.metadata.PackageNotFoundError):
                    release = importlib.metadata.version("vllm").partition("+")[0]
            if server.version and release and release != server.version.partition("+")[0]:
                says = "vLLM {release} is installed, and the profile was made for {version}"
                do = "pip install vllm=={version}, or change {section}.server.version"
                yield problem(check, says, do, release=release, version=server.version, section=section)
                continue
            if program not in flags:
                flags[program] = listed_flags(program)
            unknown = unknown_flags(serve_arguments(server), flags[program])
        except EngineError as error:
            yield problem(check, "{reason}", "{remedy}; or change the server's `command`", reason=error, remedy=INSTALL)
            continue
        if unknown:
            do = "install vllm=={version}, or take them out of {section}.server"
            values = {"flags": ", ".join(unknown), "version": server.version or "0.32.0", "section": section}
            yield problem(check, "this vLLM does not know {flags}", do, **values)
        else:
            yield ok(
                check,
                "{program} knows every flag of the profile",
                program=" ".join(filter(None, (program[0], release))),
            )


def check_shared_gpus(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """Check that replicas on one GPU can work at the same time."""
    for section, server in managed_servers(engines).items():
        if not server.mps:
            continue
        if (program := shutil.which(replica.PROGRAM)) is not None:
            yield ok("{section} MPS", "replicas share a GPU by {program}", section=section, program=program)
        else:
            says = "replicas take turns on a GPU: {program} is not installed"
            do = "install it (Debian: nvidia-compute-utils), or set {section}.server.mps to false"
            yield warning("{section} MPS", says, do, section=section, program=replica.PROGRAM)


def check_external(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """Check that each external server answers and serves the model."""
    for section, engine in engines.items():
        server = server_of(engine)
        if server is None or server.mode != "external":
            continue
        try:
            with server.lease() as endpoint:
                urls = ", ".join(endpoint.urls)
                yield ok("{section} server", "{urls} serves {model}", section=section, urls=urls, model=server.model)
        except EngineError as error:
            do = "start it, or correct {section}.server.urls"
            yield problem("{section} server", "{reason}", do, section=section, reason=error)


def managed_servers(engines: Mapping[str, Engine]) -> dict[str, VLLMServer]:
    """Return the servers that this platform starts, by section."""
    servers: dict[str, VLLMServer] = {}
    for section, engine in engines.items():
        if (server := managed_server(engine)) is not None:
            servers[section] = server
    return servers


def check_weights(pins: Sequence[Weights], step: Step = lambda *_: None) -> Iterator[Finding]:
    """Check the Hub, each set of weights, and the disk space for what is missing."""
    if not pins:
        return
    lists: dict[Weights, list[RepositoryFile]] = {}
    refused: dict[Weights, str] = {}
    silent = ""
    for pin in pins if not is_offline() else ():
        try:
            lists[pin] = ask_hub(pin)
        except HubError as error:
            said = str(error)
            reason = said.values["reason"] if isinstance(said, Reason) else said
            if reason.startswith(UNREACHABLE):
                silent = reason
                break
            refused[pin] = reason
    caches = {pin: check_cache(pin, lists.get(pin) or read_cached_list(pin), step) for pin in pins}
    if is_offline():
        yield ok("hub", "HF_HUB_OFFLINE is set: only {folder} is searched", folder=cache_folder())
    elif not silent:
        yield ok("hub", "it answers")
    elif all(files.is_whole for files in caches.values()):
        form, do = "{reason}; the weights are in its cache", "HF_HUB_OFFLINE=1 avoids waiting for it"
        yield warning("hub", form, do, reason=checks.parts_of(silent)[0])
    else:
        yield problem("hub", *checks.parts_of(silent))
    missing = 0
    for pin, files in caches.items():
        yield _weights(pin, files, pin in lists, refused.get(pin, ""))
        missing += files.bytes_missing
    if missing:
        free = free_bytes(cache_folder())
        form = "{free:.0f} GB free for weights in {folder}; {missing:.1f} are to be fetched"
        says = phrase(form, free / 1e9, cache_folder(), missing / 1e9)
        if free > missing:
            yield ok("disk for weights", says)
        else:
            yield problem("disk for weights", says, "free some space, or set HF_HUB_CACHE to another disk")


def _weights(pin: Weights, files: CachedFiles, listed: bool, refused: str) -> Finding:
    check = phrase("{sections} weights", ", ".join(pin.sections))
    if refused:
        reason, do = checks.parts_of(refused)
        return problem(check, "{weights}: {reason}", do, weights=pin, reason=reason)
    if files.damaged:
        name, what = next(iter(files.damaged.items()))
        says = "{weights}: {file} is damaged ({reason})"
        return problem(check, says, "kopub pull fetches it again", weights=pin, file=name, reason=what)
    if files.is_whole:
        proof = "sizes and hashes are the Hub's" if listed else "hashes are those that the cache names them by"
        form = "{weights}: {size:.2f} GB, {count} files; {reason}"
        return ok(check, form, weights=pin, size=files.bytes / 1e9, count=len(files.whole), reason=proof)
    begun = phrase(", of which {size:.2f} were begun", files.partial_bytes / 1e9) if files.partial_bytes else ""
    size = f"{files.bytes_missing / 1e9:.2f} GB" if files.bytes_missing else ", ".join(files.missing)
    says = phrase("{weights}: {size} are not in the cache{begun}", pin, size, begun)
    if listed:
        form = "{reason}; the first run fetches them while its server starts"
        return warning(check, form, "kopub pull does it now", reason=says)
    return problem(check, says, "kopub pull where there is a network, or copy the Hub's cache to this machine")
