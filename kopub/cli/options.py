"""Options that replace the profile or a key: `--profile`, `--ocr`, `--text-layer`."""

import getpass
import inspect
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from kopub.cli.console import in_english
from kopub.errors import ConfigError, KopubError, counted
from kopub.files import is_url
from kopub.states import Reason, phrase

if TYPE_CHECKING:
    from kopub.config.environment import Location
    from kopub.config.settings import Settings
    from kopub.pages.manifest import Manifest
    from kopub.store.table_source import CorpusCheck, Source
    from kopub.store.table_store import ShardStore, TableStore

OCR_HELP = "Read every page by OCR, even where a PDF has a text layer."
TEXT_LAYER_HELP = "Use the text layers of PDFs where they are sound."
_VARIABLE = "KOPUB_PROFILE"
_HELP = "Use this profile instead of $KOPUB_PROFILE: a name that `kopub profiles` lists, CARD+READER, or a YAML file."


_chosen: list[str] = []
"""The name given with `--profile`, while the command runs."""


def profile_option(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command, or a group's callback, with `--profile` added if it lacks it."""
    signature = inspect.signature(command)
    if "profile" in signature.parameters:
        return command
    option = typer.Option("--profile", metavar="NAME", help=_HELP, callback=_choose, is_eager=True)
    asked = inspect.Parameter(
        "profile", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str, option]
    )

    @wraps(command)
    def with_option(*arguments: Any, profile: str | None, **options: Any) -> None:
        command(*arguments, **options)

    # Typer reads a command's options from its signature.
    vars(with_option)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), asked])
    return with_option


def with_profile(command: str) -> str:
    """Return a command to type next, with this one's `--profile`."""
    return f"{command} --profile {shlex.quote(_chosen[-1])}" if _chosen else command


def _choose(context: typer.Context, name: str | None) -> None:
    if name is None:
        return
    from kopub.config.profile_files import find_profile, named_from_anywhere

    find_profile(name, "--profile ")
    _chosen.append(name)
    context.call_on_close(_chosen.pop)
    # Processes that the command starts in any folder read it, too.
    before, os.environ[_VARIABLE] = os.environ.get(_VARIABLE), named_from_anywhere(name)
    if before is None:
        context.call_on_close(partial(os.environ.pop, _VARIABLE, None))
    else:
        context.call_on_close(partial(os.environ.update, {_VARIABLE: before}))


def text_layer_choice(ocr: bool, text_layer: bool) -> Literal["never", "prefer"] | None:
    """Return the `pdf.text_layer` that the options select, else None.

    Raises `ConfigError` if both are given.
    """
    if ocr and text_layer:
        raise ConfigError("--ocr and --text-layer cannot be combined: choose one")
    return "never" if ocr else "prefer" if text_layer else None


COMMAND = "kopub run"
"""The command that makes or continues every table of the indexed corpus."""


def open_settings() -> "Settings":
    """Return the settings after checking that their store answers.

    An object store that does not answer would look as if nothing had been made.
    """
    from kopub.config.settings import load_settings
    from kopub.store.faults import require_reachable

    settings = load_settings()
    require_reachable(settings.store.url)
    return settings


def located_home() -> "Location":
    """Return the home and where its tables are, without loading an engine or Dagster."""
    from kopub.config.environment import locate

    return locate(os.environ)


def open_located() -> "Location":
    """Return `located_home` after checking that its store answers."""
    from kopub.store.faults import require_reachable

    located = located_home()
    require_reachable(located.store_url)
    return located


def corpus_check(manifest: "Manifest", store: "TableStore") -> "CorpusCheck":
    """Return the check that tells tables of the indexed corpus from others."""
    from kopub.pages.corpus import corpus_source
    from kopub.store.table_source import CorpusCheck

    def of_other_assets() -> "Source":
        from kopub.config.settings import load_settings
        from kopub.tables.plan import sources_of

        return sources_of(load_settings().resources)

    return CorpusCheck(store, corpus_source(manifest, of_other_assets))


def require_indexed(settings: "Settings", assets: Sequence[str]) -> None:
    """Raise `KopubError` if a table of the corpus's shards was made from another corpus."""
    check = corpus_check(settings.corpus.manifest, settings.store)
    is_of_corpus = check.look()
    for asset in assets:
        published = settings.store.published(asset)
        other = [key for key in settings.corpus.manifest.keys if key in published and not is_of_corpus(asset, key)]
        if damaged := next(filter(None, (check.footers.damaged.get((asset, key)) for key in other)), None):
            raise damaged
        if other:
            raise KopubError(
                "{asset} of {shards} was made from another corpus than {location}: run `{command}`",
                asset,
                phrase("{shard} and {count} more shards", other[0], len(other) - 1) if other[1:] else other[0],
                settings.corpus.manifest.location,
                COMMAND,
            )


def told_reasons(store: "ShardStore | TableStore") -> Mapping[str, Reason]:
    """Return the reasons in tables by what they say; none if the user reads English."""
    from kopub.store.append_log import REASONS, stored_reasons

    return {} if in_english() else stored_reasons(store.parts(REASONS))


def first_looks(manifest: "Manifest") -> list[dict[str, Any]]:
    """Return the sources cut by `--max-pages`, with the commands for the rest."""
    looks: list[dict[str, Any]] = []
    for source in manifest.sources:
        if source.left:
            command = with_profile(f"{COMMAND} {shlex.quote(manifest.location_of(source))}")
            looks.append({"source": source.name, "pages_left": source.left, "command": command})
    return looks


def first_look_lines(manifest: "Manifest") -> list[str]:
    """Return a line for each of `first_looks`."""
    form = "unfinished: {pages} of {source} left by --max-pages; {command} makes them"
    lines: list[str] = []
    for look in first_looks(manifest):
        lines.append(phrase(form, counted(look["pages_left"], "page"), look["source"], look["command"]))
    return lines


def newer_lines(tables: int) -> Iterator[str]:
    """Yield a line on the tables that a newer release of KoPub made, if any."""
    if tables:
        yield phrase(
            "upgrade this machine: a newer release of KoPub made {tables}, which it leaves alone",
            counted(tables, "table"),
        )


def local_path(typed: str | Path) -> Path:
    """Return a typed path or the default.

    Raises `ConfigError` for a URL, which would become a local folder, and for an empty path.
    """
    if isinstance(typed, str) and is_url(typed):
        raise ConfigError("{typed} is a URL: name a path on this machine", typed)
    if isinstance(typed, str):
        require_named(typed)
    return Path(typed)


def local_file(typed: str | Path) -> Path:
    """Return the path of a file to write.

    Raises `ConfigError` for a folder too, because what would be written may take hours to make.
    """
    path = local_path(typed)
    if path.is_dir():
        raise ConfigError("{path} is a folder: name a file", path)
    return path


def local_folder(typed: str | Path) -> Path:
    """Return the path of a folder to write into.

    Raises `ConfigError` for a file too.
    """
    path = local_path(typed)
    if path.is_file():
        raise ConfigError("{path} is a file: name a folder", path)
    return path


def user_name() -> str:
    """Return the user's name.

    It is a number for a user without a name, as in a container.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"


def require_named(typed: str) -> None:
    """Raise `ConfigError` for an empty path or URL, which would mean the current folder."""
    if not typed.strip():
        raise ConfigError("a path is empty: name a folder or a file")
