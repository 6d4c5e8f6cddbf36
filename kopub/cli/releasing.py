"""Publish or verify a release, and print what became of it."""

from dataclasses import asdict
from functools import partial

import typer

from kopub.cli.console import print_json, say, table_console, tell
from kopub.cli.options import first_look_lines, open_settings, require_indexed
from kopub.errors import HubError
from kopub.files import is_url
from kopub.release.fitness import Fitness
from kopub.release.publishing import fitness_of, publish, whole
from kopub.release.row_counts import count_apart
from kopub.release.verify import fetch_release, notes_on, verify
from kopub.states import phrase
from kopub.store.corpus_tables import RELEASED_FILES
from kopub.tables.hf_release import HfRelease

_say = partial(tell, err=True)


def publish_release(dry_run: bool, tag: str | None, as_json: bool) -> None:
    """Publish the release with the name `tag`, or only show what that would do.

    Raises `KopubError`, and `typer.Exit` if a dry run meets a closed gate.
    """
    settings = open_settings()
    require_indexed(settings, [RELEASED_FILES.name])
    about = HfRelease(settings.resources).replace_release(_say, _say)
    for line in first_look_lines(settings.corpus.manifest):
        _say(line)
    if dry_run:
        files = whole(about, settings.release, settings.store)
        fit, lines, unreachable = fitness_of(about, settings.release), None, None
        try:
            lines = list(settings.hub.difference(files, _say).lines()) if settings.hub.repo else None
        except HubError as error:
            unreachable = error  # the gates are those of this machine, so they are shown all the same
        if as_json:
            print_json({"repo": settings.hub.repo or None, "difference": lines, "closed": fit.closed, **asdict(fit)})
        else:
            _show(fit, lines, bool(settings.hub.repo))
        if unreachable is not None:
            raise unreachable
        if fit.closed:
            raise typer.Exit(1)
        return
    pushed = publish(about, settings.release, settings.hub, settings.store, tag, _say)
    for line in pushed.difference.lines():
        tell(line)
    lacking = phrase("{url}; no tag, because the release lacks shards of the corpus", pushed.url)
    tell(phrase("{url}, tag {tag}", pushed.url, pushed.tag) if pushed.tag else lacking)


def _show(fit: Fitness, difference: list[str] | None, has_repo: bool) -> None:
    out = table_console()
    for line in difference or ():
        say(out, line)
    if not has_repo:
        say(out, "no repository: set hub.repo in the profile to compare with one, and to publish")
    gates = (
        ("gates.override", fit.quality, fit.override),
        ("gates.license_override", fit.licences, fit.license_override),
    )
    for gate, problems, reason in gates:
        for problem in problems:
            if reason:
                say(out, phrase("overlooked, {gate} says {override!r}: {reason}", gate, reason, problem), "yellow")
            else:
                say(out, phrase("closed: {reason}", problem), "red")
    for line in fit.unjudged:
        say(out, phrase("not judged: {reason}", line), "yellow")
    keys = [key for key, problems, reason in gates if problems and not reason]
    opened = phrase("the gates are closed; a reason in {keys} opens them", ", ".join(keys))
    say(out, opened if fit.closed else "the gates are open", "red" if fit.closed else "green")


def verify_release(release: str, revision: str | None, as_json: bool) -> None:
    """Print the problems of a release. Raises `KopubError`, and `typer.Exit` if there are any."""
    out = table_console()
    problems = []
    with fetch_release(release, revision) as folder:
        name = release if is_url(release) else str(folder)
        for problem in verify(folder, count=count_apart):
            problems.append(problem)
            if not as_json:
                say(out, problem, "red")
        notes = [] if problems else notes_on(folder)
    if as_json:
        print_json({"release": name, "sound": not problems, "problems": problems, "notes": notes})
    else:
        for note in notes:
            say(out, note, "yellow")
        if not problems:
            say(out, phrase("{release} is sound", name), "green")
    if problems:
        raise typer.Exit(1)
