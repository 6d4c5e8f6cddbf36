"""The only loader of settings: a home, a profile, the model pins, and their resources.

A profile is a YAML file of sections, one for each resource. `engine` names the implementation by an entry point and
`model` a pin of `models.yaml`; every other key is a field of the engine's class, which is therefore the schema. An
engine's model server has a section of its own within it, `server`. `KOPUB_<SECTION>__<KEY>` in the environment
overrides a key.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, cast

from kopub.config.choices import Documents, Figures, Pdf, ReadingRoom, Search, Upgrades
from kopub.config.environment import Override, read_environment
from kopub.config.profile import checked_profile, make, named
from kopub.config.profile_files import Card, Pins, find_profile, read_pins
from kopub.embedding.base import Embedder
from kopub.engine import Engine
from kopub.errors import ConfigError
from kopub.figures.figure import FigureNoter
from kopub.folders import PINS, PROFILES, ROOT, placed
from kopub.layout.base import LayoutDetector
from kopub.pages.corpus import Corpus
from kopub.recognition.base import Recognizer
from kopub.release.gates import Gates
from kopub.release.hub import HubTarget
from kopub.release.local import LocalRelease, require_apart
from kopub.reranking.base import Reranker
from kopub.sinks.base import Sink
from kopub.store.table_store import ShardStore

__all__ = ["PINS", "PROFILES", "ROOT", "Settings", "load_settings", "read_settings", "what_if", "written_settings"]


class Resources(TypedDict):
    """The resources of assets, by the names that assets use."""

    profile: str
    corpus: Corpus
    store: ShardStore
    layout: LayoutDetector
    recognition: Recognizer
    embedding: Embedder
    notes: FigureNoter
    reranking: Reranker
    sinks: Sink
    figures: Figures
    documents: Documents
    release: LocalRelease
    hub: HubTarget
    pdf: Pdf
    gates: Gates


@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """A loaded profile: its name, its home, and its resources."""

    home: Path
    profile_name: str
    shards_per_run: int | None
    layout: LayoutDetector
    recognition: Recognizer
    embedding: Embedder
    notes: FigureNoter
    reranking: Reranker
    sinks: Sink
    figures: Figures
    documents: Documents
    corpus: Corpus
    store: ShardStore
    release: LocalRelease
    hub: HubTarget
    pdf: Pdf
    gates: Gates
    upgrades: Upgrades
    search: Search
    reading_room: ReadingRoom
    card: Card | None = None
    """The GPU that the profile is for."""

    @classmethod
    def of(
        cls,
        home: Path,
        profile: Mapping[Any, Any],
        name: str = "mine",
        *,
        pins: Pins | None = None,
        overrides: Sequence[Override] = (),
        changes: Mapping[str, str] | None = None,
        card: Card | None = None,
    ) -> "Settings":
        """Return the settings of a home and the sections of a profile.

        Reads no environment variable. `pins` are by default those of the project; `overrides` and `changes` are as in
        `checked_profile`. Settings known to exceed the memory of `card` are refused. Raises `ConfigError`, one line.
        """
        home = placed(home)
        pins = read_pins() if pins is None else pins
        sections = checked_profile(profile, home, pins, name, overrides, changes)
        with named(name):
            settings = cls(
                home=home,
                profile_name=name,
                shards_per_run=sections.shards_per_run,
                layout=make(sections.layout, "layout"),
                recognition=make(sections.recognition, "recognition"),
                embedding=make(sections.embedding, "embedding"),
                notes=make(sections.notes, "notes"),
                reranking=make(sections.reranking, "reranking"),
                sinks=make(sections.sinks, "sinks"),
                figures=make(sections.figures, "figures"),
                documents=make(sections.documents, "documents"),
                corpus=Corpus(home=str(home), **dict(sections.corpus)),
                store=make(sections.store, "store"),
                release=make(sections.release, "release"),
                hub=make(sections.hub, "hub"),
                pdf=make(sections.pdf, "pdf"),
                gates=make(sections.gates, "gates"),
                upgrades=sections.upgrades,
                search=sections.search,
                reading_room=sections.reading_room,
                card=card,
            )
            # What figures or sinks are set to take must be made.
            if settings.figures.vectors and "figure" not in settings.embedding.queries_match:
                raise ConfigError("figures.vectors: the embedding engine makes no vectors of figures; set it to false")
            if settings.figures.embed_notes and (off := settings.notes.off):
                raise ConfigError("figures.embed_notes: there are no notes, {reason}; set one or the other", off)
            if settings.sinks.off is None and not settings.documents.chunks:
                raise ConfigError("sinks.engine: there are no chunks for it; set documents.chunks to true")
            if card is not None or any(engine.needs_server for engine in settings.engines.values()):
                # This module imports the servers, whose clients a profile without them never loads.
                from kopub.config.memory import require_cache, require_fit

                require_cache(settings.engines)
                if card is not None:
                    require_fit(settings.engines, card)
            require_apart(settings.release, home, settings.store.url)
        return settings

    @property
    def engines(self) -> dict[str, Engine]:
        """The engines by section; those of `notes`, `reranking` and `sinks` only if they are on."""
        engines = {"layout": self.layout, "recognition": self.recognition, "embedding": self.embedding}
        optional = {"notes": self.notes, "reranking": self.reranking, "sinks": self.sinks}
        return engines | {section: engine for section, engine in optional.items() if not engine.off}

    @property
    def resources(self) -> Resources:
        """The resources by the names that assets use."""
        parts = {name: getattr(self, name) for name in Resources.__annotations__ if name != "profile"}
        return cast(Resources, {"profile": self.profile_name, **parts})


def read_settings(environ: Mapping[str, str], changes: Mapping[str, str] | None = None) -> Settings:
    """Return the settings that these environment variables choose, with the `changes` of `--set`.

    A change is a value by the dotted key of a section (`embedding.dim`) or of a pin that the profile uses
    (`glm_ocr.revision`). Raises `ConfigError`, one line, for anything unusable.
    """
    environment = read_environment(environ)
    profile = find_profile(environment.profile)
    return Settings.of(
        environment.home,
        profile.sections,
        profile.name,
        overrides=environment.overrides,
        changes=changes,
        card=profile.card,
    )


def written_settings(environ: Mapping[str, str]) -> str:
    """Return the profile and pins as a text that changes with them.

    Raises `ConfigError`.
    """
    environment = read_environment(environ)
    return repr((find_profile(environment.profile).sections, read_pins()))


@cache
def load_settings() -> Settings:
    """Return the settings of this process, read once.

    Raises `ConfigError`, one line.
    """
    return read_settings(os.environ)


def what_if(changes: Mapping[str, str]) -> Settings:
    """Return the settings of this process as they would be with these changes; see `read_settings`."""
    return read_settings(os.environ, changes)
