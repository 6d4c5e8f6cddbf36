"""`kopub mcp`: the corpus as tools for agents."""

from importlib.util import find_spec
from typing import Annotated

import typer

from kopub.cli.commands.browse import (
    HERE,
    AllowHost,
    host_names,
    listening_at,
    serve_until_stopped,
    token_for,
    url_of,
)
from kopub.cli.commands.search import searcher_of
from kopub.cli.console import say, table_console
from kopub.cli.options import corpus_check, open_settings
from kopub.errors import ConfigError
from kopub.states import phrase

_PORT = 3031
"""The default port, beside the reading room's 3030."""


def mcp(
    http: Annotated[bool, typer.Option("--http", help="Serve streamable HTTP at /mcp instead of stdin.")] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help=f"Port for --http, 0 for any free one; by default {_PORT}."),
    ] = None,
    host: Annotated[str | None, typer.Option(help=f"Address that --http listens on; by default {HERE}.")] = None,
    allow_host: AllowHost = None,
    api_token: Annotated[
        str,
        typer.Option(
            envvar="KOPUB_API_TOKEN", help="Token that --http asks for; generated if other machines can reach it."
        ),
    ] = "",
) -> None:
    """Serve the corpus to agents as tools, over the Model Context Protocol on stdin and stdout."""
    for option, given in (("--port", port), ("--host", host), ("--allow-host", allow_host)):
        if given is not None and not http:
            raise ConfigError("{option} needs --http: add it", option)
    if find_spec("mcp") is None:
        raise ConfigError("kopub mcp needs the extra mcp: pip install -c requirements.lock -e '.[mcp]'")

    from kopub.web.mcp import PATH, http_app, server_of
    from kopub.web.room import Room

    settings = open_settings()
    room = Room(settings, searcher_of(settings), corpus_check(settings.corpus.manifest, settings.store))
    server = server_of(room, settings.reading_room.url or "")
    if not http:
        server.run("stdio")
        return

    host, port = HERE if host is None else host, _PORT if port is None else port
    hosts = host_names(host, allow_host)
    api_token = token_for(host, api_token)
    app = http_app(server, hosts, api_token)
    with listening_at(host, port) as listening:
        out = table_console()
        say(out, phrase("{url}  (Ctrl-C ends it)", f"{url_of(host, listening)}{PATH}"))
        if api_token:
            say(out, phrase("it asks for the token {token}", api_token))
        serve_until_stopped(app, listening)
