"""Where the command `kopub` begins: one that is stopped while it still loads ends in one line, too."""

import sys


def main() -> None:
    """Load the commands and run the one that was typed."""
    try:
        from kopub_cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        # As shells have it: 128 and the number of the signal.
        sys.exit(130)
