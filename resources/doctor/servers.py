"""Whether the model servers of a profile could be started, without starting one."""

import importlib.metadata
import shutil
from collections.abc import Iterator, Mapping, Sequence

from resources.doctor.finding import Finding, ok, problem, warning
from resources.engine import INSTALL, Engine
from resources.errors import EngineError
from resources.vllm.flags import listed_flags, serve_arguments, unknown_flags
from resources.vllm.server import VLLMServer
from resources.vllm.supervisor import mps
from resources.weights.pinned import server_of

_OWN_COMMAND = ["vllm", "serve"]
"""The command of a server that is installed in this environment."""


def programs(engines: Mapping[str, Engine]) -> Iterator[Finding]:
    """For each managed server that is installed: its release, and whether it knows the flags of the profile."""
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
    """For each managed server whose replicas are to work on a GPU at the same time: that they can."""
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
    """The servers that this platform starts, by section."""
    servers = {section: server_of(engine) for section, engine in engines.items()}
    return {section: server for section, server in servers.items() if server is not None and server.mode == "managed"}


def installed_release(command: Sequence[str]) -> str | None:
    """The release of vLLM in this environment, when that is what the command runs."""
    if list(command) != _OWN_COMMAND:
        return None
    try:
        return importlib.metadata.version("vllm").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None
