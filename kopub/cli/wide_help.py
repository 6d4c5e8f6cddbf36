"""The help of a command in wide letters, of which Typer's tables lose some.

Rich strips the blank at the end of a line by the number of its letters, not by their cells, and then cuts the line
with an ellipsis where a column asks for one, as those of Typer do.
"""

from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from kopub.cli.console import said, say

_OTHER = "Commands"


def show_help(command: Any, context: Any) -> None:
    """Print how a command is called, what it does, its arguments, options and commands."""
    out = Console()
    out.print(f"\n {context.get_usage()}\n", highlight=False)
    for paragraph in filter(None, command.help.split("\n\n")):
        say(out, f" {paragraph}\n", indent=1)
    parameters = command.get_params(context)
    for title, kind in (("Arguments", "argument"), ("Options", "option")):
        rows: list[tuple[str, str]] = []
        for parameter in parameters:
            if parameter.param_type_name != kind or parameter.hidden:
                continue
            names = metavar = parameter.make_metavar(context)
            if kind == "option":
                names = ", ".join([*parameter.opts, *parameter.secondary_opts])
                takes_value = not (getattr(parameter, "is_flag", False) or parameter.count)
                names = f"{names} {metavar}" if takes_value else names
            # The variable, the default and the need for a value, as Typer names them.
            says = [parameter.help]
            if variable := getattr(parameter, "envvar", None):
                says.append(said("[env var: {}]", filled=False).format(variable))
            default = parameter.get_default(context, call=False)
            if parameter.show_default and default not in (None, False, "", ()) and not callable(default):
                says.append(said("[default: {}]", filled=False).format(default))
            if parameter.required:
                says.append(said("[required]"))
            rows.append((names, " ".join(says)))
        _show_panel(title, rows, out)
    panels: dict[str, list[tuple[str, str]]] = {}
    for name in getattr(command, "commands", ()):
        part = command.get_command(context, name)
        panels.setdefault(part.rich_help_panel or _OTHER, []).append((name, part.help.partition("\n\n")[0]))
    for title, rows in panels.items():
        _show_panel(title, rows, out)


def _show_panel(title: str, rows: list[tuple[str, str]], out: Console) -> None:
    if not rows:
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold cyan", overflow="fold", max_width=out.width * 2 // 5)
    table.add_column(overflow="fold", ratio=1)
    for name, says in rows:
        table.add_row(Text(name), Text(says))
    out.print(Panel(table, title=said(title), title_align="left", border_style="dim"))
