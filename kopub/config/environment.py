"""Environment variables, `--set SECTION.KEY=VALUE`, and the home and tables that they name.

`locate` is for commands that only read tables: it loads no engine and no Dagster.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kopub.config.profile_files import find_profile
from kopub.config.wording import alternatives, annotation_at
from kopub.errors import ConfigError, did_you_mean, near_names
from kopub.files import is_url
from kopub.folders import placed, store_url
from kopub.pages.manifest import Manifest
from kopub.pages.places import CACHE_GB, CorpusPlace
from kopub.recognition.base import STEP_TIMES
from kopub.states import phrase
from kopub.vllm.plugin import GLM_OCR, PADDLEOCR_VL

if TYPE_CHECKING:
    from kopub.store.table_store import TableStore


@dataclass(frozen=True, slots=True)
class Override:
    """A value as text for the key at `path`, whose first part is a section.

    `source` is the key as a person wrote it.
    """

    source: str
    path: tuple[str, ...]
    text: str


def overrides_of(
    changes: Mapping[str, str], sections: Iterable[str], pins: Mapping[str, BaseModel]
) -> tuple[list[Override], list[Override]]:
    """Return the overrides of sections, and those of pins, by the dotted keys of `--set`.

    A key begins with a section (recognition.prompts.table) or a pin (glm_ocr.revision). Raises `ConfigError` for any
    other key.
    """
    sections = list(sections)
    of_sections, of_pins = [], []
    for key, text in changes.items():
        source, path = f"--set {key}", tuple(key.split("."))
        if len(path) < 2 or not all(path):
            raise ConfigError("{source}: write SECTION.KEY=VALUE, as in embedding.dim=512", source)
        if path[0] in sections:
            of_sections.append(Override(source, path, text))
        elif path[0] in pins:
            of_pins.append(Override(source, path, text))
        else:
            names = [*sections, *pins]
            guess = did_you_mean(path[0], names, in_brackets=True)
            form = "{source}: {section!r} is neither a section nor a pin{guess}; there are {names}"
            raise ConfigError(form, source, path[0], guess, ", ".join(names))
    return of_sections, of_pins


def put(override: Override, values: dict[str, Any], model: Any) -> None:
    """Set the value of an override in `values`, which are of type `model`.

    If the type demands a list or a mapping, the text is parsed as YAML, which includes JSON. All other types accept
    texts themselves. Raises `ConfigError`.
    """
    annotation, _ = annotation_at(model, override.path)
    value = _value(override, annotation)
    *parents, last = override.path
    for key in parents:
        values = values.setdefault(key, {})
        if not isinstance(values, dict):
            raise ConfigError("{source}: {key!r} is a value and has no keys", override.source, key)
    if isinstance(value, dict) and isinstance(values.get(last), dict):
        _merge(value, values[last])
    else:
        values[last] = value


def _merge(changes: dict[str, Any], values: dict[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(values.get(key), dict):
            _merge(value, values[key])
        else:
            values[key] = value


def _value(override: Override, annotation: Any) -> Any:
    types = alternatives(annotation)
    if override.text == "null" and type(None) in types:
        return None
    if Any in types:
        try:
            return json.loads(override.text)
        except ValueError:
            return override.text
    kinds = [get_origin(option) or option for option in types]
    if not any(isinstance(kind, type) and issubclass(kind, list | dict | BaseModel) for kind in kinds):
        return override.text
    try:
        value = yaml.safe_load(override.text)
    except (yaml.YAMLError, ValueError, RecursionError):
        value = override.text
    if isinstance(value, str) and str not in types:
        form = "{source}: {text!r} is neither a list, as [a, b], nor a mapping, as {{key: value}}"
        raise ConfigError(form, override.source, override.text)
    return value


SECTIONS = (
    "layout",
    "recognition",
    "embedding",
    "notes",
    "reranking",
    "sinks",
    "figures",
    "documents",
    "corpus",
    "store",
    "release",
    "hub",
    "pdf",
    "gates",
    "upgrades",
    "search",
    "reading_room",
)
"""The names of a profile's sections; the module of profiles has their types, and loads every engine for them."""
VALUES = ("shards_per_run",)
"""The keys of a profile that are not sections."""
PREFIX = "KOPUB_"
BETWEEN = "__"
"""The separator of the parts of a key: `KOPUB_EMBEDDING__DIM` is `embedding.dim`."""

VARIABLES: Mapping[str, str] = {
    "KOPUB_HOME": "Folder on this machine, never a URL, for everything that is made and has no other place; `data` "
    "when unset. A relative one lies below the checkout.",
    "KOPUB_PROFILE": "Name of a file in `profiles/`, one of a card with a reader (`rtx4090+paddleocr_vl`), or the path "
    "of a YAML file; `cpu` when unset.",
    "KOPUB_LANG": "Language of the command line: `ko` or `en`; that of the locale when unset.",
    "KOPUB_RUNTIME": "Folder of locks, and of the records of running model servers; below /tmp when unset.",
    STEP_TIMES: "File to which readers add what each call of their steps took, as `kopub profile` shows it.",
    "KOPUB_API_TOKEN": "Token that programs must send if `kopub browse` or `kopub mcp --http` is open to others.",
    "KOPUB_EDIT_TOKEN": "Token that corrections must send if `kopub browse --edit` is open to others.",
    GLM_OCR: "In the `env` of a GLM-OCR server: 1 turns this project's vision encoder on.",
    PADDLEOCR_VL: "The same in the `env` of a PaddleOCR-VL server.",
}
"""The variables that override no key of a profile, with their purposes."""

