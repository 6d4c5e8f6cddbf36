"""Evaluate profiles on a benchmark, or the search on questions."""

import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Column
from rich.text import Text

import kopub
from kopub.api.search import home_searcher
from kopub.cli.console import print_json, print_table, right, said, say, table_console, tell
from kopub.cli.evaluation_display import as_json_values, reading, show, write_page
from kopub.cli.options import open_settings
from kopub.config.profile_files import find_profile
from kopub.config.settings import Settings, load_settings, read_settings
from kopub.corrections.gold import write_checked_pages
from kopub.errors import STOPPED_BY_HAND, ConfigError, KopubError, counted
from kopub.evaluation.home import CHECKED_PAGES, EvaluationRequest, first_by_hash
from kopub.evaluation.questions import question_values, read_questions, scored
from kopub.evaluation.reading_scores import readings, write_predictions
from kopub.evaluation.scoring import load
from kopub.states import phrase
from kopub.tables.evaluations import Evaluation, evaluate, prepare_answers, settings_in
from kopub.weights.fetch import require_ready


def evaluate_profiles(
    benchmark: str,
    folder: Path,
    limit: int | None,
    profiles: Sequence[str],
    predictions: Path | None,
    html: Path | None,
    pages: int,
    as_json: bool,
) -> None:
    """Score profiles on a benchmark, print the scores and write what was asked for.

    `pages` is the number of the worst pages in the file `html`. Raises `KopubError`.
    """
    out = Console(stderr=as_json)
    if benchmark == "corrections":
        # The known answers are the pages of this corpus that people checked.
        own = open_settings()
        folder = own.home / CHECKED_PAGES
        write_checked_pages(own.corpus, own.store, folder)
    request = EvaluationRequest(benchmark, folder, limit)
    chosen = _settings_of(profiles)
    evaluated: list[Evaluation] = []
    try:
        # In a plain string, rich would read parts of a name in brackets as markup.
        with out.status(Text(f"{request.benchmark} {request.folder}")) as status:
            answers = prepare_answers(request, chosen[0].home, lambda line: status.update(Text(said(line))))
        for settings in chosen:
            moved = settings_in(settings, request)
            with reading(moved, out):
                evaluated.append(evaluate(moved))
    except KeyboardInterrupt:
        # Finished samples are kept.
        raise SystemExit(STOPPED_BY_HAND) from None
    except RecursionError as error:  # a library's parser on a benchmark that is nested without end
        raise KopubError("the benchmark is nested too deeply to be read: {error}", error) from None
    if predictions is not None:
        samples = first_by_hash(load(request.benchmark, request.folder), request.limit)
        for evaluation in evaluated:
            place = predictions / evaluation.profile if len(evaluated) > 1 else predictions
            texts = dict(readings(evaluation.settings.store, evaluation.settings.corpus.manifest.keys))
            count = write_predictions(place, samples, texts)
            say(out, phrase("wrote {files} to {folder}", counted(count, "file"), place))
    if html is not None:
        write_page(html, answers, evaluated, pages)
        say(out, phrase("wrote {path}", html))
    if as_json:
        print_json(as_json_values(request, answers, evaluated))
    else:
        show(answers, evaluated, table_console())


def ask_questions(folder: Path, profiles: Sequence[str], limit: int | None, as_json: bool) -> None:
    """Show how well the questions of a folder or file find their pages. Raises `KopubError`."""
    chosen = _settings_of(profiles)
    questions = read_questions(folder)[:limit]
    by_profile = {}
    for settings in chosen:
        searcher = home_searcher(settings, settings.corpus, settings.store, lambda line: tell(line, err=True))
        pages = kopub.open(settings.home).pages
        by_profile[settings.profile_name] = list(scored(searcher, pages, questions))
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


def _settings_of(names: Sequence[str]) -> list[Settings]:
    """Return the settings of each profile.

    Their names must differ, because tables are in a folder with that name.
    """
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
