"""`kopub evaluate`: how well profiles read pages with known answers."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column
from rich.text import Text

import kopub
from kopub.cli.commands.search import searcher_of
from kopub.cli.console import print_json, print_table, right, said, say, table_console
from kopub.cli.options import local_file, local_folder, local_path, open_settings
from kopub.config.profile_files import find_profile
from kopub.errors import STOPPED_BY_HAND, ConfigError, KopubError, counted
from kopub.states import phrase

MEANING = "meaning"
_MEANING_SAYS = "questions in other words than their pages, asked of the corpus (benchmarks/finding/questions)"

if TYPE_CHECKING:
    from kopub.config.settings import Settings
    from kopub.evaluation.home import EvaluationRequest, KnownAnswers
    from kopub.tables.evaluations import Evaluation


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
    from kopub.cli.evaluation_display import as_json_values, show, write_page
    from kopub.corrections.gold import write_checked_pages
    from kopub.evaluation.home import CHECKED_PAGES, EvaluationRequest

    if benchmark == "list":
        return _list(as_json)
    if benchmark == MEANING:
        return _ask(folder, _profiles(profile or []), limit, as_json)
    out = Console(stderr=as_json)
    if benchmark == "corrections":
        # The known answers are the pages of this corpus that people checked.
        own = open_settings()
        folder = own.home / CHECKED_PAGES
        write_checked_pages(own.corpus, own.store, folder)
    request = EvaluationRequest(benchmark, folder, limit)
    chosen = _profiles(profile or [])
    try:
        answers, evaluated = _evaluate(request, chosen, out)
    except KeyboardInterrupt:
        # Finished samples are kept.
        raise SystemExit(STOPPED_BY_HAND) from None
    except RecursionError as error:  # a library's parser on a benchmark that is nested without end
        raise KopubError("the benchmark is nested too deeply to be read: {error}", error) from None
    if predictions is not None:
        _write_predictions(predictions, request, evaluated, out)
    if html is not None:
        write_page(html, answers, evaluated, pages)
        say(out, phrase("wrote {path}", html))
    if as_json:
        print_json(as_json_values(request, answers, evaluated))
    else:
        show(answers, evaluated, table_console())


def _ask(folder: Path, profiles: "Sequence[Settings]", limit: int | None, as_json: bool) -> None:
    """Show how well the corpus is searched by the questions of a folder or file."""
    from kopub.evaluation.questions import question_values, read_questions, scored

    questions = read_questions(folder)[:limit]
    by_profile = {}
    for settings in profiles:
        pages = kopub.open(settings.home).pages
        by_profile[settings.profile_name] = list(scored(searcher_of(settings), pages, questions))
    if as_json:
        values = {name: question_values(scores) for name, scores in by_profile.items()}
        print_json({"questions": len(questions), "profiles": values})
        return
    out = table_console()
    columns = [Column("ranked by"), Column("questions"), *right("count", "nDCG@10", "95 %", "precision", "recall")]
    for name, scores in by_profile.items():
        rows: list[list[str]] = []
        for score in scores:
            interval = f"{score.interval[0]:.3f} - {score.interval[1]:.3f}"
            shares = ["-" if value is None else f"{value:.3f}" for value in (score.precision, score.recall)]
            rows.append([score.mode, score.group, f"{score.answered:,}", f"{score.ndcg:.3f}", interval, *shares])
        title = phrase('profile {profile}; precision and recall are those of "matches well"', name)
        print_table(out, columns, rows, title)
        if not scores:
            say(out, "no page of this corpus answers any of the questions: is KOPUB_HOME the right one?", "yellow")


def _list(as_json: bool) -> None:
    from kopub.evaluation.scoring import ADAPTERS

    if as_json:
        named = {name: adapter.says for name, adapter in ADAPTERS.items()} | {MEANING: _MEANING_SAYS}
        print_json([{"benchmark": name, "says": says} for name, says in named.items()])
        return
    out = table_console()
    for name, adapter in ADAPTERS.items():
        say(out, f"{name:<15}{said(adapter.says)}", indent=15)
    say(out, f"{MEANING:<15}{said(_MEANING_SAYS)}", indent=15)


def _profiles(names: Sequence[str]) -> "list[Settings]":
    """Return the settings of each profile.

    Their names must differ, because tables are in a folder with that name.
    """
    from kopub.config.settings import load_settings, read_settings
    from kopub.weights.fetch import require_ready

    for name in names:
        find_profile(name, "--profile ")
    chosen = [read_settings({**os.environ, "KOPUB_PROFILE": name}) for name in names] or [load_settings()]
    profile_names: set[str] = set()
    for settings in chosen:
        if settings.profile_name in profile_names:
            raise ConfigError("two profiles are called {profile}: rename one of their files", settings.profile_name)
        profile_names.add(settings.profile_name)
        require_ready({"layout": settings.layout, "recognition": settings.recognition}, settings.profile_name)
    return chosen


def _evaluate(
    request: "EvaluationRequest", chosen: "Sequence[Settings]", out: Console
) -> "tuple[KnownAnswers, list[Evaluation]]":
    # In a plain string, rich would read parts of a name in brackets as markup.
    from kopub.cli.evaluation_display import reading
    from kopub.tables.evaluations import evaluate as read_and_score
    from kopub.tables.evaluations import prepare_answers, settings_in

    with out.status(Text(f"{request.benchmark} {request.folder}")) as status:
        answers = prepare_answers(request, chosen[0].home, lambda line: status.update(Text(said(line))))
    evaluated = []
    for settings in chosen:
        moved = settings_in(settings, request)
        with reading(moved, out):
            evaluated.append(read_and_score(moved))
    return answers, evaluated


def _write_predictions(
    folder: Path, request: "EvaluationRequest", evaluated: "Sequence[Evaluation]", out: Console
) -> None:
    """Write the predictions, with a folder for each profile if there are several."""
    from kopub.evaluation.home import first_by_hash
    from kopub.evaluation.reading_scores import readings, write_predictions
    from kopub.evaluation.scoring import load

    samples = first_by_hash(load(request.benchmark, request.folder), request.limit)
    for evaluation in evaluated:
        place = folder / evaluation.profile if len(evaluated) > 1 else folder
        texts = dict(readings(evaluation.settings.store, evaluation.settings.corpus.manifest.keys))
        count = write_predictions(place, samples, texts)
        say(out, phrase("wrote {files} to {folder}", counted(count, "file"), place))
