"""The commands of `kopub` by name, each of which is imported when it is called."""

import inspect
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from kopub.cli.console import in_english, said
from kopub.cli.options import profile_option
from kopub.errors import did_you_mean
from kopub.states import phrase

_MAKE, _LOOK, _JUDGE, _GIVE, _MACHINE = (
    "Make",
    "Look",
    "Judge and compare",
    "Export and publish",
    "The machine",
)
"""The panels of `kopub --help`; panels and their commands are in the order of work."""


@dataclass(frozen=True)
class ListedCommand:
    """A command as `kopub --help` lists it, and the name of its module.

    `summary` is the first paragraph of its help. A group (`is_group`) has commands of its own.
    """

    panel: str
    name: str
    module: str
    summary: str
    is_group: bool = False


COMMANDS = (
    ListedCommand(
        _MAKE,
        "run",
        "run",
        "Make every table that is missing or stale, and say what was lost. Finished pages are kept, even after Ctrl-C.",
    ),
    ListedCommand(
        _MAKE, "index", "index", "Index SOURCE as a source of the corpus, and draw the pages of its documents."
    ),
    ListedCommand(
        _MAKE, "plan", "plan", "Show what is stale, why, and what making it again will cost; --set tries other values."
    ),
    ListedCommand(
        _LOOK, "status", "status", "Show what was made, from which corpus, where it is stored, and what to run next."
    ),
    ListedCommand(_LOOK, "search", "search", "Find the pages that answer QUERY in what was made so far."),
    ListedCommand(
        _LOOK,
        "browse",
        "browse",
        "Open the corpus in a browser, until Ctrl-C: pages with regions and texts, search, and what needs review.",
    ),
    ListedCommand(
        _LOOK, "mcp", "mcp", "Serve the corpus to agents as tools, over the Model Context Protocol on stdin and stdout."
    ),
    ListedCommand(
        _LOOK,
        "ui",
        "ui",
        "Open Dagster's UI until Ctrl-C, to look at the assets and start runs; schedules and backfills work meanwhile.",
    ),
    ListedCommand(
        _LOOK,
        "read",
        "read",
        "Print files as markdown, without an index or a home: the engines of the profile read them now.",
    ),
    ListedCommand(
        _LOOK, "lineage", "lineage", "Show how a page or vector came to be: source bytes, boxes, models, prompts, runs."
    ),
    ListedCommand(_LOOK, "shards", "index", "List the shards of the corpus."),
    ListedCommand(
        _JUDGE,
        "doubts",
        "doubts",
        "List the pages whose text looks wrong, worst first; those that a person checked are left out.",
    ),
    ListedCommand(
        _JUDGE,
        "corrections",
        "corrections",
        "List what people corrected in `kopub browse --edit`, and what became of it.",
    ),
    ListedCommand(
        _JUDGE, "evaluate", "evaluate", "Read BENCHMARK with a profile and score it against its known answers."
    ),
    ListedCommand(
        _JUDGE, "diff", "diff", "Compare a shard before and after an upgrade: regions, texts, states, vectors."
    ),
    ListedCommand(
        _JUDGE,
        "costs",
        "costs",
        "Show the time and GPU time that the pages of the corpus took in all runs, and the costliest pages.",
    ),
    ListedCommand(
        _GIVE,
        "export",
        "export",
        "Write everything as JSON lines, NumPy arrays and picture files; or the documents, in the formats you name.",
    ),
    ListedCommand(_GIVE, "publish", "release", "Push the release to hub.repo, check every hash there, and tag it."),
    ListedCommand(
        _GIVE,
        "verify",
        "release",
        "Check every file, hash, count, column and join of RELEASE, and that every row loads; "
        "print a line per problem.",
    ),
    ListedCommand(
        _MACHINE,
        "doctor",
        "doctor",
        "Check whether this machine can run the profile, and read the sample pages with its engines.",
    ),
    ListedCommand(
        _MACHINE, "profiles", "profiles", "List the profiles with card and engines, and which readers fit on each card."
    ),
    ListedCommand(
        _MACHINE,
        "pull",
        "release",
        "Fetch the weights that the profile pins, and verify them: sizes and hashes as the Hub lists them.",
    ),
    ListedCommand(
        _MACHINE,
        "profile",
        "profile",
        "Measure speed: run some pages in a home of their own, and show how long each stage takes and what limits it.",
    ),
    ListedCommand(_MAKE, "sources", "index", "List the sources of the corpus, or remove one.", is_group=True),
    ListedCommand(
        _MACHINE, "serve", "serve", "List or stop the model servers that run on this machine.", is_group=True
    ),
)


