"""The ways of a page and of a question in docs/architecture.md are those of the code."""

import re
import subprocess
import sys

import pytest

from tools.walks import PAGE, ROOT


def test_every_module_of_the_walks_exists() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| the command |")]
    assert len(rows) == 2, "a page, and a question"
    named = {module for row in rows for module in re.findall("`([^`]*)`", row)}
    assert "kopub.cli.entry" in named
    assert not {module for module in named if not (ROOT / f"{module.replace('.', '/')}.py").is_file()}


@pytest.mark.slow
def test_the_walks_are_those_of_a_traced_run() -> None:
    traced = subprocess.run(
        [sys.executable, "-m", "tools.walks"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert traced.returncode == 0, traced.stdout + traced.stderr
