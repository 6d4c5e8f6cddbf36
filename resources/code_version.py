"""The version of code that shapes results: it is in every recipe, and the hash of the code is not.

`recipes.lock` holds the hash of everything that a versioned module imports; `make check` and a test compare the
two, so that a change of that code is either a new version (results change) or locked again (they do not).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CodeVersion:
    """The version of the code behind `name`, with the reason for each step, the first one from 1.

    `name` is unique in the project and stands in `recipes.lock`: the name of an asset, or section and name of
    an engine (`recognition.tesseract`).
    """

    name: str
    steps: Mapping[int, str]

    def __post_init__(self) -> None:
        if not self.steps or list(self.steps) != list(range(1, len(self.steps) + 1)) or not all(self.steps.values()):
            raise ValueError(f"the versions of {self.name} are to count from 1, each with its reason")

    @property
    def number(self) -> int:
        return len(self.steps)

    def since(self, before: int | None) -> str:
        """The reasons of the steps after version `before`; nothing where that is not known or not older."""
        return "; ".join(why for number, why in self.steps.items() if before is not None and number > before)
