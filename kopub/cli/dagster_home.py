"""The home of Dagster's history: $DAGSTER_HOME, with the platform's settings by default."""

import errno
import io
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from filelock import FileLock

from kopub.cli.console import tell
from kopub.errors import ConfigError, StoreError
from kopub.files import cannot_write
from kopub.folders import DATA
from kopub.states import phrase

if TYPE_CHECKING:
    import dagster as dg

_SETTINGS = DATA / "dagster.yaml"
_DONE = ".databases_made"


def instance_at(home: Path) -> "dg.DagsterInstance":
    """Return the instance of $DAGSTER_HOME, or else of a folder in the home."""
    import dagster as dg

    named = os.environ.get("DAGSTER_HOME")
    folder = Path(os.path.expanduser(named)) if named else home.resolve() / ".dagster"
    if not named and not folder.exists():
        tell(phrase("runs are recorded in {folder}, since DAGSTER_HOME is not set", folder))
    os.environ["DAGSTER_HOME"] = str(prepare_home(folder))
    return dg.DagsterInstance.get()


def prepare_home(folder: Path) -> Path:
    """Return `folder`, made if missing, with one machine's settings if empty.

    Raises `ConfigError` for a path that Dagster refuses, and `StoreError` if it cannot be written.
    """
    if not folder.is_absolute():
        raise ConfigError(
            "DAGSTER_HOME is '{folder}': Dagster needs an absolute path, such as {absolute}", folder, folder.absolute()
        )
    # SQLAlchemy takes the path of a database from a URL.
    if "?" in str(folder) or unquote(str(folder)) != str(folder):
        raise ConfigError(
            "Dagster cannot keep its history in '{folder}', whose path has a ? or what looks like %20: "
            "set DAGSTER_HOME to another folder",
            folder,
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            number = errno.EROFS if os.statvfs(folder).f_flag & os.ST_RDONLY else errno.EACCES
            raise OSError(number, os.strerror(number))
        if _SETTINGS.exists() and not any(folder.iterdir()):
            shutil.copy(_SETTINGS, folder / _SETTINGS.name)
    except FileExistsError:
        raise ConfigError("DAGSTER_HOME is '{folder}', which is a file: name a folder", folder) from None
    except OSError as error:
        raise StoreError(cannot_write(folder, error)) from error
    return folder


def make_databases(folder: Path) -> None:
    """Make the databases of the Dagster home `folder`, once.

    Dagster makes them when the first process needs them, and two processes that do so at the same moment fail.
    """
    with FileLock(folder / f"{_DONE}.lock"):
        if (folder / _DONE).exists():
            return
        # Imported late, since it is slow to load and every `make` comes through here.
        import dagster as dg

        with (
            dg.DagsterInstance.from_config(str(folder)) as instance,
            redirect_stdout(None),
            # This hides only its progress bar; errors are raised.
            redirect_stderr(io.StringIO()),
        ):
            instance.upgrade()
        (folder / _DONE).touch()
