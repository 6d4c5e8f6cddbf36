"""E-mails, with what is attached as further pages of one PDF."""

import re
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage, MIMEPart
from html import escape
from io import BytesIO
from pathlib import Path, PurePath

from PIL import Image
from pypdfium2 import PdfDocument

from kopub.errors import UndecodableImage, visible
from kopub.pages.documents import pdf, pictures, plain, web_page
from kopub.pages.documents.pieces import Conversion, Piece
from kopub.states import Reason, joined

SUFFIX = ".eml"
_HEADS = ("From", "To", "Cc", "Date")
_MOST = 100
"""Most attachments of a mail that are read."""
_DEEPEST = 3
"""Most mails in each other."""
_NAME = 60
_SUFFIXES = {"plain": "txt", "rfc822": "eml"}
_PLACE = "attached"
_DPI, _QUALITY = 300, 95
_KOREAN = ("", "us-ascii", "utf-8", "euc-kr", "cp949", "ks_c_5601-1987")
"""Charsets that mails name for text in UTF-8 or CP949."""

Convert = Callable[[Path, Path], Conversion]


def convert(path: Path, folder: Path, convert_file: Convert) -> Conversion:
    """Return a mail with its attachments as one PDF.

    `convert_file` converts a file of another kind in a folder of its own. An attachment that cannot be read is lost on
    the mail's first page, and named there. Raises `UndecodableImage`.
    """
    try:
        message = message_from_bytes(path.read_bytes(), _class=EmailMessage, policy=policy.default)
    except RecursionError:
        raise UndecodableImage("the file holds too many mails in each other") from None
    if not any(name in message for name in ("From", "Date", "Subject", "To")):
        raise UndecodableImage("the file is no e-mail: it has neither sender nor date")
    body = message.get_body(("html", "plain"))
    attached = list(_attached(message, body))
    inline = {cid: part for part in attached if (cid := part.get("Content-ID", "").strip("<> \t"))}
    page, in_text = _web_page(message, body, inline, list(map(_name, attached)))
    attached = [part for part in attached if part not in in_text]
    own = folder / "message"
    own.mkdir()
    (own / "message.html").write_text(page, "utf-8")
    documents, lost = [convert_file(own / "message.html", own)], list[str]()
    if len(attached) > _MOST:
        lost.append(Reason("only {most} of its {count} attachments were read", most=_MOST, count=len(attached)))
    for number, part in enumerate(attached[:_MOST]):
        # A conversion names its files by itself, so each attachment has a folder of its own.
        place = folder / f"{_PLACE}{number}"
        place.mkdir()
        try:
            documents.append(_converted(part, place, convert_file))
        except UndecodableImage as error:
            form = "the attachment {name} was not read: {reason}"
            lost.append(Reason(form, name=visible(_name(part), _NAME), reason=str(error)))
    # The documents stand one after another, and what is lost of all is lost on the first page.
    losses, pieces = dict[int, str](), dict[int, Sequence[Piece]]()
    with PdfDocument.new() as whole:
        for document in documents:
            start = len(whole)
            with PdfDocument(document.pdf) as opened:
                whole.import_pages(opened)
            for at, reason in document.lost.items():
                losses[start + at] = reason
            for at, of_page in document.pieces.items():
                pieces[start + at] = of_page
        whole.save(folder / "document.pdf")
    if lost:
        losses[0] = joined([*([losses[0]] if 0 in losses else []), *lost])
    return Conversion(folder / "document.pdf", losses, pieces)


def _attached(part: MIMEPart, body: MIMEPart | None, alternative: bool = False) -> Iterator[MIMEPart]:
    """Yield the parts that are neither the body nor another form of it."""
    if part.is_multipart() and part.get_content_type() != "message/rfc822":
        for inner in part.iter_parts():
            yield from _attached(inner, body, part.get_content_type() == "multipart/alternative")
    elif part is not body and not (alternative and part.get_content_maintype() == "text"):
        yield part


def _web_page(
    message: MIMEPart, body: MIMEPart | None, inline: dict[str, MIMEPart], names: list[str]
) -> tuple[str, list[MIMEPart]]:
    """Return a mail as HTML, and the pictures that stand in it."""
    in_text: list[MIMEPart] = []

    def picture(tag: re.Match[str]) -> str:
        part = inline.get(tag[1])
        if part is None or part.get_content_maintype() != "image":
            return ""
        in_text.append(part)
        return f'<img src="data:{part.get_content_type()};base64,{b64encode(_content(part)).decode()}">'

    text = ""
    if body is not None:
        content, charset = _content(body), body.get_content_charset("")
        try:
            text = plain.decoded(content) if charset in _KOREAN else content.decode(charset, "replace")
        except (LookupError, UndecodableImage):
            # A mail may name any charset, and its text be in another one.
            text = content.decode("utf-8", "replace")
    if body is not None and body.get_content_subtype() == "html":
        import nh3

        clean = nh3.clean(
            web_page.printed(text.encode()).decode(),
            url_schemes={"http", "https", "mailto", "cid"},
            # Of pictures, those in the mail: nothing is fetched.
            attribute_filter=lambda tag, name, value: (
                value if (tag, name) != ("img", "src") or value.startswith("cid:") else None
            ),
        )
        text = re.sub(r'<img [^>]*?src="cid:([^"]*)"[^>]*>', picture, clean)
    else:
        text = plain.paragraphs(text)
    heads = [f"<p>{head}: {escape(str(message[head]))}</p>" for head in _HEADS if message[head]]
    if names:
        heads.append(f"<p>Attachments: {escape(', '.join(names))}</p>")
    subject = escape(str(message["Subject"] or ""))
    start = f'<html><head><meta charset="utf-8"></head><body><h1>{subject}</h1>'
    return f"{start}{''.join(heads)}<hr>{text}</body></html>", in_text


def _content(part: MIMEPart) -> bytes:
    if part.get_content_type() == "message/rfc822":
        [inner] = part.iter_parts()
        return inner.as_bytes()
    content = part.get_payload(decode=True)
    return content if isinstance(content, bytes) else b""


def _name(part: MIMEPart) -> str:
    kind = part.get_content_subtype()
    return PurePath(part.get_filename() or f"unnamed.{_SUFFIXES.get(kind, kind)}").name


def _converted(part: MIMEPart, folder: Path, convert_file: Convert) -> Conversion:
    """Return an attachment as a PDF. Raises `UndecodableImage`."""
    suffix = PurePath(_name(part)).suffix.lower()
    if sum(place.startswith(_PLACE) for place in folder.parts) > _DEEPEST:
        raise UndecodableImage("more than {count} mails lie in each other", count=_DEEPEST)
    file = folder / f"attachment{suffix if re.fullmatch('[.][a-z0-9]{1,8}', suffix) else ''}"
    file.write_bytes(_content(part))
    if suffix == pdf.SUFFIX:
        pdf.Pdfs().pages(file)
        return Conversion(file, {})
    if suffix not in pictures.SUFFIXES:
        return convert_file(file, folder)
    opened = pictures.Pictures()
    pages = [Image.open(BytesIO(opened.render(file, at, _DPI))).convert("RGB") for at in range(opened.pages(file))]
    printed = folder / "picture.pdf"
    pages[0].save(printed, "PDF", save_all=True, append_images=pages[1:], resolution=_DPI, quality=_QUALITY)
    return Conversion(printed, {})
