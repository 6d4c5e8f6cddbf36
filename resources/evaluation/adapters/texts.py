"""Pages whose whole text is known: SDS KoPub, a folder of pages with their texts, PDFs with text layers."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

from resources.errors import SourceError
from resources.evaluation.adapter import OWN_PAGES, Adapter
from resources.evaluation.adapters.folders import Gathered, pictures, with_suffix
from resources.evaluation.adapters.page_files import PageRow, page_rows
from resources.evaluation.benchmark import Benchmark, Picture
from resources.evaluation.gold import PageText
from resources.evaluation.sample_scores import texts as text_scores
from resources.evaluation.scorers.characters import edit, without_blanks
from resources.pages.documents.folder import find_documents, is_pdf

_AGREE = 0.1
"""Largest edit distance without blanks at which two columns say the same text."""
_FEWEST = 10
"""A text layer of fewer characters is a page number on a scan."""


def load_kopub(folder: Path) -> Benchmark:
    """Its texts are of the PDFs and of an OCR; a page is gold where both agree. They have no reading order."""
    gathered = Gathered()
    rows = list(page_rows(folder, ("text", "ocr")))
    if not any({"text", "ocr"} <= row.texts.keys() for row in rows):
        raise SourceError(f"{folder} has no file of pages with the columns text and ocr")
    for row in rows:
        text, ocr = (row.texts.get(column) or "" for column in ("text", "ocr"))
        distance = edit(without_blanks(text), without_blanks(ocr))
        if distance > _AGREE:
            gathered.leave_out(row.id, f"its columns text and ocr differ by {distance:.2f}")
        else:
            gathered.add(row.id, row.picture, PageText(text, ordered=False), row.document)
    return _benchmark(KOPUB, gathered)


def load_texts(folder: Path) -> Benchmark:
    gathered = Gathered()
    rows = list(page_rows(folder, ("text",)))
    for row in rows:
        _add_row(row, gathered)
    images = [] if rows else pictures(folder)
    for path in images:
        _add_file(path, folder, gathered)
    if not rows:
        stems = {path.with_suffix("") for path in images}
        for path in (*with_suffix(folder, ".txt"), *with_suffix(folder, ".md")):
            if path.with_suffix("") not in stems:
                gathered.leave_out(path.name, "it is a text without a picture")
    if not gathered.samples and not gathered.left_out:
        raise SourceError(f"{folder} has neither pages with a column text nor pictures with .txt or .md files")
    return _benchmark(TEXTS, gathered)


def _add_row(row: PageRow, gathered: Gathered) -> None:
    text = row.texts.get("text")
    if text is None:
        gathered.leave_out(row.id, "it is a page without gold")
    else:
        slices = {"licence": row.licence} if row.licence else {}
        gathered.add(row.id, row.picture, PageText(text), row.document, slices)


def _add_file(path: Path, folder: Path, gathered: Gathered) -> None:
    """A picture with the text file of its name; pages of a folder are of one document."""
    gold = next((file for suffix in (".txt", ".md") if (file := path.with_suffix(suffix)).is_file()), None)
    if gold is None:
        gathered.leave_out(path.name, "it is a picture without gold")
        return
    try:
        text = gold.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        gathered.leave_out(gold.name, f"it cannot be read as UTF-8: {error}")
        return
    place = path.relative_to(folder).with_suffix("")
    document = place.parent.as_posix().replace("/", "__") if len(place.parts) > 1 else None
    id = place.as_posix().replace("/", "__")
    gathered.add(id, Picture(path), PageText(text, markdown=gold.suffix == ".md"), document)


def load_pdf_texts(folder: Path) -> Benchmark:
    gathered = Gathered()
    documents = [document for document in find_documents(folder).documents if is_pdf(document.path)]
    if not documents:
        raise SourceError(f"{folder} has no PDF")
    for document in documents:
        path = cast("Path", document.path)
        try:
            for page, text in enumerate(_text_layers(path), start=1):
                id = f"{document.id}_{page}"
                if len(without_blanks(text)) < _FEWEST:
                    gathered.leave_out(id, "it has no text layer")
                else:
                    gathered.add(id, Picture(path, page), PageText(text), document.id)
        except SourceError as error:
            gathered.leave_out(document.name, str(error))
    return _benchmark(PDF_TEXTS, gathered)


def _text_layers(path: Path) -> Iterator[str]:
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        document = PdfDocument(path)
    except (PdfiumError, OSError) as error:
        raise SourceError(f"it cannot be opened: {error}") from None
    try:
        for page in document:
            text = page.get_textpage()
            yield text.get_text_bounded()
            text.close()
            page.close()
    except PdfiumError as error:
        raise SourceError(f"its text cannot be read: {error}") from None
    finally:
        document.close()


def _benchmark(adapter: Adapter, gathered: Gathered) -> Benchmark:
    return Benchmark(adapter.name, "1", adapter.licence, adapter.source, gathered.sorted(), gathered.left_out)


TEXTS = Adapter(
    "texts",
    "Pages of your own with their texts",
    "Arrow or Parquet files of pages with a column text, or pictures with a .txt or .md file of the same name",
    "your own pages",
    OWN_PAGES,
    load_texts,
    text_scores.score_page,
    text_scores.PAGE_METRICS,
    ("cer", "bag_f1"),
)
PDF_TEXTS = Adapter(
    "pdf_texts",
    "Pages of PDFs with text layers, which are drawn and read again",
    "PDFs, in folders of any name; pages without a text layer are left out",
    "your own PDFs, made by a program and not scanned",
    OWN_PAGES,
    load_pdf_texts,
    text_scores.score_page,
    text_scores.PAGE_METRICS,
    ("cer", "bag_f1"),
)
KOPUB = Adapter(
    "kopub",
    "SDS KoPub: the Korean pages of which its two texts agree",
    "Arrow or Parquet files of the corpus with the columns text and ocr",
    "https://huggingface.co/datasets/SamsungSDS-Research/SDS-KoPub-VDR-Benchmark (Samsung SDS)",
    "by page: its column license",
    load_kopub,
    text_scores.score_page,
    text_scores.PAGE_METRICS,
    ("bag_f1", "cer"),
)
