"""`kopub doctor`: whether this machine can run the profile, and reads correctly."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.text import Text

from kopub.cli.console import print_json, said, say, table_console
from kopub.cli.options import corpus_check, local_file
from kopub.errors import ConfigError, counted, visible
from kopub.files import replace_bytes
from kopub.states import phrase

if TYPE_CHECKING:
    from kopub.config.settings import Settings
    from kopub.doctor.card_report import CardMeasurement
    from kopub.doctor.checks import Finding

_STYLES = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_INDENT = 9
"""Columns by which further lines are indented, below the first word after the longest level."""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Check only the machine, and load no model.")] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Measure speed and memory too, for a report to send in.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(parser=local_file, metavar="FILE", help="Also write the report of --full as JSON into this file."),
    ] = None,
) -> None:
    """Check whether this machine can run the profile, and read the sample pages with its engines.

    It prints a line for each finding, with what to do about it. The machine comes first; if it has no problem, the
    sample pages are read as a run reads them, and regions, characters and vectors are compared with what they should
    be. The result is kept: `kopub lineage` and the card of a release show it, and a run refuses an engine that failed.
    The exit status is 1 if there is a problem.

    With --full the pages are then read for speed, with the card watched, and the last lines are a report of this card
    to paste into an issue. No path, host, user or key of this machine is in it.
    """
    from kopub.config.settings import load_settings

    if full and quick:
        raise ConfigError("--quick and --full cannot be combined: choose one")
    if out and not full:
        raise ConfigError("--out needs --full: add it")
    settings = load_settings()
    measurement = None
    if full:
        from kopub.doctor.card_report import CardMeasurement, require_cards
        from kopub.doctor.checks import ask_torch, need_gpus
        from kopub.doctor.self_test import read_samples

        seen = ask_torch() if need_gpus(settings.engines) else {}
        require_cards(settings, seen)
        measurement = CardMeasurement(settings, read_samples(), seen)
    console = table_console()
    findings: list[Finding] = []
    # At a terminal, the current work is shown below the findings.
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
    hidden = as_json or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        for finding in _examine(settings, quick, measurement, progress):
            findings.append(finding)
            if not as_json:
                _show(finding, console)
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        shown = {"profile": settings.profile_name, "well": not problems, "findings": list(map(asdict, findings))}
        card = {"card": measurement.report()} if measurement else {}
        print_json(shown | card)
    else:
        well = "the machine is fit for it" if quick else "ready"
        ended = counted(problems, "problem") if problems else well
        say(console, phrase("profile {profile}: {reason}", settings.profile_name, ended))
    if measurement and measurement.stages:
        if not as_json:
            from kopub.doctor.card_report import as_text

            say(console, "The lines below are a report of this card: please paste them into an issue of KoPub.")
            typer.echo(f"\n{as_text(measurement.report())}")
        # The report is printed first, because measuring takes minutes and this may fail.
        if out:
            replace_bytes(out, json.dumps(measurement.report(), ensure_ascii=False, indent=1).encode())
    if problems:
        raise typer.Exit(1)


def _examine(
    settings: "Settings", quick: bool, measurement: "CardMeasurement | None", progress: Progress
) -> "Iterator[Finding]":
    from kopub.cli.score_lines import scripts_not_read
    from kopub.doctor.checks import is_well, warning
    from kopub.doctor.environment import examine
    from kopub.doctor.self_test import Engines, read_samples, self_test

    task = progress.add_task(said("looking at the machine"), total=None)

    def reads(file: str, size: int) -> None:
        progress.update(task, description=said(phrase("hashing {file}, {size:.2f} GB", file, size / 1e9)))

    def works(what: str, done: int, total: int) -> None:
        progress.update(task, description=said(what), completed=done, total=total or None)

    environment = []
    for finding in examine(settings, step=reads):
        environment.append(finding)
        yield finding
    # Without a store there is nothing to read, which the store's own line reports.
    if is_well(environment):
        is_of_corpus = corpus_check(settings.corpus.manifest, settings.store).look()
        for script in scripts_not_read(settings, is_of_corpus):
            yield warning("scripts", script.says, script.do)
    if quick:
        return
    if not is_well(environment):
        yield warning("self-test", "the samples were not read", "fix the problems above, then run `kopub doctor` again")
        return
    progress.update(task, description=said("loading the layout"), total=None)
    engines = Engines(settings.layout, settings.recognition, settings.embedding)
    with _server_lines(lambda line: progress.update(task, description=line)):
        if measurement:
            yield from measurement.run(works)
        else:
            yield from self_test(engines, read_samples(), settings.home, works)


@contextmanager
def _server_lines(tell: Callable[[str], object]) -> Iterator[None]:
    """Report the progress of starting a server, which can take minutes."""
    import dagster as dg

    class Teller(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            tell(record.getMessage())

    log, teller = dg.get_dagster_logger("vllm"), Teller(logging.INFO)
    log.addHandler(teller)
    try:
        yield
    finally:
        log.removeHandler(teller)


def _show(finding: "Finding", out: Console) -> None:
    level = said(finding.level)
    line = Text.assemble(
        (f"{level}{' ' * max(1, _INDENT - cell_len(level))}", _STYLES[finding.level]),
        (f"{said(finding.check)}  ", "bold"),
        visible(said(finding.says)),
    )
    say(out, line, indent=_INDENT)
    if finding.do:
        say(out, f"{'':<{_INDENT}}{visible(said(finding.do))}", indent=_INDENT)
