"""The base class of engines, which can state exactly what determines their results."""

from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from kopub.errors import EngineError
from kopub.fingerprints import CodeVersion
from kopub.states import phrase, with_remedy

if TYPE_CHECKING:
    from kopub.weights.files import WeightsFile

T = TypeVar("T")
PROFILE_ONLY = "profile only"
ProfileOnly = Annotated[T, PROFILE_ONLY]
"""A field that only the profile or the environment sets, not the Launchpad: a command, a folder, a target, a model."""


class Resource(BaseModel):
    """A configured part of the platform.

    It knows nothing of Dagster, whose Launchpad may set its fields for a run.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        ignored_types=(cached_property,),
        protected_namespaces=(),
    )

    def teardown(self) -> None:
        """Give back everything after a run, even if its steps failed."""


_MEGABYTES = 2.0
"""The largest picture whose size shows how much is on a page; a larger one only has more pixels."""

INSTALL = "type `make setup GPU=1`, or pip install 'kopub[gpu]' where there is no checkout"
"""How to install what the engines of the GPU profiles need."""


class Engine(Resource, ABC):
    """A configured maker of results.

    Its public fields are the keys of a profile. The Launchpad may set those that are not `ProfileOnly`.
    """

    code_version: ClassVar[CodeVersion]
    """Version of the code that shapes the results."""

    speed_only: ClassVar[frozenset[str]] = frozenset()
    """Fields that affect how fast results come, or where they go, but never the results themselves."""

    typical_seconds: ClassVar[float] = 0.01
    """Seconds for a page or text on common hardware, for a forecast before anything was measured here."""

    typical_seconds_per_megabyte: ClassVar[float] = 0.0
    """Additional seconds for each megabyte of a page's picture: a page with more on it is a larger file."""

    spans_shards: ClassVar[bool] = False
    """True if one call may get the rows of several shards, so that the hardware is not idle at the end of a shard.

    Such an engine takes rows in the thread that takes its results, and reports the cost of each by `take_figures`.
    """

    needs_server: ClassVar[bool] = False
    """True if it waits for a model server: work that needs none is done first, while the server starts."""

    limits: ClassVar[tuple[str, ...]] = ()
    """Sentences that every user of the results must know; a release's card includes them."""

    def recipe(self) -> dict[str, Any]:
        """Return everything that determines a result, as JSON values.

        Two equal recipes give equal results.
        """
        parameters = self.model_dump(mode="json", exclude=set(self.speed_only))
        return {
            "engine": self.code_version.bare_name,
            "version": self.code_version.number,
            "parameters": parameters,
            "weights": self.weights(),
        }

    def expected_seconds(self, megabytes: float) -> float:
        """Return the seconds expected for a page whose picture has `megabytes`."""
        return self.typical_seconds + self.typical_seconds_per_megabyte * min(megabytes, _MEGABYTES)

    def prepare(self) -> None:
        """Begin slow preparations for the first result in the background.

        Returns at once, or after an import. Called as soon as it is known that results are wanted, any number of times.
        An error is raised once, where the engine is used.
        """

    @property
    def gpus(self) -> int:
        """Number of GPUs that it holds while it works, for the cost of pages."""
        return 0

    @property
    def serves_beside_others(self) -> bool:
        """Return whether its model server can answer while those of other engines do."""
        return False

    @property
    def gpu_memory(self) -> int:
        """Bytes of GPU memory that it takes, without those of its model server."""
        return 0

    def lacks(self) -> list[str]:
        """Return a line for each thing missing on this machine, with the remedy.

        `kopub doctor` calls this, so that a first run does not have to find out.
        """
        missing = self.not_installed()
        return [with_remedy(_missing(missing), INSTALL)] if missing else []

    def advises(self) -> list[str]:
        """Return a line for each thing without which it reads less well, with the remedy."""
        return []

    def not_installed(self) -> list[str]:
        """Return the missing modules and programs of the extra `gpu`, without importing any."""
        return []

    def weights_files(self) -> "Sequence[WeightsFile]":
        """Return the single files of weights that `kopub pull` fetches for it."""
        return ()

    @property
    def start_seconds(self) -> float:
        """Return the seconds its server or model takes to start, 0 if it is ready."""
        return 0.0

    def take_figures(self) -> Mapping[str, float]:
        """Return sums over the results since the last call, for their shard's account."""
        return {}

    @property
    def cards(self) -> tuple[str, ...]:
        """The GPUs it works on, as named in CUDA_VISIBLE_DEVICES."""
        return ()

    def release(self) -> None:
        """Give back what it holds beyond one step, such as a model in GPU memory.

        Called at the end of a step, unless a later step of the run needs the engine, and at the end of a run.
        """

    def teardown(self) -> None:
        self.release()

    def weights(self) -> dict[str, str]:
        """Return the revision, hash or version of every model file and engine build."""
        return {}


def releases(*packages: str) -> dict[str, str]:
    """Return each package's release, or `missing` if it is not installed.

    An engine's `weights` name the packages with which it computes. Builds of one release for different hardware
    (2.13.0+cu130, 2.13.0+cpu) count as the same.
    """
    by_package = {}
    for package in packages:
        try:
            by_package[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            by_package[package] = "missing"
    return by_package


def missing_modules(*modules: str) -> list[str]:
    """Return the modules that are not installed, without importing any."""
    return [module for module in modules if find_spec(module) is None]


def require_installed(engines: Iterable[Engine], profile: str = "") -> None:
    """Raise `EngineError` if something that an engine needs is not installed.

    The message is one line with the command to type.
    """
    missing = list(dict.fromkeys(name for engine in engines for name in engine.not_installed()))
    if missing:
        whose = f"profile {profile}: " if profile else ""
        raise EngineError("{whose}{finding}: {remedy}", whose, _missing(missing), INSTALL)


def _missing(names: Sequence[str]) -> str:
    form = "{names} is not installed" if len(names) == 1 else "{names} are not installed"
    return phrase(form, ", ".join(names))
