"""A code server, a web server and a daemon that looks for work every few seconds, as in deploy/docker."""

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from tests.support.dagster.ui import Ui
from tests.support.processes import forked

_DAEMON = "from tests.support.dagster.quick_daemon import quick_main; quick_main()"


@contextmanager
def quick_services(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[Ui, Path]]:
    """Run them on the Dagster home below `folder` until exit; yield the UI and the daemon's log."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = {"host": "127.0.0.1", "port": port, "location_name": "kopub"}
    workspace = folder / "workspace.yaml"
    workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": server}]}))
    code_server = ["dagster", "code-server", "start", "--port", str(port), "--module-name", "definitions"]
    daemon = ["python", "-c", _DAEMON, "run", "-w", str(workspace)]
    with ExitStack() as stack:
        for command in (code_server, daemon):
            started = stack.enter_context(forked.started(command, environment))
            stack.callback(os.killpg, started.process.pid, signal.SIGKILL)
        settings = {name: value for name, value in environment.items() if name.startswith("KOPUB_")}
        ui = stack.enter_context(Ui(folder, settings).started("--workspace", str(workspace)))
        yield ui, started.err
