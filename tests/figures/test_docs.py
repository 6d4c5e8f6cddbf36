"""What docs/figures.md says to write into a profile is a profile."""

import re
from pathlib import Path

import pytest
import yaml

from resources.config.places import PROFILES
from resources.config.profile_files import find_profile, read_profile
from resources.config.settings import Settings
from resources.figures.chat.noter import ChatNoter

DOC = Path(__file__).resolve().parents[2] / "docs" / "figures.md"


@pytest.mark.parametrize("profile", ["h200", "rtx4090"])
def test_the_sections_of_the_document_fit_a_profile(profile: str, tmp_path: Path) -> None:
    written = find_profile(profile).sections
    for block in re.findall(r"```yaml\n(.*?)```", DOC.read_text("utf-8"), re.DOTALL):
        written |= yaml.safe_load(block)
    settings = Settings.of(tmp_path, written, profile)
    assert settings.figures.vectors
    assert isinstance(settings.notes, ChatNoter)
    assert settings.notes.server.model == "Qwen/Qwen3-VL-4B-Instruct"
    assert settings.engines.keys() == {"layout", "recognition", "embedding", "notes"}


def test_no_profile_that_ships_makes_anything_of_figures(tmp_path: Path) -> None:
    for path in PROFILES.glob("*.yaml"):
        if path.stem != "models":
            settings = Settings.of(tmp_path, read_profile(path), path.stem)
            assert settings.notes.off
            assert not settings.figures.vectors
