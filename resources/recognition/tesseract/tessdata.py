"""Tesseract's language data: its folder, and its identity in recipes."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from resources.errors import EngineError
from resources.fingerprints import file_sha256

PLACES = (
    f"{sys.prefix}/usr/share/tesseract-ocr/5/tessdata",
    "/usr/share/tesseract-ocr/5/tessdata",
    "/usr/share/tesseract-ocr/4.00/tessdata",
    "/usr/share/tessdata",
    "/usr/share/tesseract/tessdata",
    "/usr/local/share/tessdata",
    "/opt/homebrew/share/tessdata",
    "/home/linuxbrew/.linuxbrew/share/tessdata",
    "/opt/local/share/tessdata",
)
"""The virtual environment, where `make setup` unpacks Debian's packages without root; Debian and Ubuntu; Arch; Fedora;
source builds and Homebrew on Intel; Homebrew on Apple; Linuxbrew; MacPorts."""

LANGUAGES = ("kor", "eng")
INSTALL = (
    "apt-get install tesseract-ocr-kor tesseract-ocr-eng (Debian, Ubuntu), "
    "dnf install tesseract-langpack-kor tesseract-langpack-eng (Fedora) or "
    "brew install tesseract tesseract-lang (macOS)"
)


def data_files() -> dict[str, Path | None]:
    """The traineddata file of each language, all from one folder; None for a language that is missing there."""
    prefix = os.environ.get("TESSDATA_PREFIX")
    places = [Path(prefix), Path(prefix) / "tessdata"] if prefix else [Path(place) for place in PLACES]
    found = [{name: place / f"{name}.traineddata" for name in LANGUAGES} for place in places]
    best = max(found, key=lambda files: sum(path.is_file() for path in files.values()))
    return {name: path if path.is_file() else None for name, path in best.items()}


def tessdata_folder() -> str:
    """The folder with Korean and English data. Raises `EngineError` that names what to install."""
    files = data_files()
    missing = [name for name, path in files.items() if path is None]
    if missing:
        raise EngineError(no_data(missing))
    return f"{next(path for path in files.values() if path).parent}{os.sep}"


def no_data(missing: Sequence[str]) -> str:
    """That data of these languages is missing, and how to get it."""
    return f"Tesseract has no {' and '.join(missing)} data: {INSTALL}; or set TESSDATA_PREFIX to its folder"


def identity() -> dict[str, str]:
    """The engine's version and the hash of each language's data, `missing` where there is none."""
    try:
        engine = version("tesserocr")
    except PackageNotFoundError:
        engine = "missing"
    hashes = {name: file_sha256(path) if path else "missing" for name, path in data_files().items()}
    return {"tesserocr": engine, **hashes}
