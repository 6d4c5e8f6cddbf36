"""Make the databases of a Dagster home: `DAGSTER_HOME=FOLDER python deploy/local/instance.py`."""

import os
import sys
import warnings
from pathlib import Path

from kopub.cli.dagster_home import make_databases, prepare_home
from kopub.errors import KopubError


def main() -> None:
    warnings.simplefilter("ignore")
    try:
        make_databases(prepare_home(Path(os.environ["DAGSTER_HOME"])))
    except KopubError as error:
        sys.exit(f"Error: {error}")


if __name__ == "__main__":
    main()
