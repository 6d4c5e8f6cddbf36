"""The entry of the command `kopub`, which ends in one line when stopped."""

import gettext
import sys


def main() -> None:
    """Load the commands and run the one typed."""
    try:
        # Typer asks gettext for its own words.
        gettext.gettext = _in_users_language
        from kopub.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        # As in shells, 128 plus the number of the signal.
        sys.exit(130)


def _in_users_language(message: str) -> str:
    from kopub.cli.console import said

    return said(message, filled=False)
