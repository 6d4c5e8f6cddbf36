"""`kopub profiles`: the profiles there are, and which of them were measured."""

import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kopub_cli.display.as_json import print_json
from kopub_cli.display.console import table_console

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
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for column in ("profile", "card", "layout", "reader", "vectors", "figures"):
        table.add_column(column, no_wrap=True)
    for each in found:
        card = "none" if each["card"] is None else f"{each['card']}, {each['memory_gb']:.0f} GB"
        table.add_row(
            each["profile"], card, each["layout"], each["reader"], each["vectors"],
            "measured" if each["measured"] else "estimated",
        )  # fmt: skip
    out = table_console()
    out.print(table)
    out.print(f"in use here: {os.environ.get('KOPUB_PROFILE') or 'cpu'}", markup=False, highlight=False, soft_wrap=True)
    out.print(f"with another reader on a card: --profile rtx4090+{' or +'.join(readers[::-1])}", highlight=False)
    if card := largest_card():
        from resources.doctor.gpus import advice

        out.print(f"this machine: {card}: {advice(card)}", markup=False, highlight=False, soft_wrap=True)
    out.print("from a card to a run: docs/gpu.md", highlight=False)


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
