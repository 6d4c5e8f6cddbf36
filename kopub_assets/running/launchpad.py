"""Resources as Dagster configures them: a run may set single fields of each in the Launchpad."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from typing import Any, ClassVar, cast

import dagster as dg
from pydantic import ValidationError, create_model

from resources.config.profile import section_of
from resources.config.wording import first_problem
from resources.resource import PROFILE_ONLY, Resource


class _Launchable(dg.ConfigurableResource[Any]):
    """Makes the resource of a run: that of the settings, with the fields that the run sets."""

    section: ClassVar[str]
    configured: ClassVar[Resource]

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Resource]:
        made = type(self.configured)
        set_here = type(self).model_fields
        values = {name: getattr(self if name in set_here else self.configured, name) for name in made.model_fields}
        try:
            resource = made(**values)
        except ValidationError as error:
            says = first_problem(error, section_of(made), self.section)
            raise dg.Failure(says, allow_retries=False) from None
        try:
            yield resource
        finally:
            resource.teardown()


class NoValues(dg.IOManager):
    """Passes nothing from step to step: the store holds the tables.

    Dagster's own default can be given a folder in the Launchpad, and with the one in memory no failed run is retried.
    """

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        raise dg.DagsterInvariantViolationError(f"{context.step_key} returned a value; the store holds the tables")

    def load_input(self, context: dg.InputContext) -> Any:
        raise dg.DagsterInvariantViolationError(f"{context.name} has no value; the store holds the tables")


def launchable(resources: Mapping[str, Any]) -> dict[str, Any]:
    """The resources as Dagster takes them; what is none, such as the name of the profile, stays as it is.

    The values of the settings become the defaults of the fields one by one: a run that sets one of them leaves the
    others as they are. A field that is `ProfileOnly`, or that holds a resource, is the profile's alone.
    """
    return {name: _launchable(name, each) if isinstance(each, Resource) else each for name, each in resources.items()}


def _launchable(name: str, resource: Resource) -> _Launchable:
    made = type(resource)
    fields: dict[str, Any] = {}
    for key, declared in made.model_fields.items():
        value = getattr(resource, key)
        if not isinstance(value, Resource) and PROFILE_ONLY not in declared.metadata:
            field = copy(declared)
            field.default, field.default_factory = value, None
            # The resource says in one line what is wrong with a value; Dagster would add its own stack.
            field.metadata = []
            fields[key] = (declared.annotation, field)
    launched = create_model(
        made.__name__, __base__=_Launchable, __module__=made.__module__, __doc__=made.__doc__, **fields
    )
    launched.section, launched.configured = name, resource
    return cast("type[_Launchable]", launched)()


def launchpad_config(asked: type[Resource] | None) -> type[dg.Config] | None:
    """What an asset may be asked for in the Launchpad, as Dagster configures it."""
    if asked is None:
        return None
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in asked.model_fields.items()}
    return create_model(
        asked.__name__, __base__=dg.Config, __module__=asked.__module__, __doc__=asked.__doc__, **fields
    )
