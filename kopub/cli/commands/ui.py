"""`kopub ui`: Dagster's UI with its daemon and code server, by default only on this machine."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import uvicorn
import yaml

from kopub.cli.commands.browse import HERE, AllowHost, host_names, listening_at, url_of
from kopub.cli.console import tell
from kopub.cli.dagster_home import instance_at, make_databases
from kopub.config.settings import load_settings
from kopub.errors import ConfigError, KopubError
from kopub.states import phrase
from kopub.vllm.supervisor.process_guard import die_with_parent
from kopub.web.own_pages import OriginGuard

if TYPE_CHECKING:
    import dagster as dg

_QUIET = "ignore:Function"
"""The filter for warnings of Dagster about its own deprecated functions, in each of its processes."""
_END_SECONDS = 60
"""Seconds for the daemon to end by itself."""


def ui(
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port, 0 for any free one.")] = 3000,
    host: Annotated[str, typer.Option(help="Address to listen on; Dagster has no password protection.")] = HERE,
    allow_host: AllowHost = None,
    workspace: Annotated[
        Path | None,
        typer.Option(help="Start only the web server, for the code server that this workspace.yaml names."),
    ] = None,
) -> None:
    """Open Dagster's UI until Ctrl-C, to look at the assets and start runs; schedules and backfills work meanwhile.

    Requests by pages of other web sites that are open in the browser are refused.
    """
    names = host_names(host, allow_host)
    # Otherwise `kill` would end this process at once, and the daemon would go on beside the next one.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if workspace is not None and not workspace.is_file():
        raise ConfigError("--workspace {file}: there is no such file", workspace)
    home = load_settings().home
    os.environ.setdefault("PYTHONWARNINGS", _QUIET)
    warnings.filterwarnings("ignore", "Function")
    # Dagster has no public API to load a workspace file, nor for the context in which its UI serves one.
    from dagster._core.workspace import context, load_target

    with ExitStack() as stack:
        listening = stack.enter_context(listening_at(host, port))
        instance = stack.enter_context(instance_at(home))
        make_databases(Path(instance.root_directory))
        file = workspace or Path(stack.enter_context(tempfile.TemporaryDirectory()), "workspace.yaml")
        target = load_target.WorkspaceFileTarget([str(file)])
        daemon = None
        if workspace is None:
            stack.enter_context(_code_server(instance, file, target))
            daemon = stack.enter_context(_daemon(file))
        # Dagster has not loaded the code yet, so a browser that comes now waits.
        tell(phrase("{url}  (Ctrl-C ends it)", url_of(host, listening)))
        # The command `dagster-webserver` would serve without the guard.
        from dagster_webserver.app import create_app_from_workspace_process_context

        instance.optimize_for_webserver(15_000, 3600, 20)
        loaded = stack.enter_context(context.WorkspaceProcessContext(instance, target, version("dagster-webserver")))
        _serve(OriginGuard(create_app_from_workspace_process_context(loaded), names), listening, daemon)


@contextmanager
def _code_server(instance: "dg.DagsterInstance", workspace: Path, target: Any) -> Iterator[None]:
    """Run a code server that can reload the definitions.

    It is named by the file `workspace`, which Dagster reads with `target`.
    """
    # The command `dagster code-server start` would outlive a killed `kopub ui`, and not be restarted if it died.
    from dagster._cli.proxy_server_manager import ProxyServerManager

    module = {"module_name": "kopub_assets.definitions", "location_name": "kopub"}
    workspace.write_text(yaml.safe_dump({"load_from": [{"python_module": module}]}))
    with ProxyServerManager(instance, target, "warning") as servers:
        workspace.write_text(yaml.safe_dump({"load_from": servers.get_code_server_specs()}))
        yield


@contextmanager
def _daemon(workspace: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run Dagster's daemon, which starts queued runs, backfills and the nightly upgrades."""
    from dagster_shared.ipc import get_ipc_shutdown_pipe, open_ipc_subprocess, send_ipc_shutdown_message

    heard, said = get_ipc_shutdown_pipe()
    # The UI shows what the daemon does at each tick.
    command = [sys.executable, "-m", "dagster._daemon", "run", "--workspace", str(workspace), "--log-level", "warning"]
    # Linux ends it with a killed `kopub ui`, which it would outlive.
    ends = die_with_parent() if sys.platform == "linux" else None
    process = open_ipc_subprocess([*command, "--shutdown-pipe", str(heard)], pass_fds=[heard], preexec_fn=ends)
    try:
        yield process
    finally:
        with suppress(OSError):
            send_ipc_shutdown_message(said)
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _serve(app: OriginGuard, listening: socket.socket, daemon: subprocess.Popen[bytes] | None) -> None:
    """Serve until Ctrl-C. Raises `KopubError` if the daemon ends earlier."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))

    def end_with_daemon() -> None:
        if daemon is not None:
            daemon.wait()
            server.should_exit = True

    threading.Thread(target=end_with_daemon, daemon=True).start()
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    if daemon is not None and daemon.poll():
        raise KopubError("Dagster's daemon ended with status {status}; see its messages above", daemon.returncode)
