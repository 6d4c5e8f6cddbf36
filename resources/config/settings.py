"""The one settings loader: `KOPUB_HOME`, a profile, the model pins, and the resources they make.

A profile is a YAML file of sections, one per collaborator. `engine` names the implementation and
`model` a pin of `models.yaml`; every other key is a field of the engine's class, which is therefore
the schema. The model server of an engine has a section of its own in it, `server`.
`KOPUB_<SECTION>__<KEY>` in the environment overrides a key.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import dagster as dg
import yaml
from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from resources.config.configured import configured
from resources.config.gates import Gates
from resources.config.overrides import changed_sections
from resources.config.upgrade_window import Upgrades
from resources.embedding.base import Embedder
from resources.errors import ConfigError
from resources.layout.base import LayoutDetector
from resources.pages.corpus import Corpus
from resources.recognition.base import Recognizer
from resources.release.hub.repository import HubTarget
from resources.release.local import LocalRelease
from resources.store.shard_store import ShardStore
from resources.vllm.server import VLLMServer

ROOT = Path(__file__).resolve().parents[2]
PROFILES = ROOT / "profiles"
PINS = PROFILES / "models.yaml"

ENGINES: dict[str, dict[str, str]] = {
    "layout": {
        "cpu": "resources.layout.cpu.detector:CpuLayout",
        "pp_doclayout": "resources.layout.pp_doclayout.detector:PPDocLayout",
    },
    "recognition": {
        "tesseract": "resources.recognition.tesseract.recognizer:TesseractRecognizer",
        "glm_ocr": "resources.recognition.vlm.glm_ocr:GlmOcrRecognizer",
        "deepseek_ocr": "resources.recognition.vlm.deepseek_ocr:DeepSeekOcrRecognizer",
    },
    "embedding": {
        "hashed": "resources.embedding.hashed.embedder:HashedEmbedder",
        "qwen3_vl": "resources.embedding.qwen3_vl.embedder:Qwen3VLEmbedder",
    },
}
"""Implementations by section and `engine`. Importing one of these modules loads no model library."""


class Choice(BaseSettings):
    """What comes from the environment alone: where things lie and which profile is meant."""

    model_config = SettingsConfigDict(env_prefix="KOPUB_")

    home: Path = Path("data")
    profile: str = "cpu"


class Profile(BaseSettings):
    """The sections of a profile file, overridden by `KOPUB_<SECTION>__<KEY>`."""

    model_config = SettingsConfigDict(env_prefix="KOPUB_", env_nested_delimiter="__", extra="forbid")

    layout: dict[str, Any]
    recognition: dict[str, Any]
    embedding: dict[str, Any]
    store: dict[str, Any] = Field(default_factory=dict)
    release: dict[str, Any] = Field(default_factory=dict)
    hub: dict[str, Any] = Field(default_factory=dict)
    gates: dict[str, Any] = Field(default_factory=dict)
    upgrades: dict[str, Any] = Field(default_factory=dict)
    shards_per_run: int | None = Field(default=None, ge=1)
    """Shards in one run of a backfill; None puts a contiguous range into one run."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings


