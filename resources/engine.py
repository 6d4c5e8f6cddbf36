"""What every engine has in common: it can say exactly what determines its results."""

from abc import ABC
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import dagster as dg

from resources.code_version import CodeVersion


class Engine(dg.ConfigurableResource, ABC):
    """A configured maker of results. Its public fields are the keys a profile and the Launchpad may set."""

    code_version: ClassVar[CodeVersion]
    """Of the code that shapes the results."""

    speed_only: ClassVar[frozenset[str]] = frozenset()
    """Fields that change how fast results come, or where they go, never what they are."""

    limits: ClassVar[tuple[str, ...]] = ()
    """Sentences that whoever uses the results must know; a release's card carries them."""

    def recipe(self) -> dict[str, Any]:
        """Everything that determines a result, as JSON values. Two equal recipes give equal results."""
        parameters = self.model_dump(mode="json", exclude=set(self.speed_only))
        return {
            "engine": self.code_version.name.rpartition(".")[2],
            "version": self.code_version.number,
            "parameters": parameters,
            "weights": self.weights(),
        }

    @property
    def gpus(self) -> int:
        """GPUs that it holds while it works, for the account of what a page costs."""
        return 0

    def release(self) -> None:
        """Give back what it holds beyond one step, as a model in GPU memory. Called when a step ends."""

    def weights(self) -> dict[str, str]:
        """Identity of every model file or engine build behind the results: revision, hash or version."""
        return {}


def releases(*packages: str) -> dict[str, str]:
    """The release of each package, for `weights` of an engine that computes with it; `missing` where it is not.

    Builds of one release for other hardware (2.13.0+cu130, 2.13.0+cpu) count as the same.
    """
    found = {}
    for package in packages:
        try:
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            found[package] = "missing"
    return found
