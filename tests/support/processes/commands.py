"""`kopub` commands in the test process, where the Hub's client knows only the double."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from unittest.mock import patch

from kopub.cli.main import main
from kopub.config.settings import load_settings
from tests.support.processes.forked import inherited


def kopub(environment: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command with `environment`, and return its output and exit status."""
    load_settings.cache_clear()
    with (
        patch.dict(os.environ, {**inherited(), **environment}, clear=True),
        patch.object(sys, "argv", ["kopub", *command]),
        redirect_stdout(StringIO()) as said,
        redirect_stderr(StringIO()) as complained,
    ):
        status: int | str | None = 0
        try:
            main()
        except SystemExit as ended:
            status = ended.code
        finally:
            load_settings.cache_clear()
    return subprocess.CompletedProcess(list(command), int(status or 0), said.getvalue(), complained.getvalue())
