"""The folders of the package and of the people who use it."""

import os
import re
from pathlib import Path

from kopub.errors import did_you_mean, first_line
from kopub.states import phrase

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "kopub" / "data"
"""The files that come with the package: profiles, samples, and the settings of a Dagster home."""
PROFILES = DATA / "profiles"
SAMPLES = DATA / "samples"
"""The corpus of a home that has no corpus of its own."""
PINS = PROFILES / "models.yaml"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]+:")
"""At least two characters before the colon, since a single one is a Windows drive."""
_URL = re.compile(_SCHEME.pattern + "/")
_WITHOUT_PATH = frozenset({"memory"})
"""Protocols whose URLs need not name a bucket or folder."""


def placed(folder: str | Path) -> Path:
    """Return `folder` as an absolute path, wherever a command starts.

    A relative folder lies below the checkout, or below the current folder if KoPub is installed. Raises `ValueError`
    for a URL, a file, or text that cannot be a path.
    """
    if _URL.match(str(folder)):
        raise ValueError(phrase("{folder!r} is a URL, and must be a folder of this machine", str(folder)))
    try:
        base = ROOT if (ROOT / "pyproject.toml").exists() else Path.cwd()
        path = base / Path(folder).expanduser()
        is_other = path.exists() and not path.is_dir()
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else first_line(error)
        raise ValueError(phrase("{folder!r:.200} is no folder: {error}", str(folder), reason)) from None
    if is_other:
        raise ValueError(phrase("{folder!r} is a file, and must be a folder", str(folder)))
    return path


def runtime_folder() -> Path:
    """Return the folder of this user's servers and locks: $KOPUB_RUNTIME, else one in /tmp.

    It is created if needed. Like GPUs, it belongs to the machine and not to a session or checkout, because a daemon and
    a command line must find the same servers. Raises `PermissionError` for a folder that others could have created.
    """
    setting = os.environ.get("KOPUB_RUNTIME")
    folder = Path(setting) if setting else Path("/tmp") / f"kopub-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} must belong to you alone (mode 0700); set KOPUB_RUNTIME to another folder")
    return folder


def store_url(url: str) -> str:
    """Return the folder or fsspec URL of the tables, a folder as an absolute path.

    Raises `ValueError` for a URL that no installed package can open. Connects to nothing.
    """
    if not url.strip() or not url.isprintable():
        raise ValueError(phrase("{url!r} is neither a folder nor a URL such as s3://bucket/prefix", url))
    if "://" not in url and "::" not in url:
        if _SCHEME.match(url):
            scheme, _, path = url.partition(":")
            form = "{url!r} is malformed: write {scheme}://{path}, or the path of a folder"
            raise ValueError(phrase(form, url, scheme, path.lstrip("/")))
        return str(placed(url))
    import fsspec

    protocols = fsspec.available_protocols()
    # A URL may be a chain of links, such as `simplecache::s3://bucket`.
    for link in url.split("::"):
        protocol, slashes, path = link.partition("://")
        if protocol not in protocols:
            guess = did_you_mean(protocol, protocols, in_brackets=True)
            raise ValueError(phrase("{url!r} has the unknown protocol {protocol!r}{guess}", url, protocol, guess))
        if slashes and protocol not in _WITHOUT_PATH and not path.strip("/"):
            raise ValueError(phrase("{url!r} names no bucket or folder", url))
        try:
            fsspec.get_filesystem_class(protocol)
        except ImportError as error:
            form = "{url!r} needs a package that is missing: {error}"
            raise ValueError(phrase(form, url, first_line(error))) from None
        if link == url and protocol in ("file", "local"):
            return str(placed(path))
    return url
