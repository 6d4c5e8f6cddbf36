"""`kopub publish`, `pull` and `verify`: a release and the profile's repository or weights."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from kopub.cli.console import print_json, said, say, table_console, tell
from kopub.cli.options import first_look_lines, open_settings, require_indexed, require_named
from kopub.config.settings import read_settings
from kopub.doctor.checks import find_idle_card
from kopub.errors import ConfigError, HubError, visible
from kopub.files import is_url
from kopub.release.publishing import fitness_of, whole
from kopub.release.publishing import publish as push
from kopub.states import phrase
from kopub.store.corpus_tables import RELEASED_FILES
from kopub.tables.hf_release import HfRelease
from kopub.weights.fetch import check_cache, fetch, listed_online, require_room
from kopub.weights.files import WeightsFile, fetch_file
from kopub.weights.hub import Weights, cache_folder, pinned_weights

if TYPE_CHECKING:
    from kopub.release.fitness import Fitness


def publish(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the gates, and what the repository lacks if one is configured.")
    ] = False,
    tag: Annotated[str, typer.Option(help="Name of the tag; by default made from the contents.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="With --dry-run: one JSON object instead of lines.")] = False,
) -> None:
    """Push the release to hub.repo, check every hash there, and tag it."""
    if as_json and not dry_run:
        raise ConfigError("--json needs --dry-run: add it")
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
    pushed = push(about, settings.release, settings.hub, settings.store, tag or None, _say)
    for line in pushed.difference.lines():
        tell(line)
    lacking = phrase("{url}; no tag, because the release lacks shards of the corpus", pushed.url)
    tell(phrase("{url}, tag {tag}", pushed.url, pushed.tag) if pushed.tag else lacking)


def _show(fit: "Fitness", difference: list[str] | None, has_repo: bool) -> None:
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


def _say(line: str) -> None:
    tell(line, err=True)


def pull() -> None:
    """Fetch the weights that the profile pins, and verify them: sizes and hashes as the Hub lists them.

    What was fetched before is kept, an interrupted download resumes, and a damaged file is fetched again.
    """
    settings = read_settings(os.environ)
    pins = pinned_weights(settings.engines)
    files: list[WeightsFile] = []
    for engine in settings.engines.values():
        files += engine.weights_files()
    for file in files:
        if not file.is_whole:
            with _bars():
                fetch_file(file)
        tell(phrase("{path}: {size:.1f} MB, its hash is the pinned one", file.path, file.path.stat().st_size / 1e6))
    if pins:
        _pull(pins)
    elif not files:
        tell(phrase("The profile {profile} takes no weights from the Hub.", settings.profile_name))
        if idle := find_idle_card(settings.engines):
            tell(phrase("{finding}: {remedy}", idle.says, idle.do))


def _pull(pins: Sequence[Weights]) -> None:
    with Console(stderr=True).status(said("hashing what is there")):
        lists = {pin: listed_online(pin) for pin in pins}
        cached = {pin: check_cache(pin, lists[pin]) for pin in pins}
    for pin in pins:
        size, there = sum(file.size for file in lists[pin]), cached[pin].bytes
        lacking = "" if there >= size else phrase(", {size:.2f} of it in the cache", there / 1e9)
        tell(phrase("{weights}: {size:.2f} GB{lacking}", pin, size / 1e9, lacking))
        for name, what in cached[pin].damaged.items():
            tell(phrase("  {file} is damaged ({reason}) and is fetched again", visible(name), what))
    to_fetch = 0
    incomplete: list[Weights] = []
    for pin in pins:
        left = [file.size for file in lists[pin] if file.path not in cached[pin].whole]
        to_fetch += sum(left) - cached[pin].partial_bytes
        incomplete += [pin] if left else []
    require_room(to_fetch)
    if to_fetch:
        tell(phrase("{size:.2f} GB to fetch into {folder}", to_fetch / 1e9, cache_folder()))
    for pin in incomplete:
        with _bars():
            cached[pin] = fetch(pin, lists[pin], cached[pin])
    total = sum(files.bytes for files in cached.values())
    tell(phrase("{folder}: {size:.2f} GB, sizes and hashes are the Hub's", cache_folder(), total / 1e9))


@contextmanager
def _bars() -> Iterator[None]:
    """Show the progress bars of the Hub's client, but only at a terminal.

    In a log they would add a line every tenth of a second.
    """
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    silent = are_progress_bars_disabled()
    if not Console(stderr=True).is_terminal:
        disable_progress_bars()
    try:
        yield
    finally:
        if not silent:
            enable_progress_bars()


def verify(
    release: Annotated[
        str,
        typer.Argument(metavar="RELEASE", help="Folder or URL of a release, or a repository, `owner/name`."),
    ],
    revision: Annotated[
        str | None, typer.Option(help="Tag, branch or commit of a repository; by default main.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of lines.")] = False,
) -> None:
    """Check every file, hash, count, column and join of RELEASE, and that every row loads; print a line per problem."""
    from kopub.release.row_counts import count_apart
    from kopub.release.verify import fetch_release, notes_on
    from kopub.release.verify import verify as problems_of

    require_named(release)
    if revision is not None and (is_url(release) or Path(release).is_dir()):
        raise ConfigError("--revision is of a repository: leave it out for a folder or a URL")
    out = table_console()
    problems = []
    with fetch_release(release, revision) as folder:
        name = release if is_url(release) else str(folder)
        for problem in problems_of(folder, count=count_apart):
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
