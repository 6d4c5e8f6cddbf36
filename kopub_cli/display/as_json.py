"""What the commands print with `--json`; docs/json.md has the shape of each."""

import json
from typing import Any

import typer


def print_json(value: Any) -> None:
    """One JSON value on standard output, Hangul as it is."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=1))
