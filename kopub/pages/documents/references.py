"""References of documents to files and hosts, where the kernel keeps no converter from them.

Landlock makes all of this needless: `kopub.confinement`.
"""

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from kopub.errors import UndecodableImage
from kopub.pages.documents import web_page

_OLE, _RTF, _GZIP = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rt", b"\x1f\x8b"
_MOST_BYTES = 1 << 27
"""Most bytes of a packed picture, which conversions could not draw if it were larger."""
_MOST_NESTED = 3
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|[/\\]|(.*[/\\])?(\.|%2e){2}", re.IGNORECASE)
_WITHIN = re.compile(r"#|data:image/(png|jpe?g|gif|bmp|tiff|webp)[;,]", re.IGNORECASE)
_STYLES = re.compile(r"url\(\s*[\"']?(?!#)|@import", re.IGNORECASE)
_FIELDS = ("INCLUDE", "DDE", "LINK", "IMPORT", "DATABASE")
"""How the names of fields begin that show a file, in Word's formats."""
_LINKS = frozenset({"a", "template", "event-listener"})
_LINK_TYPES = ("/hyperlink", "/attachedTemplate", "/externalLinkPath")
"""Elements and relationships that are for readers, or that LibreOffice is told not to follow."""
_RTF_WORDS = re.compile(rb"(\\\*\s*)?\\(fldinst|template|objdata|mailmerge|filetbl|pibName)(?![A-Za-z])")
_WEB_ATTRIBUTES = frozenset({"src", "srcset", "data", "background", "poster", "code", "codebase", "archive"})
_WEB_ELEMENTS = ("base", "link", "meta", "iframe", "frame", "object", "embed", "applet", "script", "svg")


def without_references(path: Path, folder: Path) -> Path:
    """Return a copy of an office file in a folder, without its references.

    Raises a one-line `UndecodableImage` if it refers to a file or host and this cannot be removed.
    """
    content = path.read_bytes()
    cleaned = content
    if zipfile.is_zipfile(path) or content.startswith(_OLE):
        if (target := next(_references(content), None)) is not None:
            form = (
                "it refers to “{target}”, and this machine cannot keep LibreOffice from files: "
                "remove the reference, or convert it elsewhere"
            )
            raise UndecodableImage(form, target=target[:100])
    elif content.lstrip().startswith(_RTF):
        cleaned = _RTF_WORDS.sub(rb"\\*\\removed", content)
    elif path.suffix.lower() in (".html", ".htm"):
        soup = BeautifulSoup(web_page.decoded(content), "lxml")
        for element in soup.find_all([*_WEB_ELEMENTS]):
            element.decompose()
        for style in soup("style"):
            if _STYLES.search(style.text):
                style.decompose()
        for element in soup.find_all(True):
            for name, value in list(element.attrs.items()):
                if name in _WEB_ATTRIBUTES or (name == "style" and _STYLES.search(str(value))):
                    del element.attrs[name]
        cleaned = str(soup).encode()
    else:
        form = "the file is damaged or no office document: {error}"
        raise UndecodableImage(form, error=f"it is no {path.suffix[1:].upper()}")
    copy = folder / f"cleaned{path.suffix}"
    copy.write_bytes(cleaned)
    return copy


def _references(content: bytes, depth: int = 0) -> Iterator[str]:
    """Yield what a file or a part of one refers to."""
    if content.startswith(_GZIP):
        content = zlib.decompressobj(31).decompress(content, _MOST_BYTES)
    plain = content.replace(b"\0", b"")
    if content.startswith(b"PK\3\4"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for name in archive.namelist():
                if depth == _MOST_NESTED:
                    yield name
                yield from _references(archive.read(name), depth + 1)
    elif content.startswith(_OLE):
        yield from (f"{name}…" for name in ("INCLUDEPICTURE", "INCLUDETEXT", "file://") if name.encode() in plain)
    elif content.lstrip().startswith(_RTF) or b"<html" in plain[:4096].lower():
        yield "another document"
    elif plain.lstrip(b"\xef\xbb\xbf\xfe\xff \t\r\n").startswith(b"<"):
        yield from _in_xml(content)


def _in_xml(content: bytes) -> Iterator[str]:
    options: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "recover": True}
    fields: list[str] = []
    for event, element in etree.iterparse(io.BytesIO(content), events=("end", "pi"), **options):
        if event == "pi":
            if element.target == "xml-stylesheet":
                yield str(element.text)
            continue
        name = element.tag.rpartition("}")[2]
        values = {key.rpartition("}")[2]: "".join(value.split()) for key, value in element.attrib.items()}
        is_link = name in _LINKS or values.get("Type", "").endswith(_LINK_TYPES)
        for key in ("href", "src", "Target"):
            target = values.get(key, "")
            # Relationships name parts of the package from its root, or from beside them.
            is_part = key == "Target" and values.get("TargetMode") != "External" and target.startswith(("/", ".."))
            if not is_link and not is_part and _OUTSIDE.match(target) and not _WITHIN.match(target):
                yield target
        fields.append(values.get("instr", ""))
        if name == "instrText":
            fields.append(element.text or "")
        if name == "style" and _STYLES.search("".join(element.itertext())):
            yield "a style sheet"
        yield from filter(_STYLES.search, values.values())
    instructions = "".join("".join(fields).split()).upper()
    yield from (f"{field}…" for field in _FIELDS if field in instructions.replace("HYPERLINK", ""))
