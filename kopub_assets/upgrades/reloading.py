"""Definitions that follow the profile: where its files or the index changed, the code server loads them again.

A code server holds what it loaded. `kopub ui` and every deployment run one that can load anew beside its runs
(`dagster code-server start`). Dagster's daemon replaces one of its own each minute.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import dagster as dg

from resources.config.settings import Settings, written_settings
from resources.fingerprints import fingerprint
from resources.pages.manifest import Manifest

NAME = "profile_watch"
_EVERY = 30
"""Seconds between two looks at the files."""
_PATIENCE = 300
"""Seconds for the definitions to load."""


def profile_watch(settings: Settings, load: Callable[[], Any]) -> dg.SensorDefinition:
    """Return the sensor that has the definitions of `settings` loaded again when the profile or the index changed.

    `load` tries whether what is written now can be loaded, and raises where it cannot: the definitions stay until then.
    """
    loaded = _written(settings)

    @dg.sensor(
        name=NAME,
        minimum_interval_seconds=_EVERY,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Loads the definitions again when the profile, the model pins or the index changed.",
    )
    def watch(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        if _written(settings) == loaded:
            return dg.SkipReason("The definitions are those of the profile and the index.")
        load()
        # Of the origins of code, a server that other processes ask has a client.
        if connect := getattr(context.code_location_origin, "create_client", None):
            # The process of this tick ends when the definitions are loaded: the tick cannot wait for them.
            threading.Thread(target=connect().reload_code, args=(_PATIENCE,), daemon=True).start()
        return dg.SkipReason("The profile or the index changed: the definitions are loaded again.")

    return watch


def _written(settings: Settings) -> str:
    """Return a fingerprint of the files behind `settings` as they are now. Raises `ConfigError` and `SourceError`."""
    return fingerprint([written_settings(os.environ), Manifest.load(settings.corpus.place).to_json()])
