"""Where Dagster keeps its history: $DAGSTER_HOME, with the platform's settings where it has none of its own."""

import shutil
from pathlib import Path

from resources.errors import ConfigError, StoreError

_SETTINGS = Path(__file__).resolve().parent.parent / "deploy" / "local" / "dagster.yaml"


def prepared(folder: Path) -> Path:
    """`folder`, made where it is missing; a new or empty one gets the settings of one machine.

    Raises `ConfigError` for a path that Dagster refuses, and `StoreError` where it cannot be written.
    """
    if not folder.is_absolute():
        raise ConfigError(f"DAGSTER_HOME is '{folder}': Dagster wants the whole path, as {folder.absolute()}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if _SETTINGS.exists() and not any(folder.iterdir()):
            shutil.copy(_SETTINGS, folder / _SETTINGS.name)
    except FileExistsError:
        raise ConfigError(f"DAGSTER_HOME is '{folder}', which is a file: name a folder") from None
    except OSError as error:
        from resources.files import cannot_write

        raise StoreError(cannot_write(folder, error)) from error
    return folder
