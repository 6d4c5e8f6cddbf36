"""`kopub corrections`: what people corrected, what became of it, how to undo it, and annotations as corrections."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from kopub.cli.console import said, say, table_console, tell
from kopub.cli.options import local_path, open_located, user_name
from kopub.corrections.corrected import CorrectedTables, CorrectionStanding
from kopub.corrections.log import Action, Correction, CorrectionLog
from kopub.documents.label_studio import add_annotations, annotated_pages
from kopub.errors import ConfigError, KopubError, counted, visible
from kopub.states import phrase
from kopub.store.corpus_tables import TABLES

if TYPE_CHECKING:
    from kopub.config.environment import Location

_SHOWN = 60
"""Most characters of the old and the new text in a line."""


def corrections(
    unplaced: Annotated[
        bool, typer.Option("--unplaced", help="Only corrections that no region matches any more.")
    ] = False,
    undo: Annotated[str, typer.Option(metavar="ID", help="Take back the correction of this id.")] = "",
    reason: Annotated[str, typer.Option(help="Reason for taking it back.")] = "",
    label_studio: Annotated[
        Path | None,
        typer.Option(
            parser=local_path, metavar="FILE", help="Add what people changed in Label Studio: its export as JSON."
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line, including what was undone.")
    ] = False,
) -> None:
    """List what people corrected in `kopub browse --edit`, and what became of it.

    A correction belongs to its box: if no region matches it after a change of layout or reader, it is "unplaced".
    """
    if reason and not undo:
        raise ConfigError("--reason needs --undo: add it")
    located = open_located()
    if label_studio is not None:
        _add_annotations(located, label_studio)
        return
    standings = CorrectedTables(located.store).standings(located.manifest.keys)
    if undo:
        _undo(standings, undo, reason)
        return
    listed: list[tuple[Correction, str]] = []
    for page in standings:
        listed += [(correction, _state(page, correction)) for correction in page.done.every]
    if as_json:
        for correction, state in listed:
            if not unplaced or state == "unplaced":
                entry = {**asdict(correction), "at": correction.at.isoformat(), "standing": state}
                typer.echo(json.dumps(entry, ensure_ascii=False))
        return
    out = table_console()
    for correction, state in listed:
        if state == "unplaced" or (not unplaced and state != "undone"):
            say(out, _line(correction, state))
    states = [state for _, state in listed]
    checked = sum(page.done.checked is not None for page in standings)
    lost = states.count("unplaced")
    placed = states.count("placed")
    pages = counted(sum(bool(page.done.changes) for page in standings), "page")
    form = "{corrections} on {pages}: {placed} placed, {unplaced} unplaced; {checked} checked"
    counts = (counted(placed + lost, "correction"), pages, placed, lost, counted(checked, "page"))
    say(out, phrase(form, *counts), "yellow" if lost else "")


def _add_annotations(located: "Location", path: Path) -> None:
    shards: dict[str, str] = {}
    for shard in located.manifest.keys:
        if located.store.has(TABLES.pages.name, shard):
            page_ids = located.store.read(TABLES.pages.name, shard, ["page_id"])["page_id"].to_pylist()
            shards |= dict.fromkeys(page_ids, shard)
    log, added, refused = CorrectionLog(located.store), 0, []
    pages = annotated_pages(path, shards, user_name())
    for page in pages:
        try:
            added += add_annotations(log, page)
        except KopubError as error:
            refused.append(said(str(error)))
    for line in refused:
        tell(visible(line), err=True)
    tell(
        phrase(
            "{corrections} added from {pages}; `kopub run` uses them",
            counted(added, "correction"),
            counted(len(pages), "annotated page"),
        )
    )
    if refused:
        raise typer.Exit(1)


def _undo(standings: list[CorrectionStanding], wanted: str, reason: str) -> None:
    matches: list[tuple[CorrectionStanding, Correction]] = []
    for page in standings:
        matches += [(page, correction) for correction in page.done.every if correction.id.startswith(wanted)]
    if len(matches) != 1:
        raise KopubError(
            "{count} corrections have the id {id!r}: see `kopub corrections`", len(matches) or phrase("no"), wanted
        )
    page, correction = matches[0]
    if correction.action is not Action.UNDO and _state(page, correction) == "undone":
        # A second undo would have to be undone as well, before the correction is back.
        raise KopubError("the correction {id!r} is undone already: see `kopub corrections --json`", wanted)
    log = CorrectionLog(open_located().store)
    shard = page.shard or correction.shard
    log.add(Correction(correction.page_id, shard, Action.UNDO, user_name(), after=correction.id, reason=reason))
    form = "undone: {action} of {page}; `kopub run` makes its rows again"
    tell(phrase(form, said(correction.action), visible(correction.page_id)))


def _state(page: CorrectionStanding, correction: Correction) -> str:
    """Return what became of a correction, in a word or two."""
    if correction not in page.done.lasting:
        return "undone"
    if correction.action == "checked":
        if page.done.checked is not correction:
            return "checked before it was corrected"
        return "checked, reads otherwise now" if page.differs else "checked"
    return "unplaced" if correction in page.unplaced else "placed"


def _line(correction: Correction, state: str) -> Text:
    change = ""
    if correction.action not in ("checked", "order"):
        change = f"  {_short(correction.before)} → {_short(correction.after)}"
    return Text.assemble(
        (f"{correction.id[:8]}  ", "dim"),
        (visible(correction.page_id), "bold"),
        f"  {said(correction.action)}",
        change,
        (f"  {visible(correction.author)}, {correction.at:%Y-%m-%d %H:%M}", "dim"),
        (f"  {said(state)}", "yellow" if state == "unplaced" else "green"),
        f"  {visible(correction.reason)}" if correction.reason else "",
    )


def _short(text: str) -> str:
    return visible(" ".join(text.split()), _SHOWN)
