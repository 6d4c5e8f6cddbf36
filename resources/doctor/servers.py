"""Checks of model servers, without starting one, and of their weights."""

import importlib.metadata
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence

from resources.doctor.finding import Finding, ok, problem, warning
from resources.engine import INSTALL, Engine
from resources.errors import EngineError, HubError
from resources.vllm.flags import listed_flags, serve_arguments, unknown_flags
from resources.vllm.server import VLLMServer
from resources.vllm.supervisor import mps
from resources.weights.fetch import CachedFiles, examine, free_bytes
from resources.weights.pinned import UNREACHABLE, Weights, server_of
from resources.weights.repository import RepositoryFile, ask_hub, cache_folder, is_offline, remembered

_OWN_COMMAND = ["vllm", "serve"]
"""The command of a server that is installed in this environment."""


def programs(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """Check the release and the flags of each managed server that is installed."""
    known: dict[tuple[str, ...], frozenset[str]] = {}
    for section, server in managed(engines).items():
        check = f"{section} server"
        try:
            if server.find_program() is None:
                continue  # its engine says so
            program = server.program()
            release = installed_release(server.command)
            if server.version and release and release != server.version.partition("+")[0]:
                do = f"pip install vllm=={server.version}, or change {section}.server.version"
                yield problem(check, f"vLLM {release} is installed, and the profile was made for {server.version}", do)
                continue
            if program not in known:
                known[program] = listed_flags(program)
            unknown = unknown_flags(serve_arguments(server), known[program])
        except EngineError as error:
            yield problem(check, str(error), f"{INSTALL}; or change the server's `command`")
            continue
        if unknown:
            do = f"install vllm=={server.version or '0.32.0'}, or take them out of {section}.server"
            yield problem(check, f"this vLLM does not know {', '.join(unknown)}", do)
        else:
            yield ok(check, f"{program[0]} {release or ''} knows every flag of the profile".replace("  ", " "))


def shared_gpus(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """Check that replicas can work on one GPU at the same time."""
    for section, server in managed(engines).items():
        if not server.mps:
            continue
        if (program := shutil.which(mps.PROGRAM)) is not None:
            yield ok(f"{section} MPS", f"replicas share a GPU by {program}")
        else:
            do = f"install it (Debian: nvidia-compute-utils), or set {section}.server.mps to false"
            yield warning(f"{section} MPS", f"replicas take turns on a GPU: {mps.PROGRAM} is not installed", do)


def external(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """For each external server: that it answers, and serves the model."""
    for section, engine in engines.items():
        server = server_of(engine)
        if server is None or server.mode != "external":
            continue
        try:
            with server.lease() as endpoint:
                yield ok(f"{section} server", f"{', '.join(endpoint.urls)} serves {server.model}")
        except EngineError as error:
            yield problem(f"{section} server", str(error), f"start it, or correct {section}.server.urls")


def managed(engines: Mapping[str, Engine]) -> dict[str, VLLMServer]:
    """Return the servers that this platform starts, by section."""
    servers = {section: server_of(engine) for section, engine in engines.items()}
    return {section: server for section, server in servers.items() if server is not None and server.mode == "managed"}


def installed_release(command: Sequence[str]) -> str | None:
    """Return the release of vLLM in this environment, when that is what the command runs."""
    if list(command) != _OWN_COMMAND:
        return None
    try:
        return importlib.metadata.version("vllm").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


_PULL = "kopub pull"
Step = Callable[[str, int], None]


def weights(pins: Sequence[Weights], step: Step = lambda *_: None) -> Iterator[Finding]:
    """Check the Hub, each of the weights, and the disk for what is missing."""
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
    found = {pin: examine(pin, lists.get(pin) or remembered(pin), step) for pin in pins}
    cached = all(each.is_whole for each in found.values())
    yield _hub(list(refused.values()), cached)
    online = {pin for pin in pins if pin in lists}
    for pin, each in found.items():
        said = refused.get(pin, "")
        yield _one(pin, each, pin in online, "" if said.startswith(UNREACHABLE) else said)
    missing = sum(each.bytes_missing for each in found.values())
    if missing:
        yield _room(missing)


def _hub(said: Sequence[str], cached: bool) -> Finding:
    if is_offline():
        return ok("hub", f"HF_HUB_OFFLINE is set: only {cache_folder()} is looked into")
    silent = [line for line in said if line.startswith(UNREACHABLE)]
    if not silent:
        return ok("hub", "it answers")
    reason, _, do = silent[0].rpartition(": ")
    if cached:
        return warning("hub", f"{reason}; the weights are in its cache", "HF_HUB_OFFLINE=1 spares the waiting for it")
    return problem("hub", reason, do)


def _one(pin: Weights, found: CachedFiles, listed: bool, refused: str) -> Finding:
    check = f"{' and '.join(pin.sections)} weights"
    if refused:
        reason, _, do = refused.partition(": ")
        return problem(check, f"{pin}: {reason}", do)
    if found.damaged:
        name, what = next(iter(found.damaged.items()))
        return problem(check, f"{pin}: {name} is damaged ({what})", f"{_PULL} fetches it anew")
    if found.is_whole:
        proof = "sizes and hashes are the Hub's" if listed else "hashes are those that the cache names them by"
        return ok(check, f"{pin}: {found.bytes / 1e9:.2f} GB, {len(found.whole)} files; {proof}")
    begun = f", of which {found.begun / 1e9:.2f} were begun" if found.begun else ""
    size = f"{found.bytes_missing / 1e9:.2f} GB" if found.bytes_missing else ", ".join(found.missing)
    says = f"{pin}: {size} are not in the cache{begun}"
    if listed:
        return warning(check, f"{says}; the first run fetches them while its server starts", f"{_PULL} does it now")
    return problem(check, says, f"{_PULL} where there is a network, or bring the Hub's cache along")


def _room(missing: int) -> Finding:
    free = free_bytes(cache_folder())
    says = f"{free / 1e9:.0f} GB free for weights in {cache_folder()}; {missing / 1e9:.1f} are to be fetched"
    if free > missing:
        return ok("disk for weights", says)
    return problem("disk for weights", says, "free some space, or set HF_HUB_CACHE to another disk")
