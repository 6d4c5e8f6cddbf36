"""Pages of a PDF as PNGs, rendered by PDFium in one thread per process."""

import io
import math
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import cv2
import numpy as np
from pypdfium2 import PDFIUM_INFO, PYPDFIUM_INFO, PdfDocument, PdfImage, PdfiumError, PdfPage, raw
from pypdfium2.internal import get_bufreader

from kopub.errors import UndecodableImage, counted, first_line, is_of_machine
from kopub.fingerprints import CodeVersion
from kopub.pages.damage import fax_as_tiff, fax_damage, jbig2_damage, jpeg_damage
from kopub.pages.documents.drawn_objects import pictures_of, pixels_of
from kopub.pages.documents.fonts import KOREAN_FONTS, prefer_korean_fonts
from kopub.pages.documents.layer_reader import read_layer
from kopub.pages.documents.missing_letters import with_missing_letters
from kopub.pages.documents.pieces import Piece
from kopub.pages.documents.text_layer import Extent, Mark, RenderedImage, TextLayer
from kopub.pages.page import MAX_PIXELS
from kopub.states import Reason

if TYPE_CHECKING:
    from kopub.pages.places import SourcePath

SUFFIX = ".pdf"
_POINTS = 72
"""PDF units per inch."""
_MAX_SIDE = 1_000_000
"""Longest side in pixels of a PNG that libpng accepts."""

_JPEG, _FLATE, _JBIG2 = "DCTDecode", "FlateDecode", "JBIG2Decode"
_MOST_INFLATED = 64 << 20
"""Most bytes inflated from a stream: the pixels of an A3 page in colour at 300 dpi; more may be a bomb."""
_APART = 61
"""Distance between the pixels that are checked first: less than the height of a line of text at 300 dpi."""
_MOST_PICTURES = 100
"""Most pictures of a page that are checked: a scan has one or a few, a drawing thousands of tiles."""

_MOST_MISSING = 1000
"""Most trailing pages that a damaged file may lack; if more are missing, its page count is wrong."""
_CONTENTS = re.compile(rb"/Contents\s*(\[[^\]]*\]|\d+ \d+ R)")
_REFERENCE = re.compile(rb"(\d+ \d+) R")
_FILTER = re.compile(rb"/(\w+)Decode\b")
_COMMENT = re.compile(rb"%[^\r\n]*")
_FORM = re.compile(rb"/Subtype\s*/Form\b")
_FAX = re.compile(rb"/CCITTFaxDecode\b")
_GROUP_4, _BYTE_ALIGNED = re.compile(rb"/K\s*-\d"), re.compile(rb"/EncodedByteAlign\s*true\b")
_COLUMNS, _HEIGHT = re.compile(rb"/Columns\s+(\d{1,6})\b"), re.compile(rb"/Height\s+(\d{1,6})\b")
_FAX_WIDTH = 1728
"""Columns of a fax that does not state its width."""
_ZLIB_HEADER, _ZLIB_CHECKSUM = 2, 4
"""Bytes before and after deflated data."""
_ADDRESS = re.compile(r" 0x[0-9a-f]+>")
_DRAWN_OBJECT = re.compile(rb"/[^\s/]+\s+Do\b")

_ANGLES = 200
"""Letters whose angles are looked at."""
_FEWEST_TURNED, _MOSTLY_TURNED = 20, 0.6
"""Letters of a page that is turned, and the share of them that must be drawn at one angle."""

CODE = CodeVersion(
    "pages.pdf",
    {
        1: "the first release",
        2: "damaged pictures of a page are said",
        3: "a page whose content cannot be read is none, and pages that are only counted are none",
        4: "content and pictures that are damaged in their middle are said",
        5: "damaged pictures of fax and JBIG2 data are said",
        6: "deflated pictures that cannot be drawn are said",
    },
)
"""A new version renders every page again."""


def version() -> str:
    """Return the versions on which the pixels depend.

    Pixels also depend on the PDF, the resolution, and fonts that are not embedded.
    """
    return f"pypdfium2 {PYPDFIUM_INFO}, PDFium {PDFIUM_INFO}, {CODE.number}"


def is_pdf(path: "SourcePath") -> bool:
    """Return whether a path has the suffix of a PDF."""
    return path.suffix.lower() == SUFFIX


