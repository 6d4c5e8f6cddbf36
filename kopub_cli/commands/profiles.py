"""`kopub profiles`: the profiles there are, and which of them were measured."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Column

from kopub_cli.display.console import print_json, print_table, say, table_console

if TYPE_CHECKING:
    from resources.config.profile_files import Profile


def profiles(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """List the profiles with card, layout, reader and vectors, and whether they were measured on the card."""
    from resources.config.profile_files import find_profile, known_profiles, known_readers
    from resources.gpu.cards import largest_card

    found = [_values(find_profile(name)) for name in known_profiles()]
    readers = known_readers()
    if as_json:
        print_json({"profiles": found, "readers": readers})
        return
    out = table_console()
    columns = [Column(name) for name in ("profile", "card", "layout", "reader", "vectors", "speed")]
    print_table(out, columns, map(_cells, found))
    say(out, f"in use here: {os.environ.get('KOPUB_PROFILE') or 'cpu'}")
    say(out, f"with another reader on a card: --profile rtx4090+{' or +'.join(readers[::-1])}")
    if card := largest_card():
        from resources.doctor.gpus import advice

        say(out, f"this machine: {card}: {advice(card)}")
    say(out, "from a card to a run: docs/gpu.md")


def _cells(values: dict[str, Any]) -> list[str]:
    card = "none" if values["card"] is None else f"{values['card']}, {values['memory_gb']:.0f} GB"
    speed = "measured" if values["measured"] else "estimated"
    return [values["profile"], card, values["layout"], values["reader"], values["vectors"], speed]


def _values(profile: "Profile") -> dict[str, Any]:
    """As JSON values; what is measured without a card was measured on a laptop's CPU."""
    card, engines = profile.card, profile.sections
    return {
        "profile": profile.name,
        "card": card and card.gpu,
        "memory_gb": card and card.memory_gb,
        "layout": engines["layout"]["engine"],
        "reader": engines["recognition"]["engine"],
        "vectors": engines["embedding"]["engine"],
        "measured": card is None or card.measured,
    }
