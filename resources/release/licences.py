"""Licences as sources state them, and as the Hub names them. Pure."""

import re
from collections.abc import Iterable

OTHER = "other"

_HUB_IDS = frozenset(
    {
        "agpl-3.0", "apache-2.0", "bsd-2-clause", "bsd-3-clause", "cc-by-2.0", "cc-by-3.0", "cc-by-4.0",
        "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "cc-by-sa-3.0",
        "cc-by-sa-4.0", "cc0-1.0", "gfdl", "gpl-2.0", "gpl-3.0", "lgpl-2.1", "lgpl-3.0", "lppl-1.3c", "mit",
        "mpl-2.0", "odbl", "odc-by", "pddl",
    }
)  # fmt: skip
_SPDX = re.compile(r"^(?P<name>gpl|lgpl|agpl|gfdl|mpl|lppl|apache)-(?P<version>\d+(?:\.\d+)?[a-z]?)\+?$")


def hub_licences(stated: Iterable[str | None]) -> list[str]:
    """The Hub's identifiers of `stated`, each once and sorted; `other` for one it has no identifier for."""
    return sorted({_hub_id(licence) for licence in stated})


def _hub_id(stated: str | None) -> str:
    name = (stated or "").partition("(")[0].strip().lower().replace(" ", "-")
    if match := _SPDX.match(name):
        family, version = match["name"], match["version"]
        name = family if family in _HUB_IDS else f"{family}-{version if '.' in version else version + '.0'}"
    return name if name in _HUB_IDS else OTHER
