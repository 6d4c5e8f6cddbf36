"""The sections of profiles that the documentation shows are such that can be copied."""

import re
from pathlib import Path

import pytest
import yaml

from resources.config.profile_files import known_readers
from resources.config.settings import read_settings

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "readers.md").read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_reader_of_the_documentation_makes_a_profile_of_a_gpu(block: str, tmp_path: Path):
    sections = yaml.safe_load(block)
    path = tmp_path / "mine.yaml"
    path.write_text(f"extends: h200\n{block}", "utf-8")
    settings = read_settings({"KOPUB_PROFILE": str(path), "KOPUB_HOME": str(tmp_path)})
    assert settings.recognition.code_version.name == f"recognition.{sections['recognition']['engine']}"


def test_every_gpu_reader_has_its_section():
    engines = {yaml.safe_load(block)["recognition"]["engine"] for block in BLOCKS}
    assert engines | set(known_readers()) == {"glm_ocr", "paddleocr_vl", "deepseek_ocr"}
