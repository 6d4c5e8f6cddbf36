"""`make setup` installs the checkout itself, not a copy that would hide edited files."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("kopub", "kopub_assets", "resources")
FIND = f"from importlib.util import find_spec; print(*(find_spec(name).origin for name in {NAMES}))"


def test_modules_are_those_of_the_checkout(tmp_path: Path):
    found = subprocess.run([sys.executable, "-c", FIND], cwd=tmp_path, capture_output=True, text=True, check=True)
    places = [ROOT / name / "__init__.py" for name in NAMES]
    assert found.stdout.split() == [str(place) for place in places]
