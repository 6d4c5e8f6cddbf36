"""LibreOffice, which prints office files to PDF by a macro of its own: `printing.bas`."""

import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from kopub.errors import SourceError, UndecodableImage, first_line, visible
from kopub.fingerprints import CodeVersion

PRINT = CodeVersion(
    "pages.office_print",
    {
        1: "tracked changes are accepted, sheets are one page wide with whole cells, HTML is read in its charset",
        2: "what HTML hides is not printed, and sheets have no head and foot of LibreOffice's own",
        3: "quotes of delimited tables may be doubled anywhere, and apostrophes stay",
    },
)
"""A new version converts office files again."""

_MAC_PROGRAM = Path("/Applications/LibreOffice.app/Contents/MacOS/soffice")
_VERSION_SECONDS = 120.0
_STARTS = 2
"""Attempts to convert one document, if the first ends with neither a PDF nor an error."""
_NEVER = 2
"""LibreOffice's value for links that are never updated."""
_SETTINGS = (
    ("Office.Common/Security/Scripting", "MacroSecurityLevel", 3),
    ("Office.Common/Security/Scripting", "DisableMacrosExecution", "true"),
    ("Office.Common/Security/Scripting", "BlockUntrustedRefererLinks", "true"),
    ("Office.Writer/Content/Update", "Link", _NEVER),
    ("Office.Calc/Content/Update", "Link", _NEVER),
    # Nothing listens at this proxy, so a document that requests a web page gets none.
    ("Inet/Settings", "ooInetProxyType", 1),
    ("Inet/Settings", "ooInetHTTPProxyName", "127.0.0.1"),
    ("Inet/Settings", "ooInetHTTPProxyPort", 9),
    ("Inet/Settings", "ooInetHTTPSProxyName", "127.0.0.1"),
    ("Inet/Settings", "ooInetHTTPSProxyPort", 9),
    # At its first start, LibreOffice would replace the profile's macros by its own.
    ("Setup/Office", "ooSetupInstCompleted", "true"),
)
_XML = '<?xml version="1.0" encoding="UTF-8"?>'
_LIBRARY = "http://openoffice.org/2000/library"
_MACRO = "macro:///Standard.Printing.Main"


def program() -> Path | None:
    """Return LibreOffice's program, or None where it is not installed."""
    program = shutil.which("soffice") or shutil.which("libreoffice")
    return Path(program) if program else _MAC_PROGRAM if _MAC_PROGRAM.exists() else None


@cache
def version() -> str:
    """Return LibreOffice's name and version. Raises `SourceError` if it does not start."""
    with tempfile.TemporaryDirectory(prefix="kopub-office-") as home:
        try:
            answer = subprocess.run(
                [str(program()), f"-env:UserInstallation={Path(home).as_uri()}", "--version"],
                check=False,
                capture_output=True,
                text=True,
                env={**os.environ, "HOME": home},
                timeout=_VERSION_SECONDS,
            ).stdout
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SourceError("LibreOffice does not start ({error}): install it again", first_line(error)) from None
    if (number := re.search(r"LibreOffice (\d[\d.]*)", answer)) is None:
        raise SourceError("LibreOffice does not start: `soffice --version` names no version; install it again")
    return number[0]


def print_pdf(source: Path, pdf: Path, reader: str = "", copy: Path | None = None) -> None:
    """Print a document to PDF, read by the filter `reader` or the one that fits.

    The cells of a spreadsheet are written beside the PDF, to `cells_of` it. A `copy` is in a newer format.

    Raises `UndecodableImage` if that is impossible. LibreOffice gets its own profile beside the PDF, which allows
    neither a document's macros nor links. On a busy machine it may end with neither a PDF nor a message; it is then
    started once more.
    """
    error = pdf.with_name(f"{pdf.name}.error")
    for attempt in range(_STARTS):
        profile = pdf.with_name(f"profile{attempt}")
        _write_profile(profile / "user")
        subprocess.run(
            [
                *(str(program()), f"-env:UserInstallation={profile.as_uri()}", "--headless", "--norestore"),
                *("--nolockcheck", "--nodefault", "--nofirststartwizard", _MACRO),
            ],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                **{"HOME": str(profile), "XDG_CACHE_HOME": str(profile)},
                # What the macro asks for.
                **{"KOPUB_SOURCE": source.as_uri(), "KOPUB_PDF": pdf.as_uri(), "KOPUB_READER": reader},
                "KOPUB_COPY": copy.as_uri() if copy else "",
            },
        )
        if pdf.exists() or error.exists():
            break
    if not pdf.exists():
        reason = error.read_text(errors="replace").strip() if error.exists() else "it gave no PDF"
        reason = visible(reason.replace(source.as_uri(), "it"), 200)
        raise UndecodableImage("LibreOffice cannot convert it: {error}", error=reason)


def cells_of(pdf: Path) -> Path:
    """Return the file with the cells of a spreadsheet."""
    return pdf.with_name(f"{pdf.name}.cells")


def _write_profile(user: Path) -> None:
    """Write the settings and the macro of a new profile."""
    basic = user / "basic"
    (basic / "Standard").mkdir(parents=True)
    items = "".join(
        f'<item oor:path="/org.openoffice.{path}">'
        f'<prop oor:name="{name}" oor:op="fuse"><value>{value}</value></prop></item>'
        for path, name, value in _SETTINGS
    )
    settings = f'<oor:items xmlns:oor="http://openoffice.org/2001/registry">{items}</oor:items>'
    library = f'<library:library xmlns:library="{_LIBRARY}" library:name="Standard"'
    code = escape(Path(__file__).with_name("printing.bas").read_text())
    for path, content in (
        (user / "registrymodifications.xcu", settings),
        (
            basic / "script.xlc",
            f'<library:libraries xmlns:library="{_LIBRARY}">{library} library:link="false"/></library:libraries>',
        ),
        (basic / "Standard" / "script.xlb", f'{library}><library:element library:name="Printing"/></library:library>'),
        (
            basic / "Standard" / "Printing.xba",
            '<script:module xmlns:script="http://openoffice.org/2000/script" script:name="Printing" '
            f'script:language="StarBasic">{code}</script:module>',
        ),
    ):
        path.write_text(_XML + content)