class Pdfs:
    """PDFs as documents; the last stays open, because its pages are read in sequence.

    All methods raise `OSError` for a file that cannot be read now, and `MemoryError`. `open_file` opens one.
    """

    def __init__(self, open_file: Callable[[Path], BinaryIO] = io.FileIO) -> None:
        self._open_file = open_file
        self._path: Path | None = None
        self._document: PdfDocument | None = None
        self._access: Any = None
        """What PDFium calls to read the document."""
        self._is_incomplete: bool | None = None

    def pages(self, path: Path) -> int:
        """Return the number of pages. Raises `UndecodableImage` if none or not to be opened."""
        document = self._opened(path)
        claimed = last = len(document)
        # Damage often takes the last pages: those that can be loaded are read.
        while last:
            if page := raw.FPDF_LoadPage(document.raw, last - 1):
                raw.FPDF_ClosePage(page)
                break
            last -= 1
        if claimed and not last:
            raise UndecodableImage("it says that it has {count:,} pages, of which none can be found", count=claimed)
        if not last:
            raise UndecodableImage("the PDF has no pages")
        return claimed if claimed - last <= _MOST_MISSING else last

    def count(self, path: Path) -> Extent:
        """Count the pages, the attached files and the missing pages. Raises `UndecodableImage`."""
        pages, document = self.pages(path), self._opened(path)
        return Extent(pages, document.count_attachments(), len(document) - pages)

    def make(
        self, path: Path, page: int, dpi: int, pieces: Sequence[Piece] = (), with_text: bool = True
    ) -> RenderedImage:
        """Return the page as a PNG in grey or RGB, and its text layer.

        Pages count from 0. The PNG shows the crop box, upright, with annotations and form fields. `dpi` is lowered for
        a page that would have more than `MAX_PIXELS`. `pieces` are those of the document of which the PDF was made.
        Raises `UndecodableImage`.
        """
        try:
            document = self._opened(path)
            opened = document[page]
            if not min(opened.get_size()):
                # Its crop box is outside its media box, in which case other viewers show the whole page.
                box = opened.get_mediabox()
                assert box is not None, "PDFium gives a page without one the size of a letter"
                opened.set_cropbox(*box)
                opened.close()
                opened = document[page]
            _set_upright(opened)
            scale = _scale(*opened.get_size(), dpi)
            pixels = opened.render(scale=scale).to_numpy()  # pyright: ignore[reportArgumentType]
            layer = damage = None
            if with_text:
                layer = _layer(opened, pixels, pieces)
                damage = self._damage(path, page, opened, pixels)
                undrawn = layer.marked(Mark.UNDRAWN) if layer else 0
                if undrawn and not damage:
                    form = (
                        "the picture lacks {letters} of the text; this machine has no Korean font for a font that the "
                        "PDF does not embed: {advice}"
                    )
                    damage = Reason(form, letters=counted(undrawn, "letter"), advice=KOREAN_FONTS)
            opened.close()
            return RenderedImage(_png(pixels), layer and layer.to_json(), damage)
        except (PdfiumError, cv2.error) as error:
            if is_of_machine(error):
                raise MemoryError(str(error)) from None
            self._require_readable(path)
            raise UndecodableImage("the page cannot be drawn: {error}", error=str(error)) from None

    def _damage(self, path: Path, page: int, opened: PdfPage, pixels: np.ndarray) -> str | None:
        """Return what PDFium silently left out. Raises `UndecodableImage` if it was everything."""
        # PDFium gives no access to streams, so they are found in a copy of the page, which it writes in a plain form.
        copy, file = PdfDocument.new(), io.BytesIO()
        copy.import_pages(opened.pdf, [page])
        copy.save(file)
        copy.close()
        written = file.getvalue()
        references = _CONTENTS.search(written)
        contents = _streams(written, _REFERENCE.findall(references[1]) if references else ())
        forms, faxes = _streams_of_kind(written, _FORM), _streams_of_kind(written, _FAX)
        nothing_drawn = _is_empty(pixels) and next(iter(opened.get_objects()), None) is None
        lost = None
        for stream in (*contents, *forms):
            # Streams in other codings are not checked.
            lost = lost or (_inflate(stream[1])[1] if _is_deflated(stream) else None)
        if nothing_drawn and not lost and contents:
            lost = _why_nothing(contents)
        elif nothing_drawn and not lost:
            # Where the page's content is missing, PDFium writes none, so the whole file is looked at, once.
            if self._is_incomplete is None:
                with self._open_file(path) as file:
                    content = file.read()
                numbers = set(_REFERENCE.findall(b" ".join(_CONTENTS.findall(content))))
                self._is_incomplete = any(not re.search(rb"\b%s obj\b" % number, content) for number in numbers)
            if self._is_incomplete:
                lost = "it is missing from the file"
        if lost and nothing_drawn:
            raise UndecodableImage("the page's content is damaged: {error}", error=lost)
        if lost:
            return Reason("the page's content is damaged: {error}", error=lost)
        return _fax_damage(faxes) or _picture_damage(opened, pixels)

    def _opened(self, path: Path) -> PdfDocument:
        if self._document is not None and self._path == path:
            return self._document
        prefer_korean_fonts()
        if self._document is not None:
            self._document.close()
            self._path = self._document = self._is_incomplete = None
        self._access = get_bufreader(self._open_file(path))
        # For a PDF without pages, PdfDocument(file) reports the error of the previous PDF.
        handle = raw.FPDF_LoadCustomDocument(self._access[0], None)
        if not handle:
            error = raw.FPDF_GetLastError()
            self._require_readable(path)
            reasons = {
                raw.FPDF_ERR_PASSWORD: "the PDF wants a password: save it without one",
                raw.FPDF_ERR_SECURITY: "the PDF is locked in a way that PDFium does not know",
            }
            raise UndecodableImage(reasons.get(error, "the file is damaged or no PDF"))
        try:
            document = PdfDocument(handle)
            # PDFium renders form fields only if this is called before the first page is opened.
            document.init_forms()
        except PdfiumError as error:
            raise UndecodableImage("the PDF cannot be opened: {error}", error=str(error)) from None
        self._path, self._document = path, document
        return document

    def _require_readable(self, path: Path) -> None:
        """Raise `OSError` if a file that PDFium could not read cannot be read at all."""
        with self._open_file(path) as file:
            while file.read(1 << 20):
                pass


