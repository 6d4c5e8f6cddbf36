"""The base of the platform's Dagster resources."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args, get_origin

import dagster as dg
from pydantic import ValidationError

from kopub.config.profile import nested_resource, section_of
from kopub.config.wording import first_problem, possible
from kopub.engine import PROFILE_ONLY, Resource


class ProfileResource(dg.ConfigurableResource[Any]):
    """A part of the library that the profile configures and a run may adjust.

    A subclass declares these fields. The library describes and limits them, and the profile has their defaults, so that
    a run that sets one field leaves the others alone. Assets get the part of the library itself, made for every run.
    """

    key: dg.ResourceDependency[str]
    """Its name among the resources, with which a message about a wrong value begins."""
    configured: dg.ResourceDependency[Resource]
    """The part as the profile has it, with the fields that no run may set."""

    @classmethod
    def of(cls, key: str, configured: Resource, **servers: Any) -> Any:
        """Return the resource at `key` for the Launchpad, on the resources of its `servers`."""
        values = {}
        for name in launchpad_fields(type(configured)):
            described, values[name] = type(configured).model_fields[name], getattr(configured, name)
            takes = possible(described.annotation, described.metadata)
            cls.model_fields[name].description = f"{described.description or name} ({takes})"
        return cls.configure_at_launch(key=key, configured=configured, **servers, **values)

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Iterator[Resource]:
        """Make the part for a run, and tear it down afterwards.

        The limits of the fields are checked here, where a wrong value is one line; Dagster would add a stack.
        """
        part_type, declared = type(self.configured), type(self).model_fields
        values = {name: getattr(self if name in declared else self.configured, name) for name in part_type.model_fields}
        try:
            part = part_type(**values)
        except ValidationError as error:
            raise dg.Failure(first_problem(error, section_of(part_type), self.key), allow_retries=False) from None
        try:
            yield part
        finally:
            part.teardown()


def launchpad_fields(part: type[Resource]) -> dict[str, Any]:
    """Return the types of the fields that a run may set, by name.

    A choice is a text here: Dagster takes the default of a `Literal` from its class alone, which is not the profile's.
    """
    types: dict[str, Any] = {}
    for name, field in part.model_fields.items():
        if PROFILE_ONLY not in field.metadata and not nested_resource(part, name):
            is_choice = get_origin(field.annotation) is Literal
            types[name] = type(get_args(field.annotation)[0]) if is_choice else field.annotation
    return types