def placeholder() -> None:
    """Stand for a command until it is called."""


UsageError: Any = typer.BadParameter.__mro__[1]
"""The errors of a command line; Typer has no public name for their base."""


class _UsersLanguage:
    """A command whose help and usage errors are in the user's language."""

    def get_params(self: Any, ctx: Any) -> list[Any]:
        """Return the options and arguments, with their help."""
        parameters = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            parameter.help = said(getattr(parameter, "help", None) or "")
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        if in_english():
            super().format_help(ctx, formatter)  # type: ignore[misc]
            return
        from kopub.cli.wide_help import show_help

        show_help(self, ctx)

    def format_usage(self: Any, ctx: Any, formatter: Any) -> None:
        """Write the line that shows how the command is called."""
        formatter.write_usage(ctx.command_path, " ".join(self.collect_usage_pieces(ctx)), f"{said('Usage:')} ")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Return the arguments that are left for a command of a group."""
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc]
        except UsageError as error:
            if in_english() or type(error).__name__ == "NoArgsIsHelpError":
                raise
            problem, parameter = "there are more arguments than the command takes", getattr(error, "param", None)
            match type(error).__name__:
                case "NoSuchOption":
                    guess = said(did_you_mean(error.option_name, error.possibilities or ()))
                    problem = phrase("no such option: {option}{guess}", error.option_name, guess)
                case "BadOptionUsage":
                    problem = phrase("the option {option} wants a value, or has one too many", error.option_name)
                case "MissingParameter" if parameter is not None:
                    problem = phrase("{parameter} is missing", parameter.get_error_hint(error.ctx))
                case "BadParameter" if parameter is not None:
                    hint, takes = parameter.get_error_hint(error.ctx), parameter.make_metavar(error.ctx)
                    problem = phrase("{parameter} has no value of the type {type}", hint, takes)
                case _:
                    pass
            raise UsageError(said(problem), ctx) from None


class LocalCommand(_UsersLanguage, TyperCommand):
    """A command that is no group."""


class LocalGroup(_UsersLanguage, TyperGroup):
    """A group of commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that was typed, with its arguments."""
        if args and args[0] not in self.commands and not (args[0].startswith("-") or in_english()):
            guess = said(did_you_mean(args[0], self.commands))
            raise UsageError(said(phrase("no such command: {name}{guess}", args[0], guess)), ctx)
        return super().resolve_command(ctx, args)


class CommandsOnDemand(LocalGroup):
    """A group whose help lists the commands without importing them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _translate(self)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that was typed, imported, with its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(name) if name else None, rest


@cache
def load_command(name: str) -> Any:
    """Return the command with this name, whose module is imported for it."""
    listed = next(command for command in COMMANDS if command.name == name)
    module = import_module(f"kopub.cli.commands.{listed.module}")
    only = typer.Typer(add_completion=False)
    if listed.is_group:
        only.add_typer(module.app, name=name, cls=LocalGroup)
    else:
        function = getattr(module, name)
        # Typer keeps the line ends of a docstring within its paragraphs.
        paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
        prose = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
        only.command(name, cls=LocalCommand, help=prose)(profile_option(function))
    command: Any = typer.main.get_group(only).commands[name]
    _translate(command)
    return command


def _translate(command: Any) -> None:
    """Turn the help of a command, and of its own commands, into the user's language."""
    command.help = "\n\n".join(map(said, (command.help or "").split("\n\n")))
    command.rich_help_panel = said(getattr(command, "rich_help_panel", None) or "") or None
    for part in getattr(command, "commands", {}).values():
        _translate(part)
