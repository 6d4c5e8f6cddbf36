"""Make the databases of Dagster's home: `DAGSTER_HOME=FOLDER python deploy/local/instance.py`.

Dagster makes them when the first command needs them, and two commands that do so at the same moment fail.
"""

import os
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path

from filelock import FileLock

from kopub_cli.dagster_home import prepared
from resources.errors import KopubError

DONE = ".databases_made"


def main() -> None:
    try:
        home = prepared(Path(os.environ["DAGSTER_HOME"]))
    except KopubError as error:
        sys.exit(f"Error: {error}")
    with FileLock(home / f"{DONE}.lock"):
        if (home / DONE).exists():
            return
        warnings.simplefilter("ignore")
        # Slow to load, and every `make` comes by here.
        import dagster as dg

        with dg.DagsterInstance.get() as instance, redirect_stdout(None):
            instance.upgrade()
        (home / DONE).touch()


if __name__ == "__main__":
    main()
