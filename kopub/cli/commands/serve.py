"""`kopub serve`: the model servers that run on this machine."""

from typing import Annotated, Any

import typer
from rich.table import Column

from kopub.cli.console import print_json, print_table, said, say, table_console, tell
from kopub.cli.on_demand import LocalCommand
from kopub.cli.options import profile_option
from kopub.errors import ConfigError, EngineError, counted
from kopub.states import joined, phrase
from kopub.vllm.lease import list_servers, stop_server

app = typer.Typer(no_args_is_help=True)


@app.callback()
@profile_option
def serve() -> None:
    """List or stop the model servers that run on this machine."""


@app.command(cls=LocalCommand)
@profile_option
def status(
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list instead of a table.")] = False,
) -> None:
    """List the servers, who uses them, and when they will be stopped."""
    values: list[dict[str, Any]] = []
    cells: list[list[str]] = []
    for server in list_servers():
        specification, state = server.specification, server.state
        key, gpus, users = server.key[:6], list(specification.gpus), list(map(str, server.users))
        logs = [str(server.folder.log(index)) for index in range(specification.replicas)]
        values.append(
            {
                "server": key,
                "model": specification.model,
                "state": state.phase,
                "idle_seconds_left": server.idle_left,
                "restarts": len(state.restarts),
                "gpus": gpus,
                "in_use": server.in_use,
                "used_by": users,
                "logs": logs,
            }
        )
        facts: list[str] = [state.phase]
        if server.idle_left is not None:
            facts.append(phrase("stops in {seconds:.0f} s", server.idle_left))
        if state.restarts:
            facts.append(counted(len(state.restarts), "restart"))
        used_by = ", ".join(users) or said("somebody" if server.in_use else "nobody")
        shown_gpus, shown_state = ", ".join(gpus) or said("none"), ", ".join(map(said, facts))
        cells.append([key, specification.model, shown_state, shown_gpus, used_by, "\n".join(logs)])
    if as_json:
        print_json(values)
        return
    out = table_console()
    if not cells:
        say(out, "No model server runs; the next run that needs one starts it.")
        return
    columns = [Column(name) for name in ("server", "model", "state", "GPU", "used by", "log")]
    print_table(out, columns, cells)


@app.command(cls=LocalCommand)
@profile_option
def stop(
    server: Annotated[
        str | None, typer.Argument(metavar="[SERVER]", help="A server's name in `kopub serve status`; by default all.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Stop servers that are in use, too.")] = False,
) -> None:
    """Stop servers now instead of when their idle time is over."""
    if server is not None and not server.strip():
        # An empty variable in a script looks like this.
        raise ConfigError("the server's name is empty: leave it out to stop all")
    chosen = [running for running in list_servers() if running.key.startswith(server or "")]
    if server and len(chosen) != 1:
        form = "{count} servers have the name {server}: see `kopub serve status`"
        raise EngineError(form, len(chosen) or phrase("no"), server)
    if not chosen:
        tell("No model server runs.")
    left = []
    for running in chosen:
        try:
            stop_server(running, force)
        except EngineError as error:
            left.append(said(str(error)))
        else:
            tell(phrase("stopped {server} {model}", running.key[:6], running.specification.model))
    if left:
        raise EngineError(joined(left))
