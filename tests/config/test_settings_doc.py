"""docs/settings.md is generated from the fields, and lists all of them."""

import re
from collections.abc import Iterator

import pytest

from kopub.config.environment import VARIABLES
from kopub.config.profile import OTHERS, PROTOCOLS, engine_section, find_engines, load_engine, section_of
from kopub.config.profile_files import Pin
from kopub.vllm.server import VLLMServer
from tools import settings_doc


def described() -> Iterator[tuple[str, str, str | None]]:
    """Yield the heading, name and description of every key."""
    sections = {"server": section_of(VLLMServer), **OTHERS, "profiles/models.yaml": Pin}
    found = find_engines()
    for section in PROTOCOLS:
        for name in found[section]:
            sections[f"{section}.engine: {name}"] = engine_section(name, load_engine(section, name, found))
    for heading, section in sections.items():
        for key, field in section.model_fields.items():
            yield heading, key, field.description


KEYS = [(heading, key, description) for heading, key, description in described() if key != "engine"]


def test_the_file_is_up_to_date():
    assert settings_doc.DOC.read_text("utf-8") == settings_doc.document(), "run `python -m tools.settings_doc`"


def test_every_key_and_variable_is_in_it():
    parts = re.split(r"^##+ `(.*)`$", settings_doc.DOC.read_text("utf-8"), flags=re.MULTILINE)
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    assert [key for heading, key, _ in KEYS if f"\n| `{key}` | " not in bodies[heading]] == []
    assert [name for name in VARIABLES if f"| `{name}` | " not in parts[0]] == []
    assert "| `shards_per_run` | " in parts[0]


def test_every_key_has_a_description():
    assert [(heading, key) for heading, key, description in KEYS if not description] == []


def test_the_check_says_what_to_do(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["settings_doc", "--check"])
    settings_doc.main()
    monkeypatch.setattr(settings_doc, "document", lambda: "# Other")
    with pytest.raises(SystemExit, match=r"not up to date: run `python -m tools.settings_doc`"):
        settings_doc.main()
