"""The results of self-tests in the home, one for each engine and recipe."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from resources.files import replace_bytes
from resources.fingerprints import fingerprint

_FOLDER = "self_tests"
TESTED = ("layout", "recognition", "embedding")
"""The sections of a profile whose engines the samples can judge: nobody knows what to say of a figure."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What an engine of one recipe made of the samples, and when.

    `figures` are by name, `problems` one line each.
    """

    section: str
    engine: str
    recipe: str
    tested_at: str
    figures: Mapping[str, float]
    problems: list[str] = field(default_factory=list)

    @classmethod
    def now(cls, section: str, recipe: Mapping[str, Any], figures: Mapping[str, float], problems: list[str]) -> Self:
        """Return the result of a test that has just been made; `recipe` is the engine's."""
        when = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(section, str(recipe["engine"]), fingerprint(recipe), when, figures, problems)

    @property
    def passed(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        """`passed on 2026-11-22 with CER 0.021`, or `failed on ...: why`."""
        day = self.tested_at.partition("T")[0]
        if not self.passed:
            return f"failed on {day}: {self.problems[0]}"
        shown = ", ".join(f"{name} {value:.3f}" for name, value in self.figures.items())
        return f"passed on {day}{f' with {shown}' if shown else ''}"


def keep(home: Path, result: SelfTest) -> None:
    """Write the result in place of the last one of its recipe. Raises `StoreError`."""
    content = json.dumps(asdict(result), ensure_ascii=False, indent=1) + "\n"
    replace_bytes(_path(home, result.recipe), content.encode())


def find(home: Path, recipe: Mapping[str, Any]) -> SelfTest | None:
    """Return the last result of an engine's recipe on this home.

    It is None where there is none that can be read.
    """
    try:
        return SelfTest(**json.loads(_path(home, fingerprint(recipe)).read_bytes()))
    except (OSError, ValueError, TypeError):
        # A record that was cut off or is of another release says nothing; the next test writes it anew.
        return None


def of_table(home: Path, made_with: str) -> SelfTest | None:
    """Return the last result of the engine behind a table, by its `made_with`.

    It is None for a table of code alone.
    """
    engines = json.loads(made_with or "{}").get("engines", ())
    return next(filter(None, (find(home, recipe) for recipe in engines)), None)


def _path(home: Path, recipe: str) -> Path:
    return home / _FOLDER / f"{recipe}.json"