def _set_upright(page: PdfPage) -> None:
    """Turn a page whose letters are drawn sideways, unlike one that says so itself.

    PDFium has the angle of each letter, clockwise and before the page's own rotation.
    """
    text = page.get_textpage()
    try:
        count = text.count_chars()
        chosen = range(0, count, max(1, count // _ANGLES))
        angles = Counter(round(math.degrees(raw.FPDFText_GetCharAngle(text.raw, at))) % 360 for at in chosen)
    finally:
        text.close()
    angle, most = angles.most_common(1)[0] if angles else (0, 0)
    if count >= _FEWEST_TURNED and most >= _MOSTLY_TURNED * angles.total() and angle in (90, 180, 270):
        page.set_rotation((360 - angle) % 360)


def _picture_damage(page: PdfPage, pixels: np.ndarray) -> str | None:
    """Return what is wrong with the first damaged picture of a page.

    PDFium omits such a picture or draws it in part. Damage shows in the data of JPEGs and deflated pictures, and in the
    segments of JBIG2. Other pictures are decoded if nothing was drawn in their place. Damage within JBIG2 or JPEG 2000
    data that continues after it goes unnoticed.
    """
    for picture in islice(page.get_objects(filter=[raw.FPDF_PAGEOBJ_IMAGE]), _MOST_PICTURES):
        assert isinstance(picture, PdfImage)
        filters = picture.get_filters() or ["no filter"]
        damage = None
        try:
            if filters[-1] == _JPEG:
                damage = jpeg_damage(bytes(picture.get_data(decode_simple=True)))
            elif filters == [_FLATE]:
                damage = _inflate(bytes(picture.get_data()))[1]
            elif filters == [_JBIG2]:
                damage = jbig2_damage(bytes(picture.get_data()))
            if not damage and _is_empty(pixels_of(picture, page, pixels)):
                picture.get_bitmap()
        except (PdfiumError, ValueError) as error:
            # It names the picture by its address in memory, which is another one in every process.
            reason = _ADDRESS.sub(">", first_line(error))
            return Reason("a picture of the page cannot be drawn ({error})", error=f"{filters[-1]}: {reason}")
        if damage:
            return Reason("a picture of the page is damaged: {error}", error=damage)
    return None


_Stream = tuple[bytes, bytes]
"""The dictionary and the bytes of a stream."""


def _streams_of_kind(written: bytes, kind: re.Pattern[bytes]) -> list[_Stream]:
    """Return the streams of the objects in whose dictionaries a pattern is found."""
    numbers: list[bytes] = []
    for mark in kind.finditer(written):
        end = written.rfind(b" obj", 0, mark.start())
        numbers.append(written[written.rfind(b"\n", 0, end) + 1 : end])
    return _streams(written, numbers)


def _streams(written: bytes, numbers: Iterable[bytes]) -> list[_Stream]:
    streams = []
    for number in numbers:
        head = re.search(rb"\n%s obj\s*<<(.*?)>>\s*stream\r?\n" % re.escape(number), written, re.DOTALL)
        length = head and re.search(rb"/Length (\d+)", head[1])
        if head and length:
            streams.append((head[1], written[head.end() : head.end() + int(length[1])]))
    return streams


def _fax_damage(faxes: Sequence[_Stream]) -> str | None:
    """Return what is wrong with the first damaged Group 4 picture, as PDFium reports none."""
    for dictionary, data in faxes[:_MOST_PICTURES]:
        columns, height = _COLUMNS.search(dictionary), _HEIGHT.search(dictionary)
        width, rows = int(columns[1]) if columns else _FAX_WIDTH, int(height[1]) if height else 0
        is_group_4 = _FILTER.findall(dictionary) == [b"CCITTFax"] and _GROUP_4.search(dictionary)
        is_usual = is_group_4 and not _BYTE_ALIGNED.search(dictionary)
        if is_usual and 0 < width * rows <= MAX_PIXELS and (lost := fax_damage(fax_as_tiff(data, width, rows))):
            return Reason("a picture of the page is damaged: {error}", error=lost)
    return None


def _is_deflated(stream: _Stream) -> bool:
    return _FILTER.findall(stream[0]) == [b"Flate"] and b"/DecodeParms" not in stream[0]


def _inflate(data: bytes) -> tuple[bytes, str | None]:
    """Return what can be inflated, and the damage; the checksum may be missing."""
    inflated = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        content = inflated.decompress(data[_ZLIB_HEADER:], _MOST_INFLATED)
    except zlib.error as error:
        return b"", first_line(error)
    if not inflated.eof:
        return content, None if inflated.unconsumed_tail else "it is cut off"
    checksum = inflated.unused_data[:_ZLIB_CHECKSUM]
    is_whole = len(checksum) < _ZLIB_CHECKSUM or checksum == zlib.adler32(content).to_bytes(_ZLIB_CHECKSUM)
    return content, None if is_whole else "its checksum is that of other bytes"


def _why_nothing(contents: Sequence[_Stream]) -> str | None:
    """Return why sound content streams draw nothing, None if valid or unreadable."""
    whole = b""
    for stream in contents:
        if _FILTER.search(stream[0]) and not _is_deflated(stream):
            return None
        whole += _inflate(stream[1])[0] if _is_deflated(stream) else stream[1]
    whole = _COMMENT.sub(b"", whole)
    if not whole.isascii() or b"\0" in whole:
        return "it is no page description"
    return "what it draws is missing from the file" if _DRAWN_OBJECT.search(whole) else None


def _is_empty(pixels: np.ndarray) -> bool:
    """Return whether all pixels have one colour, checking a few of them first."""
    if not pixels.size:
        return True
    first = pixels[0, 0]
    return bool((pixels[::_APART, ::_APART] == first).all() and (pixels == first).all())


def _layer(page: PdfPage, pixels: np.ndarray, pieces: Sequence[Piece]) -> TextLayer | None:
    try:
        layer = read_layer(page, pixels)
    # Hostile text may raise anything; the page is drawn anyway, and its layer states the failure.
    except Exception as error:
        layer = TextLayer.failed(first_line(error))
    if pieces and (layer is None or not layer.failure):
        height, width = pixels.shape[:2]
        layer = layer or TextLayer.empty(width, height)
        layer = replace(
            layer,
            words=tuple(with_missing_letters(layer.words)),
            pieces=tuple(pieces),
            pictures=tuple(pictures_of(page, width, height)),
        )
    return layer


def _scale(width: float, height: float, dpi: int) -> float:
    """Return the pixels per point for `dpi`, or as many as fit `MAX_PIXELS`.

    Both sides are rounded up. Raises `UndecodableImage` for a page too long for a PNG.
    """
    scale = dpi / _POINTS
    if math.ceil(width * scale) * math.ceil(height * scale) > MAX_PIXELS:
        # This is the positive root of (width·s + 1)(height·s + 1) = MAX_PIXELS.
        area, half = width * height, (width + height) / 2
        scale = (math.sqrt(half * half + area * (MAX_PIXELS - 1)) - half) / area
    if max(width, height) * scale > _MAX_SIDE:
        form = "the page is {width:,.0f} by {height:,.0f} points: at {dpi} dpi it is longer than {pixels:,} pixels"
        raise UndecodableImage(form, width=width, height=height, dpi=dpi, pixels=_MAX_SIDE)
    return scale


def _png(page: np.ndarray) -> bytes:
    """Return BGR pixels as a PNG, in grey if all channels are equal.

    It decodes to the same page. OpenCV is the fastest installed encoder for rendered pages, which are no larger without
    PNG filters. Raises `UndecodableImage`.
    """
    blue, green, red = np.moveaxis(page, -1, 0)
    grey = np.array_equal(blue, green) and np.array_equal(green, red)
    options = [cv2.IMWRITE_PNG_COMPRESSION, 1, cv2.IMWRITE_PNG_STRATEGY, cv2.IMWRITE_PNG_STRATEGY_DEFAULT]
    options += [cv2.IMWRITE_PNG_FILTER, cv2.IMWRITE_PNG_FILTER_NONE]
    encoded, data = cv2.imencode(".png", np.ascontiguousarray(blue) if grey else page, options)
    if not encoded:
        form = "the page of {width:,} by {height:,} pixels cannot be encoded as a PNG"
        raise UndecodableImage(form, width=page.shape[1], height=page.shape[0])
    return data.tobytes()
