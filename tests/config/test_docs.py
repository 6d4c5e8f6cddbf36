"""The profile sections in the documentation can be copied as they are."""

import re
from pathlib import Path

import pytest
import yaml

from kopub.config.profile_files import known_readers
from kopub.config.settings import read_settings

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "readers.md"
BLOCKS = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_a_block_of_the_documentation_is_a_profile(block: str, tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(block, "utf-8")
    settings = read_settings({"KOPUB_PROFILE": str(path), "KOPUB_HOME": str(tmp_path)})
    reader = yaml.safe_load(block)["recognition"].get("engine", "deepseek_ocr")
    assert settings.recognition.code_version.name == f"recognition.{reader}"


def test_every_gpu_reader_has_its_section():
    text = DOCUMENT.read_text("utf-8")
    assert set(known_readers()) == {"glm_ocr", "paddleocr_vl", "deepseek_ocr", "deepseek_pages"}
    assert not [reader for reader in known_readers() if f"`{reader}`" not in text and f"+{reader}`" not in text]
