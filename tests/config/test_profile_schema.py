"""Editors check profiles by a JSON Schema that is made from the settings."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from kopub.config.settings import PINS, PROFILES, ROOT
from tools.profile_schema import SCHEMA, schema

FILES = [*(file for file in PROFILES.rglob("*.yaml") if file != PINS), ROOT / "docs/examples/engine/profile.yaml"]


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    jsonschema.Draft202012Validator.check_schema(written := json.loads(SCHEMA.read_text("utf-8")))
    return jsonschema.Draft202012Validator(written)


def test_the_file_is_up_to_date():
    assert SCHEMA.read_text("utf-8") == schema(), "run `python -m tools.settings_doc`"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_profile_names_the_schema_and_obeys_it(file: Path, validator: jsonschema.Draft202012Validator):
    text = file.read_text("utf-8")
    named = re.match(r"# yaml-language-server: \$schema=(.+)\n", text)
    assert named
    assert (file.parent / named[1]).resolve() == SCHEMA.resolve()
    assert list(validator.iter_errors(yaml.safe_load(text))) == []


@pytest.mark.parametrize(
    "profile",
    [
        {"layuot": {"engine": "cpu"}},
        {"recognition": {"engine": "tesseract", "langages": ["kor"]}},
        {"extends": "h200", "recognition": {"server": {"max_num_seq": 8}}},
        {"gates": {"overide": "tested by hand"}},
        {"cards": {8: {"recognition": {"server": {"max_num_seqs": "many"}}}}},
    ],
    ids=lambda profile: next(iter(profile)),
)
def test_a_typo_is_refused(profile: dict[str, Any], validator: jsonschema.Draft202012Validator):
    assert not validator.is_valid(profile)
