"""The sections of a profile as pydantic models, derived from the fields of engines and other resources.

A section of an engine is one branch of a union that `engine` discriminates. Only the branch that a profile
names is built, because building the others would import their engines.
"""

from copy import copy
from functools import cache
from typing import Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, create_model, field_validator
from pydantic_core import PydanticCustomError

from resources.config.wording.field_text import alternatives
from resources.config.wording.problems import first_problem
from resources.engine import Engine
from resources.errors import ConfigError
from resources.resource import Resource
from resources.vllm.server import VLLMServer

SERVER = "server"
"""Key of the section of a model server within the section of its engine."""


class Section(BaseModel):
    """The keys of a section. Values are of the declared types; texts are taken for numbers where one is declared."""

    model_config = ConfigDict(
        extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True, protected_namespaces=()
    )

    resource: ClassVar[type[Any]]
    """What the section configures."""

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        types = alternatives(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and not {bool, Any} & set(types) and {int, float} & set(types):
            raise PydanticCustomError("number_type", "a truth value is no number")
        return value


@cache
def section_of(resource: type[Resource]) -> type[Section]:
    """The section whose keys are the fields of `resource`."""
    return _model(resource, {})


@cache
def engine_section(name: str, engine: type[Engine]) -> type[Section]:
    """The section of the engine that entry points call `name`."""
    keys: dict[str, Any] = {"engine": (Literal[name], Field(description="Name of the engine."))}
    if takes_pin(engine):
        keys["model"] = (str | None, Field(default=None, description="Pin of `models.yaml` that the weights are."))
    return _model(engine, keys)


def takes_pin(engine: type[Engine]) -> bool:
    """Whether `model` can name a pin: the engine has a model server, or fields for a repository and its commit."""
    return _nested(engine, SERVER) is VLLMServer or {"repo", "revision"} <= engine.model_fields.keys()


def make(section: Section, where: str) -> Any:
    """The resource of a section that stands at `where`. Raises `ConfigError`."""
    resource = section.resource
    values = {}
    for name in resource.model_fields:
        if name in section.model_fields_set:
            value = getattr(section, name)
            values[name] = make(value, f"{where}.{name}") if isinstance(value, Section) else value
    try:
        return resource(**values)
    except ValidationError as error:
        raise ConfigError(first_problem(error, type(section), where)) from None


def _model(resource: type[Resource], keys: dict[str, Any]) -> type[Section]:
    fields = dict(keys)
    for name, declared in resource.model_fields.items():
        nested = _nested(resource, name)
        field = copy(declared)
        fields[name] = (section_of(nested) if nested else declared.annotation, field)
    section = create_model(f"{resource.__name__}Section", __base__=Section, __doc__=resource.__doc__, **fields)
    section.resource = resource
    return section


def _nested(resource: type[Resource], name: str) -> type[Resource] | None:
    """The resource that a field holds, if it holds one."""
    if name not in resource.model_fields:
        return None
    for option in alternatives(resource.model_fields[name].annotation):
        for each in (option, *get_args(option)):
            if isinstance(each, type) and issubclass(each, Resource):
                return each
    return None
