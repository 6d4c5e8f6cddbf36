"""`kopub evaluate`: how well profiles read pages with known answers."""

from pathlib import Path
from typing import Annotated

import typer

from kopub.cli.console import print_json, said, say, table_console
from kopub.cli.options import local_file, local_folder, local_path

_MEANING = "meaning"
_MEANING_SAYS = "questions in other words than their pages, asked of the corpus (benchmarks/finding/questions)"


def evaluate(
    benchmark: Annotated[str, typer.Argument(metavar="BENCHMARK", help="Name of a benchmark; `list` lists them all.")],
    folder: Annotated[Path, typer.Argument(parser=local_path, metavar="FOLDER", help="Folder with its data.")] = Path(),
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N samples by the hash of their ids.")] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(help="Profile to read with; repeat it to compare several. $KOPUB_PROFILE by default."),
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(
            parser=local_folder,
            metavar="FOLDER",
            help="Write what was read in the format of the official scoring scripts.",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            parser=local_file,
            metavar="FILE",
            help="Write one HTML file: the worst pages, with known answer and reading.",
        ),
    ] = None,
    pages: Annotated[
        int, typer.Option(min=0, help="With --html: number of pages with pictures, the worst first.")
    ] = 24,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Read BENCHMARK with a profile and score it against its known answers.

    `meaning` reads nothing: it asks the corpus the questions of FOLDER.

    The pages are read by the same assets as a corpus, in a home of their own
    below $KOPUB_HOME/evaluations. What is read is kept: a second run reads
    nothing, and a new scorer scores what was read before.
    """
    if benchmark == "list":
        from kopub.evaluation.scoring import ADAPTERS

        named = {name: adapter.says for name, adapter in ADAPTERS.items()} | {_MEANING: _MEANING_SAYS}
        if as_json:
            print_json([{"benchmark": name, "says": says} for name, says in named.items()])
            return
        out = table_console()
        for name, says in named.items():
            say(out, f"{name:<15}{said(says)}", indent=15)
        return
    # It loads Arrow and the engines.
    from kopub.cli.evaluating import ask_questions, evaluate_profiles

    if benchmark == _MEANING:
        ask_questions(folder, profile or [], limit, as_json)
    else:
        evaluate_profiles(benchmark, folder, limit, profile or [], predictions, html, pages, as_json)
