"""The recognizer of the cpu profile: Tesseract 5, in Korean and English or other languages."""

import os
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, field_validator

from kopub.engine import releases
from kopub.errors import EngineError, did_you_mean
from kopub.fingerprints import CodeVersion, file_sha256
from kopub.recognition.print_recognizer import PrintRecognizer
from kopub.recognition.tesseract import LANGUAGES
from kopub.states import phrase, with_remedy

if TYPE_CHECKING:
    from kopub.recognition.tesseract.reader import Reader

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


class TesseractRecognizer(PrintRecognizer):
    """Reads regions with Tesseract; tables become `<table>` HTML, pictures are kept."""

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "recognition.tesseract",
        {
            1: "the first release",
            2: "faint print is read; regions that Tesseract is unsure of say so",
            3: "Latin words that were read as sure numbers or unsure Hangul are read in English",
            4: "a row of nothing but dots stays between its neighbours",
            5: "tables without upright rules are read cell by cell",
            6: "lines beside each other that are not level are read one by one",
            7: "words of a label are no columns, a dash alone in a cell is one, and odd figures are doubted",
            8: "columns that may be one are doubted, and the words of a label in a short table are none",
            9: "signs and ㎡ of figures whose digits both readers know are read, and rare, unsure units doubted",
        },
    )
    limits: ClassVar[tuple[str, ...]] = (
        "Formulas are plain text as Tesseract read it, not LaTeX; `$$` marks where one stands.",
    )

    languages: list[str] = Field(
        default=list(LANGUAGES),
        min_length=1,
        description="Languages of the pages by the names of Tesseract's data (kor, eng, jpn, chi_sim ...), the main "
        "one first. Korean and English are each read by their own engine, line by line; others by one engine for all.",
    )

    @field_validator("languages")
    @classmethod
    def _named_as_data(cls, languages: list[str]) -> list[str]:
        for name in languages:
            if not _DATA_NAME.fullmatch(name):
                form = "{name!r} is no name of Tesseract's data; write one such as kor, eng, jpn or chi_sim"
                raise ValueError(phrase(form, name))
        return list(dict.fromkeys(languages))

    @property
    def expected_scripts(self) -> frozenset[str]:
        return scripts_of(self.languages)

    def remedy(self, script: str) -> str:
        languages = [language for language, scripts in SCRIPTS.items() if script in scripts and "_vert" not in language]
        missing = _without_data(languages)
        data = phrase("; Tesseract lacks its data: {commands}", install(missing)) if missing else ""
        names = " / ".join(languages) or phrase("its language")
        return phrase("add {languages} to recognition.languages{data}", names, data)

    def weights(self) -> dict[str, str]:
        from kopub.recognition.tesseract import figure_model

        return {**identity(self.languages), **figure_model.identity()}

    def lacks(self) -> list[str]:
        missing = _without_data(self.languages)
        return [missing_data_message(missing)] if missing else []

    def advises(self) -> list[str]:
        from kopub.recognition.tesseract import figure_model

        if figure_model.model() is not None:
            return []
        return [with_remedy("signs such as △ ▲ ± are not read, and figures by one reader alone", figure_model.INSTALL)]

    def open_reader(self) -> "Reader":
        from kopub.recognition.tesseract.reader import Reader

        return Reader(tessdata_folder(self.languages), self.languages)


def scripts_of(languages: Iterable[str]) -> frozenset[str]:
    """Return the scripts of pages in these languages, as `script_of` names them."""
    return frozenset({"LATIN", "GREEK"}.union(*(SCRIPTS.get(language, set()) for language in languages)))


def data_files(languages: Sequence[str] = LANGUAGES) -> dict[str, Path | None]:
    """Return each language's traineddata file, all from one folder; None for a missing one."""
    most: dict[str, Path | None] = dict.fromkeys(languages)
    for place in _places():
        files: dict[str, Path | None] = {}
        for name in languages:
            path = place / f"{name}.traineddata"
            files[name] = path if path.is_file() else None
        if sum(map(bool, files.values())) > sum(map(bool, most.values())):
            most = files
    return most


def _without_data(languages: Sequence[str]) -> list[str]:
    return [name for name, path in data_files(languages).items() if path is None]


def tessdata_folder(languages: Sequence[str] = LANGUAGES) -> str:
    """Return the folder of all languages' data, or raise `EngineError` with the remedy."""
    if missing := _without_data(languages):
        raise EngineError(missing_data_message(missing))
    return f"{next(path for path in data_files(languages).values() if path).parent}{os.sep}"


def missing_data_message(missing: Sequence[str]) -> str:
    """Say that data of these languages is missing, and how to get it."""
    there = sorted({path.stem for place in _places() for path in place.glob("*.traineddata")})
    guess = "".join(did_you_mean(name, [*SCRIPTS, *there]) for name in missing if name not in SCRIPTS)
    finding = phrase("Tesseract has no {languages} data{guess}", ", ".join(missing), guess)
    return with_remedy(finding, phrase("{commands}; or set TESSDATA_PREFIX to its folder", install(missing)))


def install(languages: Sequence[str] = LANGUAGES) -> str:
    """Return the commands that install the data of these languages."""
    debian = " ".join(f"tesseract-ocr-{name.replace('_', '-')}" for name in languages)
    fedora = " ".join(f"tesseract-langpack-{name}" for name in languages)
    form = (
        "apt-get install {debian} (Debian, Ubuntu), dnf install {fedora} (Fedora) or "
        "brew install tesseract tesseract-lang (macOS)"
    )
    return phrase(form, debian, fedora)


def identity(languages: Sequence[str] = LANGUAGES) -> dict[str, str]:
    """Return the engine's version and each language's hash, or `missing`."""
    hashes = {name: file_sha256(path) if path else "missing" for name, path in data_files(languages).items()}
    return {**releases("tesserocr"), **hashes}


def _places() -> list[Path]:
    prefix = os.environ.get("TESSDATA_PREFIX")
    return [Path(prefix), Path(prefix) / "tessdata"] if prefix else list(map(Path, PLACES))
