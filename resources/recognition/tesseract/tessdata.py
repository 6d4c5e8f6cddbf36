"""Tesseract's language data: its folder, its identity in recipes, and the package that has it."""

import os
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from resources.errors import EngineError, did_you_mean
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
"""Of the reference corpus."""
SCRIPTS = {
    "kor": {"HANGUL"},
    "kor_vert": {"HANGUL"},
    "jpn": {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"},
    "jpn_vert": {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"},
    "chi_sim": {"CJK"},
    "chi_sim_vert": {"CJK"},
    "chi_tra": {"CJK"},
    "chi_tra_vert": {"CJK"},
    "rus": {"CYRILLIC"},
    "ukr": {"CYRILLIC"},
    "bul": {"CYRILLIC"},
    "ara": {"ARABIC"},
    "fas": {"ARABIC"},
    "heb": {"HEBREW"},
    "hin": {"DEVANAGARI"},
    "tha": {"THAI"},
}
"""Scripts of languages besides Latin and Greek, which any page may have."""


def scripts_of(languages: Iterable[str]) -> frozenset[str]:
    """The scripts of pages in these languages, by the first word of their letters' Unicode names."""
    return frozenset({"LATIN", "GREEK"}.union(*(SCRIPTS.get(language, set()) for language in languages)))


def data_files(languages: Sequence[str] = LANGUAGES) -> dict[str, Path | None]:
    """The traineddata file of each language, all from one folder; None for a language that is missing there."""
    found = [{name: place / f"{name}.traineddata" for name in languages} for place in _places()]
    best = max(found, key=lambda files: sum(path.is_file() for path in files.values()))
    return {name: path if path.is_file() else None for name, path in best.items()}


def tessdata_folder(languages: Sequence[str] = LANGUAGES) -> str:
    """The folder with the data of all languages. Raises `EngineError` that names what to install."""
    files = data_files(languages)
    missing = [name for name, path in files.items() if path is None]
    if missing:
        raise EngineError(no_data(missing))
    return f"{next(path for path in files.values() if path).parent}{os.sep}"


def no_data(missing: Sequence[str]) -> str:
    """That data of these languages is missing, and how to get it."""
    there = sorted({path.stem for place in _places() for path in place.glob("*.traineddata")})
    guess = "".join(did_you_mean(name, [*SCRIPTS, *there]) for name in missing if name not in SCRIPTS)
    lacks = f"Tesseract has no {' and '.join(missing)} data{guess}"
    return f"{lacks}: {install(missing)}; or set TESSDATA_PREFIX to its folder"


def install(languages: Sequence[str] = LANGUAGES) -> str:
    """The commands that install the data of these languages."""
    debian = " ".join(f"tesseract-ocr-{name.replace('_', '-')}" for name in languages)
    fedora = " ".join(f"tesseract-langpack-{name}" for name in languages)
    return (
        f"apt-get install {debian} (Debian, Ubuntu), dnf install {fedora} (Fedora) or "
        "brew install tesseract tesseract-lang (macOS)"
    )


def identity(languages: Sequence[str] = LANGUAGES) -> dict[str, str]:
    """The engine's version and the hash of each language's data, `missing` where there is none."""
    try:
        engine = version("tesserocr")
    except PackageNotFoundError:
        engine = "missing"
    hashes = {name: file_sha256(path) if path else "missing" for name, path in data_files(languages).items()}
    return {"tesserocr": engine, **hashes}


def _places() -> list[Path]:
    prefix = os.environ.get("TESSDATA_PREFIX")
    return [Path(prefix), Path(prefix) / "tessdata"] if prefix else [Path(place) for place in PLACES]
