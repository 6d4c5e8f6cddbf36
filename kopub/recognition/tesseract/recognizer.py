"""The recognizer of the cpu profile: Tesseract 5, in Korean and English or other languages."""

import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, field_validator

from kopub.engine import releases
from kopub.errors import EngineError, did_you_mean
from kopub.fingerprints import CodeVersion, file_sha256
from kopub.layout.regions import Region
from kopub.pages.page import Page, room_for
from kopub.parallel import bounded_map, of_two_cores
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading
from kopub.recognition.tesseract import LANGUAGES

PLACES = (
    f"{sys.prefix}/share/tessdata",
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
"""Folders of Tesseract's data: the environment, where the wheel `kopub-tessdata` puts them, and where `make setup`
unpacks Debian packages without root; Debian and Ubuntu; Arch; Fedora; source builds and Homebrew on Intel; Homebrew on
Apple silicon; Linuxbrew; MacPorts."""

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
"""Scripts of languages, besides Latin and Greek, which any page may have."""
_DATA_NAME = re.compile(r"[A-Za-z][A-Za-z_]*")


class TesseractRecognizer(Recognizer):
    """Reads regions with Tesseract; tables become `<table>` HTML, pictures are kept."""

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "recognition.tesseract",
        {
            1: "the first release",
            2: "faint print is read; regions that Tesseract is unsure of say so",
            3: "Latin words that were read as sure numbers or unsure Hangul are read in English",
            4: "a row of nothing but dots stays between its neighbours",
            5: "tables without upright rules are read cell by cell",
        },
    )
    typical_seconds: ClassVar[float] = 0.03
    typical_seconds_per_megabyte: ClassVar[float] = 0.84
    speed_only: ClassVar[frozenset[str]] = frozenset({"threads", "page_seconds"})
    limits: ClassVar[tuple[str, ...]] = (
        "Formulas are plain text as Tesseract read it, not LaTeX; `$$` marks where one stands.",
    )

    languages: list[str] = Field(
        default=list(LANGUAGES),
        min_length=1,
        description="Languages of the pages by the names of Tesseract's data (kor, eng, jpn, chi_sim ...), the main "
        "one first. Korean and English are each read by their own engine, line by line; others by one engine for all.",
    )
    threads: int = Field(default=0, ge=0, description="Pages read at once; 0 means one per core.")
    page_seconds: float = Field(
        default=120.0,
        gt=0,
        description="Seconds of processor time that the reading of a page may take; its other regions fail, and the "
        "next run reads it again. A page of text takes 1 to 6.",
    )

    @field_validator("languages")
    @classmethod
    def _named_as_data(cls, languages: list[str]) -> list[str]:
        for name in languages:
            if not _DATA_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of Tesseract's data; write one such as kor, eng, jpn or chi_sim")
        return list(dict.fromkeys(languages))

    @property
    def expected_scripts(self) -> frozenset[str]:
        return scripts_of(self.languages)

    def remedy(self, script: str) -> str:
        named = [language for language, scripts in SCRIPTS.items() if script in scripts and "_vert" not in language]
        missing = [language for language, path in data_files(named).items() if path is None]
        data = f"; Tesseract lacks its data: {install(missing)}" if missing else ""
        return f"add {' or '.join(named) or 'its language'} to recognition.languages{data}"

    def weights(self) -> dict[str, str]:
        from kopub.recognition.tesseract import figures

        return {**identity(self.languages), **figures.identity()}

    def expected_seconds(self, megabytes: float) -> float:
        return super().expected_seconds(megabytes) * of_two_cores(self.threads)

    def lacks(self) -> list[str]:
        missing = [name for name, path in data_files(self.languages).items() if path is None]
        return [missing_data_message(missing)] if missing else []

    def advises(self) -> list[str]:
        from kopub.recognition.tesseract import figures

        if figures.model() is not None:
            return []
        return [f"signs such as △ ▲ ± are not read, and figures by one reader alone: {figures.INSTALL}"]

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        from kopub.recognition.tesseract.pages import read_page
        from kopub.recognition.tesseract.reader import Reader

        folder = tessdata_folder(self.languages)
        local = threading.local()
        readers: list[Reader] = []

        def work(item: tuple[Page, Sequence[Region]]) -> PageReading:
            if not hasattr(local, "reader"):
                local.reader = Reader(folder, self.languages)
                readers.append(local.reader)
            with room_for(item[0].data):
                local.reader.limit(self.page_seconds)
                return read_page(local.reader, *item)

        try:
            yield from bounded_map(work, pages, self.threads)
        finally:
            for reader in readers:
                reader.close()


def scripts_of(languages: Iterable[str]) -> frozenset[str]:
    """Return the scripts of pages in these languages, as `script_of` names them."""
    return frozenset({"LATIN", "GREEK"}.union(*(SCRIPTS.get(language, set()) for language in languages)))


def data_files(languages: Sequence[str] = LANGUAGES) -> dict[str, Path | None]:
    """Return each language's traineddata file, all from one folder; None for a missing one."""
    found = [{name: place / f"{name}.traineddata" for name in languages} for place in _places()]
    best = max(found, key=lambda files: sum(path.is_file() for path in files.values()))
    return {name: path if path.is_file() else None for name, path in best.items()}


def tessdata_folder(languages: Sequence[str] = LANGUAGES) -> str:
    """Return the folder of all languages' data, or raise `EngineError` with the remedy."""
    files = data_files(languages)
    missing = [name for name, path in files.items() if path is None]
    if missing:
        raise EngineError(missing_data_message(missing))
    return f"{next(path for path in files.values() if path).parent}{os.sep}"


def missing_data_message(missing: Sequence[str]) -> str:
    """Say that data of these languages is missing, and how to get it."""
    there = sorted({path.stem for place in _places() for path in place.glob("*.traineddata")})
    guess = "".join(did_you_mean(name, [*SCRIPTS, *there]) for name in missing if name not in SCRIPTS)
    lacks = f"Tesseract has no {' and '.join(missing)} data{guess}"
    return f"{lacks}: {install(missing)}; or set TESSDATA_PREFIX to its folder"


def install(languages: Sequence[str] = LANGUAGES) -> str:
    """Return the commands that install the data of these languages."""
    debian = " ".join(f"tesseract-ocr-{name.replace('_', '-')}" for name in languages)
    fedora = " ".join(f"tesseract-langpack-{name}" for name in languages)
    return (
        f"apt-get install {debian} (Debian, Ubuntu), dnf install {fedora} (Fedora) or "
        "brew install tesseract tesseract-lang (macOS)"
    )


def identity(languages: Sequence[str] = LANGUAGES) -> dict[str, str]:
    """Return the engine's version and each language's hash, or `missing`."""
    hashes = {name: file_sha256(path) if path else "missing" for name, path in data_files(languages).items()}
    return {**releases("tesserocr"), **hashes}


def _places() -> list[Path]:
    prefix = os.environ.get("TESSDATA_PREFIX")
    return [Path(prefix), Path(prefix) / "tessdata"] if prefix else [Path(place) for place in PLACES]
