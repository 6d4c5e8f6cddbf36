"""Resources whose configured values are defaults field by field."""

from copy import copy
from typing import Any, TypeVar, cast

import dagster as dg
from pydantic import create_model

Resource = TypeVar("Resource", bound=dg.ConfigurableResource)


def configured(resource: type[Resource], **values: Any) -> Resource:
    """`resource(**values)`, for a Launchpad that overrides single fields.

    Dagster takes the values a resource was constructed with as one default for all of its config: a
    run that sets one field would set the others back to those of the class. So the values become the
    defaults of a subclass, which is otherwise the same. A nested resource stays as it is given.
    Raises what `resource(**values)` raises.
    """
    checked = resource(**values)
    nested = {name: value for name, value in values.items() if isinstance(value, dg.ConfigurableResource)}
    fields: dict[str, Any] = {}
    for name in values.keys() - nested.keys():
        field = copy(resource.model_fields[name])
        field.default, field.default_factory = getattr(checked, name), None
        fields[name] = (field.annotation, field)
    subclass = create_model(resource.__name__, __base__=resource, __module__=resource.__module__, **fields)
    subclass.__qualname__ = resource.__qualname__
    return cast("type[Resource]", subclass)(**nested)
