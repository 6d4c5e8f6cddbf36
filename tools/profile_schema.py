"""The JSON Schema by which editors complete and check profiles, made from the fields of their sections."""

import json
from typing import Any

from pydantic.json_schema import models_json_schema

from kopub.config.profile import OTHERS, PROTOCOLS, engine_section, find_engines, load_engine, profile_model
from kopub.config.profile_files import Card, PublishedReader
from kopub.folders import PROFILES

SCHEMA = PROFILES / "profile.schema.json"
PROJECT = "kopub"


def schema() -> str:
    """Return the schema of profiles and of the additions in `readers/`, as JSON."""
    found = find_engines()
    engines = {
        section: {
            name: engine_section(name, load_engine(section, name, found))
            for name, points in found[section].items()
            # Other packages document their own engines.
            if any(point.dist and point.dist.name == PROJECT for point in points)
        }
        for section in PROTOCOLS
    }
    profile = profile_model({})
    models = [profile, Card, PublishedReader, *(model for named in engines.values() for model in named.values())]
    references, definitions = models_json_schema([(model, "validation") for model in models])
    for definition in definitions["$defs"].values():
        # A profile that extends another says only what differs.
        definition.pop("required", None)
    sections = {
        section: {
            "anyOf": [
                *(references[model, "validation"] for model in named.values()),
                {"required": ["engine"], "properties": {"engine": {"not": {"enum": list(named)}}}},
                {"type": "null"},
            ]
        }
        for section, named in engines.items()
    }
    keys: dict[str, Any] = definitions["$defs"].pop(profile.__name__)["properties"]
    keys |= {section: {"anyOf": [keys[section], {"type": "null"}]} for section in OTHERS}
    addition = {"type": "object", "properties": keys | sections, "additionalProperties": False}
    whole = {
        "extends": {"type": "string", "description": "Name or path of the profile that this one changes."},
        "card": references[Card, "validation"],
        "reader": references[PublishedReader, "validation"],
        "cards": {
            "description": "What differs on cards with at least so many GB.",
            "type": "object",
            "additionalProperties": addition,
        },
    }
    return json.dumps(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Profile of KoPub",
            **addition,
            "properties": addition["properties"] | whole,
            "$defs": definitions["$defs"],
        },
        indent=1,
        ensure_ascii=False,
    )