_FOR_TESTS = f"{PREFIX}TEST_"
_OF_A_CLUSTER = re.compile(r"KOPUB_(.*_)?(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Variables that Kubernetes sets in each container of a namespace with a service called kopub."""


@dataclass(frozen=True)
class Environment:
    """The home, profile and overrides that environment variables name.

    `home` is an absolute path, `profile` a name or a path.
    """

    home: Path
    profile: str
    overrides: tuple[Override, ...]


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Return the variables of `environ` that begin with `KOPUB_`, in any case.

    Raises `ConfigError`.
    """
    variables = {name.upper(): text for name, text in environ.items() if name.upper().startswith(PREFIX)}
    overrides = []
    for name, text in sorted(variables.items()):
        path = tuple(name.removeprefix(PREFIX).lower().split(BETWEEN))
        if path[0] in SECTIONS or path[0] in VALUES:
            overrides.append(Override(name, path, text))
        elif not (
            name in VARIABLES
            or name.startswith(_FOR_TESTS)
            or (BETWEEN not in name and _OF_A_CLUSTER.fullmatch(name) is not None)
        ):
            bare = name.removeprefix(PREFIX)
            head, between, key = bare.partition(BETWEEN)
            sections = list(map(str.upper, SECTIONS))
            plain = [*(variable.removeprefix(PREFIX) for variable in VARIABLES), *map(str.upper, VALUES)]
            if between:
                near = [f"{section}{between}{key}" for section in near_names(head, sections)]
            else:
                near = [
                    section + BETWEEN + bare[len(section) + 1 :]
                    for section in sections
                    if bare.startswith(f"{section}_")
                ]
                near += near_names(bare, plain)
            form = " (did you mean {names}?)"
            guess = phrase(form, " or ".join(PREFIX + variable for variable in near)) if near else ""
            names = ", ".join(PREFIX + variable for variable in plain)
            form = "{name} is no setting{guess}; there are {names}, and KOPUB_<SECTION>__<KEY> of {sections}"
            raise ConfigError(form, name, guess, names, ", ".join(sections))
    if is_url(runtime := variables.get("KOPUB_RUNTIME", "")):
        raise ConfigError("KOPUB_RUNTIME: {runtime!r} is a URL, and must be a folder of this machine", runtime)
    if not (language := variables.get("KOPUB_LANG", "").lower()).startswith(("ko", "en", "c")) and language:
        raise ConfigError("KOPUB_LANG is {language!r}: choose ko or en", language)
    home = variables.get("KOPUB_HOME", "data")
    if not home.strip():
        raise ConfigError("KOPUB_HOME is empty: name a folder, or unset it for the default, data")
    try:
        return Environment(placed(home), variables.get("KOPUB_PROFILE", "cpu"), tuple(overrides))
    except ValueError as error:
        raise ConfigError("KOPUB_HOME: {reason}", error) from None


STORE, CORPUS = "store", "corpus"


class _Store(BaseModel):
    """The only key of the section that says where tables lie."""

    model_config = ConfigDict(extra="ignore")

    url: str = ""


class _Corpus(BaseModel):
    """The section that says where the index lies."""

    model_config = ConfigDict(extra="ignore")

    url: str = ""
    cache_gb: float = Field(default=CACHE_GB, gt=0, allow_inf_nan=False)


class _LocatedProfile(BaseModel):
    """The sections of a profile that are read here."""

    model_config = ConfigDict(extra="ignore")

    store: _Store = Field(default_factory=_Store)
    corpus: _Corpus = Field(default_factory=_Corpus)


@dataclass(frozen=True)
class Location:
    """A home, the name of its profile, and the places of its tables and index."""

    home: Path
    profile_name: str
    store_url: str
    index_url: str = ""
    cache_gb: float = CACHE_GB

    @property
    def corpus(self) -> CorpusPlace:
        """The place where the corpus is indexed."""
        return CorpusPlace(self.home, self.index_url, self.cache_gb)

    @cached_property
    def manifest(self) -> Manifest:
        """The index of the corpus.

        Raises `SourceError`.
        """
        return Manifest.load(self.corpus)

    @cached_property
    def store(self) -> "TableStore":
        """The store of the home's tables."""
        from kopub.store.table_store import TableStore

        return TableStore(self.store_url)


def locate(environ: Mapping[str, str]) -> Location:
    """Return the home and the tables that these environment variables name.

    Their profile names the tables. Raises `ConfigError`. Only these places in the profile are checked; other mistakes
    in it are found by the commands that use it.
    """
    environment = read_environment(environ)
    profile = find_profile(environment.profile)
    values = {section: profile.sections.get(section) or {} for section in (STORE, CORPUS)}
    for override in environment.overrides:
        if override.path[0] in values:
            put(override, values, _LocatedProfile)
    try:
        sections = _LocatedProfile.model_validate(values)
    except ValidationError as error:
        fault = error.errors()[0]
        form = "profile {profile}: {key}: {error}"
        raise ConfigError(form, profile.name, ".".join(map(str, fault["loc"])), fault["msg"]) from None
    tables = _absolute(profile.name, STORE, sections.store.url) or str(environment.home / STORE)
    index = _absolute(profile.name, CORPUS, sections.corpus.url).rstrip("/")
    return Location(environment.home, profile.name, tables, index, sections.corpus.cache_gb)


def _absolute(profile: str, section: str, url: str) -> str:
    """Return the absolute path, or the URL that a package can open; empty for none."""
    try:
        return store_url(url) if url else url
    except ValueError as error:
        raise ConfigError("profile {profile}: {section}.url: {reason}", profile, section, error) from None
