"""Make docs/settings.md and the schema of profiles from the fields: `python -m tools.settings_doc [--check]`."""

import argparse
import sys
from collections.abc import Iterator
from datetime import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kopub.config.environment import VARIABLES
from kopub.config.profile import (
    LEFT_OUT,
    OTHERS,
    PLACES,
    PROTOCOLS,
    SERVER,
    VALUES,
    engine_section,
    find_engines,
    load_engine,
    profile_model,
    section_of,
)
from kopub.config.profile_files import Pin
from kopub.config.wording import alternatives, is_model, limit_text, type_text
from kopub.vllm.server import VLLMServer
from tools.profile_schema import SCHEMA, schema

DOC = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
PROJECT = "kopub"
_FROM_PIN = {("layout", "repo"), (SERVER, "model")}
"""Keys that are set by their section's `model`."""

_HEAD = """\
# Settings

Written by `python -m tools.settings_doc` from the descriptions of the fields; do not edit it.

A profile is a YAML file of sections. `KOPUB_PROFILE` names one of `profiles/`, or the path of your own. One that begins
with `extends: h200` says what differs from that profile, which is a name or a path beside it: a key takes the place of
the other's, a list as a whole, and so does a section with another `engine`. `rtx4090+paddleocr_vl` is the profile of a
card with a reader of `profiles/readers/`. `card: {gpu: RTX 4090, memory_gb: 24, measured: false}` says which GPU it is
for, and its memory bounds what fits. `--profile` of any command takes the place of `KOPUB_PROFILE`, and `kopub
profiles` lists what there is.

A key is overridden, the last one counting, by

1. the file of the profile that is extended, and the profile's own,
2. the environment, `KOPUB_<SECTION>__<KEY>=VALUE` (`KOPUB_RECOGNITION__SERVER__REPLICAS=2`); lists and mappings are
   written in YAML, as `[a, b]` and `{key: value}`,
3. `kopub plan --set SECTION.KEY=VALUE`, to see what a change would cost,
4. the Launchpad of the Dagster UI, for one run; not commands, folders, repositories, and what a model
   server serves.

An unknown key, a missing one and an impossible value are errors of one line. A relative folder in a
profile lies beside its file. One in the environment lies below the checkout, wherever a command starts; where KoPub is
installed without one, below the current folder.
"""


def document() -> str:
    """Return the whole reference as Markdown."""
    return "\n".join(_parts())


def _parts() -> Iterator[str]:
    yield _HEAD
    yield "## Environment\n"
    yield from _table(["variable", "meaning"], ([f"`{name}`", meaning] for name, meaning in VARIABLES.items()))
    yield "## Profile\n"
    model = profile_model({})
    yield from _fields({name: model.model_fields[name] for name in VALUES})
    for section in PROTOCOLS:
        yield from _engine_section(section)
    yield f"## `{SERVER}`\n"
    yield f"The section of a model server in that of its engine, as `recognition.{SERVER}`.\n"
    yield f"{_summary(VLLMServer)}\n"
    yield from _fields(section_of(VLLMServer).model_fields, SERVER)
    for section, other in OTHERS.items():
        yield f"## `{section}`\n"
        yield f"{_summary(getattr(other, 'resource', other))}\n"
        yield from _fields(other.model_fields, section)
    yield "## `profiles/models.yaml`\n"
    yield "Model pins by name: what `model` of a section names.\n"
    yield from _fields(Pin.model_fields)


def _engine_section(section: str) -> Iterator[str]:
    """Yield this project's engines; other packages document their own."""
    found = find_engines()
    yield f"## `{section}`\n"
    left_out = f" Left out, it is `{LEFT_OUT[section]}`." if section in LEFT_OUT else ""
    choice = f"The engine is one of the following, or of another package (`extend.md`).{left_out}"
    yield f"{_summary(PROTOCOLS[section])} {choice}\n"
    for name, points in found[section].items():
        if any(point.dist and point.dist.name == PROJECT for point in points):
            engine = load_engine(section, name, found)
            yield f"### `{section}.engine: {name}`\n"
            yield f"{_summary(engine)}\n"
            yield from _fields(engine_section(name, engine).model_fields, section)


def _fields(fields: dict[str, FieldInfo], section: str = "") -> Iterator[str]:
    rows = (
        [f"`{name}`", _type(field), _default(field, (section, name)), limit_text(field.metadata), _description(field)]
        for name, field in fields.items()
        if name != "engine"
    )
    return _table(["key", "type", "default", "limits", "meaning"], rows)


def _type(field: FieldInfo) -> str:
    null = ", or null" if type(None) in alternatives(field.annotation) else ""
    return type_text(field.annotation) + null


def _default(field: FieldInfo, key: tuple[str, str]) -> str:
    if key in PLACES:
        return f"`$KOPUB_HOME/{PLACES[key][0]}`"
    if key[1] == "reuse_folder":
        return f"`$KOPUB_HOME/reuse/{key[0]}`"
    if is_model(field.annotation):
        return f"see `{key[1]}` below"
    if field.is_required():
        return "from the pin" if key in _FROM_PIN else "none: it must be set"
    return f"`{_yaml(field.get_default(call_default_factory=True))}`"


def _yaml(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, time):
        return f'"{value:%H:%M}"'
    return value if isinstance(value, str) and value else repr(value).replace("'", '"')


def _description(field: FieldInfo) -> str:
    return " ".join((field.description or "").split())


def _summary(documented: type[BaseModel]) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((documented.__doc__ or "").strip().partition("\n\n")[0].split())


def _table(head: list[str], rows: Any) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="Fail when a file is not what would be written.")
    check = parser.parse_args().check
    for file, text in ((DOC, document()), (SCHEMA, schema())):
        if not check:
            file.write_text(text, "utf-8")
        elif not file.is_file() or file.read_text("utf-8") != text:
            sys.exit(f"{file.name} is not up to date: run `python -m tools.settings_doc`")


if __name__ == "__main__":
    main()
