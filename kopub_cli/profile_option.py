"""Options that stand in for the profile or one of its keys: `--profile`, `--ocr` and `--text-layer`."""

import os
import shlex
from typing import Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from resources.errors import ConfigError

OCR_HELP = "Read every page by OCR, whatever the text layers of PDFs say."
TEXT_LAYER_HELP = "Take the text layers of PDFs where they are sound."
_VARIABLE = "KOPUB_PROFILE"
_HELP = "Instead of $KOPUB_PROFILE: a name of `kopub profiles`, a card's with a reader, or a YAML file."


_chosen: list[str] = []
"""What `--profile` named, while the command runs."""


class ProfileCommand(TyperCommand):
    """A command with `--profile`, which stands in for $KOPUB_PROFILE while the command runs."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _add_option(self)


class ProfileGroup(TyperGroup):
    """A group of commands with `--profile`, before or after the name of the command."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _add_option(self)


def with_profile(command: str) -> str:
    """Return a command to type next, with the `--profile` that the command running now was given."""
    return f"{command} --profile {shlex.quote(_chosen[-1])}" if _chosen else command


def _add_option(command: TyperCommand | TyperGroup) -> None:
    if not any("--profile" in parameter.opts for parameter in command.params):
        asked: dict[str, Any] = {"param_decls": ["--profile"], "type": str, "metavar": "NAME", "help": _HELP}
        command.params.append(TyperOption(**asked, callback=_choose, is_eager=True, expose_value=False))


def _choose(context: typer.Context, _: Any, name: str | None) -> None:
    if name is None:
        return
    from resources.config.profile_files import find_profile

    find_profile(name, "--profile ")
    _chosen.append(name)
    context.call_on_close(_chosen.pop)
    # Processes that the command starts, in whatever folder, read it too.
    is_path = name.partition("+")[0].endswith((".yaml", ".yml"))
    before, os.environ[_VARIABLE] = os.environ.get(_VARIABLE), os.path.abspath(name) if is_path else name
    context.call_on_close(lambda: _restore(before))


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(_VARIABLE, None)
    else:
        os.environ[_VARIABLE] = before


def text_layer_choice(ocr: bool, text_layer: bool) -> Literal["never", "prefer"] | None:
    """Return the value of `pdf.text_layer` that the options ask for, None for that of the profile.

    Raises `ConfigError` for both.
    """
    if ocr and text_layer:
        raise ConfigError("--ocr and --text-layer exclude each other: name one")
    return "never" if ocr else "prefer" if text_layer else None
