"""`kopub browse`: the reading room, on this machine alone unless somebody asks for more."""

import os
from contextlib import suppress
from typing import Annotated

import typer

from kopub_cli.indexed_corpus import corpus_check, open_settings
from kopub_cli.look.search import searcher_of
from resources.errors import ConfigError
from resources.freed_memory import keep_little

_HERE = "127.0.0.1"


def browse(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="0 for any free one; that of reading_room.url when left out."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen at; 0.0.0.0, as in a container, shows every page to who reaches it."),
    ] = _HERE,
) -> None:
    """Look at the corpus in a browser, until Ctrl-C: pages with their regions and texts, search, what to check."""
    keep_little()

    import socket

    import uvicorn

    from kopub_web.app import reading_room
    from kopub_web.room import Room

    settings = open_settings()
    port = settings.reading_room.port if port is None else port
    room = Room(settings, searcher_of(settings), corpus_check(settings.corpus.manifest, settings.store))
    # Who opens it to others reaches it by names that are not known here.
    app = reading_room(room) if host == _HERE else reading_room(room, ["*"])
    with socket.socket() as listening:
        # As servers do: a port whose last connections are still closing is free. On Windows it would mean another's.
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            refused = f"{host}:{port} cannot be used ({error.strerror})"
            raise ConfigError(f"{refused}: choose another --port or --host") from None
        typer.echo(f"http://{host}:{listening.getsockname()[1]}  (Ctrl-C ends it)")
        # The server ends by itself, and raises the signal again for others.
        with suppress(KeyboardInterrupt):
            uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
    room.words.end()
