"""The base class of engines, each of which can say exactly what determines its results."""

from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from resources.errors import EngineError
from resources.fingerprints import CodeVersion

T = TypeVar("T")
PROFILE_ONLY = "profile only"
ProfileOnly = Annotated[T, PROFILE_ONLY]
"""A field that the profile or the environment sets, and the Launchpad does not show: a command, a folder, a target."""


class Resource(BaseModel):
    """A configured part of the platform.

    It knows nothing of Dagster, whose Launchpad may set its fields for a run.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        ignored_types=(cached_property,),
        protected_namespaces=(),
    )

    def teardown(self) -> None:
        """Hold nothing after a run, whatever became of its steps."""


_MEGABYTES = 2.0
"""The largest picture whose size tells how much is on a page; beyond it there are only more pixels."""

INSTALL = "type `make setup GPU=1`, or pip install 'kopub[gpu]' where there is no checkout"
"""The advice to install what the engines of the GPU profiles need."""


class Engine(Resource, ABC):
    """A configured maker of results.

    Its public fields are the keys of a profile. The Launchpad may set those that are not `ProfileOnly`.
    """

    code_version: ClassVar[CodeVersion]
    """Version of the code that shapes the results."""

    speed_only: ClassVar[frozenset[str]] = frozenset()
    """Fields that change how fast results come, or where they go, never what they are."""

    typical_seconds: ClassVar[float] = 0.01
    """Seconds of a page or text on common hardware, for a forecast while nothing was measured here."""

    typical_seconds_per_megabyte: ClassVar[float] = 0.0
    """Seconds for each megabyte of a page's picture besides: a page with more on it is a larger file."""

    spans_shards: ClassVar[bool] = False
    """True where one call may get the rows of several shards, so that no shard's tail idles the hardware.

    Such an engine takes rows in the thread that takes its results, and tells by `take_figures` what each result took.
    """

    needs_server: ClassVar[bool] = False
    """True where it waits for a model server: what needs none is done first, while the server starts."""

    limits: ClassVar[tuple[str, ...]] = ()
    """Sentences that whoever uses the results must know; a release's card carries them."""

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
        """Return what a page is expected to take whose picture has so many megabytes."""
        return self.typical_seconds + self.typical_seconds_per_megabyte * min(megabytes, _MEGABYTES)

    def prepare(self) -> None:
        """Begin in the background what takes long before a first result.

        Returns at once, or after an import. Called once it is known that results are wanted, any number of times. What
        goes wrong is told where the engine is used, once.
        """

    @property
    def gpus(self) -> int:
        """GPUs that it holds while it works, for the account of what a page costs."""
        return 0

    @property
    def serves_beside_others(self) -> bool:
        """Return whether its model server answers while those of other engines do."""
        return False

    @property
    def gpu_memory(self) -> int:
        """The bytes of GPU memory it takes, besides its model server's."""
        return 0

    def lacks(self) -> list[str]:
        """Return what it lacks on this machine, and what to do.

        A line each. A first run should not have to find it out: `kopub doctor` asks.
        """
        missing = self.not_installed()
        return [f"{_missing(missing)}: {INSTALL}"] if missing else []

    def not_installed(self) -> list[str]:
        """Return the modules and programs of extra `gpu` it lacks.

        Imports none of them.
        """
        return []

    @property
    def start_seconds(self) -> float:
        """Return the seconds its server or model takes to start.

        0 where it is ready.
        """
        return 0.0

    def take_figures(self) -> Mapping[str, float]:
        """Return the sums over the results since the last call.

        They are for the account of the shard that the results are of.
        """
        return {}

    @property
    def cards(self) -> tuple[str, ...]:
        """The GPUs it works on, by their names in CUDA_VISIBLE_DEVICES."""
        return ()

    def release(self) -> None:
        """Give back what it holds beyond one step, as a model in GPU memory.

        Called at the end of a step, unless a later step of the run needs the engine, and at the end of a run.
        """

    def teardown(self) -> None:
        self.release()

    def weights(self) -> dict[str, str]:
        """Return the identity of every model file and engine build.

        It is a revision, hash or version.
        """
        return {}


def releases(*packages: str) -> dict[str, str]:
    """Return each package's release, `missing` where it is not installed.

    They are those with which the engine computes by `weights`. Builds of one release for other hardware (2.13.0+cu130,
    2.13.0+cpu) count as the same.
    """
    found = {}
    for package in packages:
        try:
            found[package] = version(package).partition("+")[0]
        except PackageNotFoundError:
            found[package] = "missing"
    return found


def missing_modules(*modules: str) -> list[str]:
    """Return those of the modules that are not installed. Imports none of them."""
    return [module for module in modules if find_spec(module) is None]


def require_installed(engines: Iterable[Engine], profile: str = "") -> None:
    """Raise `EngineError` where something the engine needs is not installed.

    It is one line with the command to type.
    """
    missing = list(dict.fromkeys(name for engine in engines for name in engine.not_installed()))
    if missing:
        whose = f"profile {profile}: " if profile else ""
        raise EngineError(f"{whose}{_missing(missing)}: {INSTALL}")


def _missing(names: Sequence[str]) -> str:
    listed = " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
    return f"{listed} {'is' if len(names) == 1 else 'are'} not installed"
