"""The entry of the command `kopub`, which ends in one line when stopped."""

import sys


def main() -> None:
    """Load the commands and run the one typed."""
    try:
        from kopub.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        # As in shells, 128 plus the number of the signal.
        sys.exit(130)
