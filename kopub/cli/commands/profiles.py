"""`kopub profiles`: profiles, the readers that fit their cards, and measurements."""

from typing import Annotated

import typer


def profiles(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of tables.")] = False,
) -> None:
    """List the profiles with card and engines, and which readers fit on each card.

    `measured` was measured on that card, `estimated` takes its sizes from another card, and `does not fit` exceeds the
    card's memory by calculation: `kopub doctor --profile CARD+READER` shows the sums.
    """
    # It loads Arrow and the engines.
    from kopub.cli.profile_list import list_profiles

    list_profiles(as_json)
