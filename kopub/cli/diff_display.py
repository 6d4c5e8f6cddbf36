"""Two versions of a shard, on a terminal, in HTML and as JSON values."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Column
from rich.text import Text

from kopub.cli.console import print_json, print_table, right, said, say, table_console, tell
from kopub.cli.evaluation_display import picture_of
from kopub.config.settings import load_settings
from kopub.diff.compare import Damage, ShardDiff, compare
from kopub.diff.html import EmbeddedPicture, Upgrade, render
from kopub.errors import KopubError, counted, visible
from kopub.files import replace_bytes
from kopub.states import joined, phrase
from kopub.store.corpus_tables import TABLES
from kopub.tables.lineage import CURRENT, PREVIOUS, compared_tables, edition, upgrades_between

if TYPE_CHECKING:
    from kopub.texts.regions import Region

_LISTED = 20
"""Most pages listed on a terminal; the files have them all."""
_LINE = 200
"""Most characters of an engine's difference: two revisions, or the beginnings of two prompts."""
_PICTURE_BYTES = 100_000
"""Most bytes of a page's picture in the HTML file, enough to read the print."""


def show_difference(old: str, new: str, html: Path | None, pages: int, as_json: bool) -> None:
    """Show what differs between two versions of a shard.

    `old` and `new` are addresses as `kopub diff` takes them. The file `html`, if given, has pictures of the worst
    `pages`. Raises `KopubError`.
    """
    settings = load_settings()
    store = settings.store
    shard, _, version = old.partition("@")
    other, _, new_version = (new or shard).partition("@")
    old_name, new_name = version or PREVIOUS, new_version or CURRENT
    if other != shard:
        raise KopubError("{old} and {new} are different shards: name two versions of one shard", old, new)
    settings.corpus.manifest.shard(shard)
    versions = edition(store, shard, old_name), edition(store, shard, new_name)
    tables = compared_tables(store, shard, *versions)
    upgrades = upgrades_between(store, shard, *versions)
    difference = compare(*tables)
    if html is not None:
        raw = tables[1].get(TABLES.pages.name, tables[0].get(TABLES.pages.name))
        rows = {row["page_id"]: row for row in raw.to_pylist()} if raw is not None else {}

        def picture(page_id: str) -> EmbeddedPicture | None:
            # A page may no longer be in the source.
            if (row := rows.get(page_id)) is None:
                return None
            return picture_of(settings.corpus, shard, row, _PICTURE_BYTES)

        page = render(shard, (old_name, new_name), difference, upgrades, picture, pages)
        replace_bytes(html, page.encode("utf-8", "backslashreplace"))
    if as_json:
        shown = {"shard": shard, "old": old_name, "new": new_name, "upgrades": list(map(asdict, upgrades))}
        print_json({**shown, **_as_json(difference)})
    else:
        _show(shard, (old_name, new_name), difference, upgrades, table_console())
        if html is not None:
            tell(phrase("wrote {path}", html))


def _show(shard: str, names: tuple[str, str], difference: ShardDiff, upgrades: list[Upgrade], out: Console) -> None:
    say(out, phrase("{shard}: {old} and {new}", shard, visible(names[0]), visible(names[1])), "bold")
    for upgrade in upgrades:
        why = "; ".join(visible(said(line), _LINE) for line in upgrade.differences) or said("what it was made from")
        say(out, f"{upgrade.asset}  {upgrade.old} → {upgrade.new}  {why}")
    form = "{count} of {pages} differs" if len(difference.changed) == 1 else "{count} of {pages} differ"
    say(out, phrase(form, len(difference.changed), counted(difference.pages, "page")))
    form = (
        "regions   {added} added, {removed} removed, {moved} moved, {relabelled} relabelled, {text} with changed text"
    )
    say(out, phrase(form, *(difference.kinds[kind] for kind in ("added", "removed", "moved", "relabelled", "text"))))
    form = "text      {lost:,} characters lost, {changed:,} changed, {added:,} added, {numbers:,} numbers"
    say(out, phrase(form, *(getattr(difference.damage, name) for name in ("lost", "changed", "added", "numbers"))))
    labels: list[str] = []
    for label, (old, new) in difference.labels.items():
        if old != new:
            labels.append(f"{visible(label)} {old} → {new}")
    say(out, phrase("labels    {labels}", ", ".join(labels) or "as many of each as before"))
    for asset, change in difference.vectors.items():
        line = change.problem or phrase("cosine {mean:.4f} on average over {count}", change.mean, change.compared)
        for cosine, row_id in change.lowest[:1]:
            line = joined([line, phrase("lowest {cosine:.4f} {row}", cosine, visible(row_id))], "{first}, {then}")
        say(out, phrase("{asset}  {reason}", asset, line))
    if not difference.changed:
        return
    out.print()
    rows: list[list[str | Text]] = []
    for page in difference.changed[:_LISTED]:
        harm = page.damage
        counts = (f"{number:,}" for number in (harm.score, harm.lost, harm.changed, harm.added, harm.numbers))
        regions = f"{len(page.old)} → {len(page.new)}" if len(page.old) != len(page.new) else str(len(page.new))
        states: list[str] = []
        for asset, (old, new) in page.states.items():
            states.append(f"{asset}: {said(old or 'absent')} → {said(new or 'absent')}")
        rows.append([visible(page.page_id), *counts, regions, Text(", ".join(states), "red")])
    figures = right("damage", "lost", "changed", "added", "numbers", "regions")
    print_table(out, [Column("page"), *figures, Column("state", overflow="fold")], rows)
    if len(difference.changed) > _LISTED:
        say(out, phrase("{count} more", len(difference.changed) - _LISTED))


def _region(region: "Region | None") -> dict[str, Any] | None:
    if region is None:
        return None
    values = region.to_dict()
    return {name: values[name] for name in ("index", "label", "bbox", "content", "state")}


def _as_json(difference: ShardDiff) -> dict[str, Any]:
    def scored(damage: Damage) -> dict[str, int]:
        return {"score": damage.score, **asdict(damage)}

    changed: list[dict[str, Any]] = []
    for page in difference.changed:
        changes: list[dict[str, Any]] = []
        for change in page.changes:
            regions = {"old": _region(change.old), "new": _region(change.new)}
            changes.append({"kinds": change.kinds, "iou": change.iou, **regions, "damage": scored(change.damage)})
        changed.append(
            {
                "page_id": page.page_id,
                "states": {asset: {"old": old, "new": new} for asset, (old, new) in page.states.items()},
                "damage": scored(page.damage),
                "regions": {"old": len(page.old), "new": len(page.new)},
                "changes": changes,
            }
        )
    return {
        "pages": difference.pages,
        "kinds": dict(difference.kinds),
        "damage": scored(difference.damage),
        "labels": {label: {"old": old, "new": new} for label, (old, new) in difference.labels.items()},
        "vectors": {asset: asdict(change) for asset, change in difference.vectors.items()},
        "changed": changed,
    }