class Settings:
    """A loaded profile: its name, its home, and the resources that it makes."""

    def __init__(self, home: Path, profile_name: str, profile: Profile, pins: Mapping[str, dict[str, Any]]) -> None:
        self.home = home
        self.profile_name = profile_name
        self._pins = pins
        self.shards_per_run = profile.shards_per_run
        self.layout: LayoutDetector = self._engine("layout", profile.layout)
        self.recognition: Recognizer = self._engine("recognition", profile.recognition)
        self.embedding: Embedder = self._engine("embedding", profile.embedding)
        self.corpus = configured(Corpus, home=str(home))
        self.store = self._make("store", ShardStore, {"url": str(home / "store"), **profile.store})
        self.release = self._make("release", LocalRelease, {"folder": str(home / "release"), **profile.release})
        self.hub = self._make("hub", HubTarget, profile.hub)
        self.gates = self._make("gates", Gates, profile.gates)
        self.upgrades: Upgrades = self._make("upgrades", Upgrades, profile.upgrades)

    @property
    def resources(self) -> dict[str, Any]:
        """The resources by the names that the assets ask for them."""
        return {
            "profile": self.profile_name,
            "corpus": self.corpus,
            "store": self.store,
            "layout": self.layout,
            "recognition": self.recognition,
            "embedding": self.embedding,
            "release": self.release,
            "hub": self.hub,
            "gates": self.gates,
        }

    def _engine(self, section: str, keys: dict[str, Any]) -> Any:
        known = ENGINES[section]
        name = keys.get("engine")
        if name not in known:
            raise ConfigError(f"{self._where(section)}.engine is {name!r}; choose one of {', '.join(sorted(known))}")
        engine = resolve_name(known[name])
        fields = {key: value for key, value in keys.items() if key not in ("engine", "model")}
        pin = self._pin(section, keys.get("model"))
        if "server" in engine.model_fields:
            served = {"model": pin["repo"], "revision": pin["revision"]} if pin else {}
            fields["server"] = self._make(f"{section}.server", VLLMServer, {**served, **fields.get("server", {})})
        else:
            fields = {**pin, **fields}
        if "reuse_folder" in engine.model_fields:
            fields = {"reuse_folder": str(self.home / "reuse" / section), **fields}
        return self._make(section, engine, fields)

    def _pin(self, section: str, model: str | None) -> dict[str, Any]:
        if model is None:
            return {}
        if model not in self._pins:
            known = ", ".join(self._pins)
            raise ConfigError(
                f"{self._where(section)}.model is {model!r}, which {PINS.name} does not pin; it pins {known}"
            )
        return self._pins[model]

    def _make(self, section: str, resource: type[Any], keys: dict[str, Any]) -> Any:
        unknown = set(keys) - set(resource.model_fields)
        if unknown:
            known = ", ".join(sorted(set(resource.model_fields)))
            raise ConfigError(f"{self._where(section)} has no key {sorted(unknown)[0]!r}; it has {known}")
        try:
            return configured(resource, **keys)
        except (ValidationError, dg.DagsterInvalidConfigError) as error:
            raise ConfigError(f"{self._where(section)}.{_first_problem(error)}") from None

    def _where(self, section: str) -> str:
        return f"profile {self.profile_name}: {section}"


@cache
def load_settings() -> Settings:
    """Settings of this process. Raises `ConfigError`, one line, for anything that cannot be used."""
    return what_if({})


def what_if(changes: Mapping[str, str]) -> Settings:
    """The settings as they would be with other values of the keys that `changed_sections` knows.

    Raises `ConfigError`, as `load_settings`.
    """
    choice = Choice()
    path = _profile_path(choice.profile)
    try:
        sections = _read_yaml(path)
        profile = Profile(**sections)
    except ValidationError as error:
        raise ConfigError(f"profile {choice.profile}: {_first_problem(error)}") from None
    except SettingsError as error:
        raise ConfigError(f"profile {choice.profile}: {error}") from None
    pins = _read_yaml(PINS)
    changed = changed_sections(changes, {section: getattr(profile, section) for section in ENGINES}, pins)
    home = choice.home.expanduser()
    return Settings(
        home if home.is_absolute() else _base() / home,
        path.stem,
        profile.model_copy(update=changed.sections),
        changed.pins,
    )


def _base() -> Path:
    """Relative homes hang below the checkout, wherever a command is started; installed, below the current folder."""
    return ROOT if (ROOT / "pyproject.toml").exists() else Path.cwd()


def _profile_path(name: str) -> Path:
    path = Path(name) if name.endswith((".yaml", ".yml")) else PROFILES / f"{name}.yaml"
    if not path.is_file() or path == PINS:
        known = sorted(file.stem for file in PROFILES.glob("*.yaml") if file != PINS)
        raise ConfigError(f"KOPUB_PROFILE is {name!r}; choose one of {', '.join(known)}, or the path of a YAML file")
    return path


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path.name} is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path.name} has no sections")
    return content


def _first_problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return " ".join(str(error).split())
