"""`kopub browse`: the reading room, by default only on this machine."""

import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated

import typer
import uvicorn

from kopub.cli.commands.search import searcher_of
from kopub.cli.console import say, table_console
from kopub.cli.options import corpus_check, open_settings, user_name
from kopub.errors import ConfigError, counted, visible
from kopub.processes import keep_little
from kopub.states import phrase
from kopub.web.own_pages import LOOPBACK, Editor

if TYPE_CHECKING:
    from starlette.types import ASGIApp


HERE = "127.0.0.1"
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="Host name by which it is reached, besides localhost; may be repeated."),
]
_ANYWHERE = {"0.0.0.0": HERE, "::": "::1"}
"""A local address for each wildcard address, which stands for all addresses of the machine."""


def browse(
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65_535, help="Port, 0 for any free one; by default that of reading_room.url."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; 0.0.0.0, as in a container, shows every page to whoever reaches it."),
    ] = HERE,
    allow_host: AllowHost = None,
    edit: Annotated[bool, typer.Option("--edit", help="Let people correct pages; see docs/corrections.md.")] = False,
    author: Annotated[
        str, typer.Option(help="Author that the forms of --edit suggest; by default your user name.")
    ] = "",
    token: Annotated[
        str,
        typer.Option(
            envvar="KOPUB_EDIT_TOKEN",
            help="Token that a correction must send; generated if other machines can reach the room.",
        ),
    ] = "",
    api_token: Annotated[
        str,
        typer.Option(
            envvar="KOPUB_API_TOKEN", help="Token for /api/v1; generated if other machines can reach the room."
        ),
    ] = "",
    is_opened: Annotated[
        bool, typer.Option("--open/--no-open", help="Open a browser, if this is a terminal on a machine with a screen.")
    ] = True,
) -> None:
    """Open the corpus in a browser, until Ctrl-C: pages with regions and texts, search, and what needs review."""
    keep_little()

    from kopub.web.app import reading_room
    from kopub.web.file_reading import FileReader
    from kopub.web.room import Room

    hosts = host_names(host, allow_host)
    settings = open_settings()
    port = settings.reading_room.port if port is None else port
    is_here = host in LOOPBACK
    token = token_for(host, token)
    editor = Editor(author or user_name(), token) if edit else None
    check = corpus_check(settings.corpus.manifest, settings.store)
    room = Room(settings, searcher_of(settings), check, editor)
    api_token = token_for(host, api_token)
    # If other machines can reach the room, sending files takes --edit and its token.
    reader = FileReader(editor or Editor(author, token)) if edit or is_here else None
    app = reading_room(room, hosts, api_token, reader)
    with listening_at(host, port) as listening:
        # The socket is listening already, so a browser that comes now is answered, if a moment later.
        url = url_of(host, listening)
        room.words.start()
        out, corpus = table_console(), room.now.corpus
        say(out, phrase("{url}  (Ctrl-C ends it)", url))
        if room.editor is not None:
            with_token = phrase("pages can be corrected with the token {token}", room.editor.token)
            say(out, with_token if room.editor.token else "pages can be corrected by anyone on this machine", "yellow")
        counts = counted(len(corpus.documents), "document"), counted(len(corpus.pages), "page")
        source = visible(settings.corpus.manifest.location)
        say(out, phrase("{documents}, {pages} of {source}", *counts, source))
        if api_token:
            say(out, phrase("{url}/api/v1 asks for the token {token}", url, api_token))
        # Without a screen, a text browser would take over the terminal.
        variables = map(os.environ.get, ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))
        has_screen = sys.platform in ("darwin", "win32") or any(variables)
        if is_opened and is_here and sys.stdout.isatty() and has_screen:
            webbrowser.open(url)
        serve_until_stopped(app, listening)
    room.words.end()


def host_names(host: str, named: list[str] | None) -> list[str]:
    """Return the host names to which a server listening at `host` answers.

    Any other name may be that of a site that made it lead here, to read the pages in its visitor's browser. Raises
    `ConfigError` for an address that other machines reach, without a name.
    """
    if not host.strip():
        # For a socket, it would mean every address of the machine.
        raise ConfigError("--host is empty: name an address, such as 127.0.0.1")
    if host not in LOOPBACK and not named:
        raise ConfigError(
            "--host {host}: name the hosts by which browsers reach it, such as --allow-host {name}",
            host,
            socket.gethostname(),
        )
    return [*LOOPBACK, *(name.lower().strip("[]") for name in named or ())]


def token_for(host: str, given: str) -> str:
    """Return the given token, or a generated one if other machines can reach `host`."""
    # From another machine, knowing the address must not be enough.
    return given or ("" if host in LOOPBACK else secrets.token_urlsafe(16))


@contextmanager
def listening_at(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that listens at `host` and `port`, 0 for any free one.

    Raises `ConfigError` if they cannot be used.
    """
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listening:
        # As in servers, a port with closing connections counts as free; on Windows, so would another program's port.
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except OSError as error:
            form = "{host}:{port} cannot be used ({error}): choose another --port or --host"
            raise ConfigError(form, host, port, error.strerror) from None
        listening.listen()
        yield listening


def serve_until_stopped(app: "ASGIApp", listening: socket.socket) -> None:
    """Serve an application until Ctrl-C."""
    # The server shuts down by itself, then raises the signal again.
    with suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


def url_of(host: str, listening: socket.socket) -> str:
    """Return the URL at which a browser on this machine reaches a server listening at `host`."""
    name = _ANYWHERE.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{listening.getsockname()[1]}"
