"""What a profile configures, as a class whose public fields are the keys of its section."""

from functools import cached_property
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict

T = TypeVar("T")
PROFILE_ONLY = "profile only"
ProfileOnly = Annotated[T, PROFILE_ONLY]
"""A field that the profile or the environment sets, and the Launchpad does not show: a command, a folder, a target."""


class Resource(BaseModel):
    """A configured part of the platform. Knows nothing of Dagster, whose Launchpad may set its fields for a run."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        arbitrary_types_allowed=True,
        ignored_types=(cached_property,),
        protected_namespaces=(),
    )

    def teardown(self) -> None:
        """Hold nothing after a run, whatever became of its steps."""
