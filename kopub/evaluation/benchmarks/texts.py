"""Pages and lines with known text: SDS KoPub, the user's own pages, PDFs, IAM lines."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from kopub.errors import SourceError
from kopub.evaluation import characters
from kopub.evaluation.benchmark import (
    OWN_PAGES,
    Adapter,
    Benchmark,
    GivenRegion,
    LineText,
    PageText,
    Sample,
    SamplePicture,
    SampleReading,
    SampleScore,
    Tools,
)
from kopub.evaluation.benchmarks.folders import (
    SampleCollector,
    page_rows,
    parquet_rows,
    pictures,
    with_suffix,
)
from kopub.evaluation.characters import Errors, composed, edit, without_blanks
from kopub.layout.regions import Task

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


def score_page(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `PageText`."""
    assert isinstance(sample.gold, PageText)
    gold, text = known_text(sample.gold), reading.text
    errors = characters.character_errors(gold, text)
    return [
        _rate(sample, "cer", errors),
        _rate(sample, "cer_pooled", errors),
        _rate(sample, "cer_blanks", characters.spaced_errors(gold, text)),
        _rate(sample, "cer_jamo", characters.jamo_errors(gold, text)),
        SampleScore(sample.id, "edit", edit(without_blanks(gold), without_blanks(text))),
        SampleScore(sample.id, "bag_f1", characters.bag_f1(gold, text)),
    ]


def score_line(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `LineText`, and whose picture is read as one line."""
    assert isinstance(sample.gold, LineText)
    gold, text = sample.gold.text, reading.text or " ".join(region.content or "" for region in reading.regions)
    errors = characters.character_errors(gold, text)
    return [
        _rate(sample, "cer", errors),
        _rate(sample, "cer_pooled", errors),
        _rate(sample, "cer_blanks", characters.spaced_errors(gold, text)),
        _rate(sample, "wer", characters.word_errors(gold, text)),
    ]


def _rate(sample: Sample, metric: str, errors: Errors) -> SampleScore:
    """Return an error rate of at most 1, so that a lost page scores worst."""
    return SampleScore(sample.id, metric, min(1.0, errors.rate), errors.size)


def known_text(gold: PageText) -> str:
    """Return the known text of a page as it is compared, without markup."""
    return plain_text(gold.text) if gold.markdown else gold.text


def plain_text(markdown: str) -> str:
    """Return the text of a page's markdown, one block or number per line.

    Pictures, HTML tags and bullets are left out; formulas and the numbers of list entries stay.
    """
    blocks: list[str] = []
    for token in _parser().parse(markdown):
        if token.type == "list_item_open" and token.info:
            blocks.append(f"{token.info}{token.markup}")
        elif token.type == "inline":
            text = ""
            for part in token.children or ():
                if part.type in ("text", "code_inline"):
                    text += part.content
                elif part.type in ("softbreak", "hardbreak"):
                    text += "\n"
            blocks.append(text)
        elif token.type in ("code_block", "fence"):
            blocks.append(token.content)
        elif token.type == "html_block":
            from bs4 import BeautifulSoup

            blocks.append(BeautifulSoup(token.content, "html.parser").get_text(" "))
    return "\n".join(filter(None, map(str.strip, blocks)))


@cache
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": True}).enable("table")


_AGREE = 0.1
"""Largest edit distance, without blanks, at which two columns count as the same text."""
_FEWEST = 10
"""Fewest characters of a text layer; a shorter one is only a page number on a scan."""


def load_kopub(folder: Path) -> Benchmark:
    """Load SDS KoPub; a page is gold if its PDF text and its OCR agree.

    The texts have no known reading order.
    """
    gathered = SampleCollector()
    rows = list(page_rows(folder, ("text", "ocr")))
    if not any({"text", "ocr"} <= row.texts.keys() for row in rows):
        raise SourceError("{folder} has no file of pages with the columns text and ocr", folder)
    for row in rows:
        text, ocr = (row.texts.get(column) or "" for column in ("text", "ocr"))
        distance = edit(without_blanks(text), without_blanks(ocr))
        if not {"text", "ocr"} <= row.texts.keys():
            gathered.leave_out(row.id, "its file does not have the columns text and ocr")
        elif distance > _AGREE:
            gathered.leave_out(row.id, f"its columns text and ocr differ by {distance:.2f}")
        else:
            gathered.add(row.id, row.picture, PageText(text, ordered=False), row.document)
    return gathered.benchmark(KOPUB)


def load_texts(folder: Path) -> Benchmark:
    gathered = SampleCollector()
    rows = list(page_rows(folder, ("text",)))
    for row in rows:
        text = row.texts.get("text")
        if text is None:
            gathered.leave_out(row.id, "it is a page without gold")
        else:
            slices = {"licence": row.licence} if row.licence else {}
            gathered.add(row.id, row.picture, PageText(text), row.document, slices)
    if not rows:
        # Of two texts with the name of a picture, the .txt is the known answer.
        texts: dict[str, Path] = {}
        for suffix in (".md", ".txt"):
            for path in with_suffix(folder, suffix):
                texts[_stem(path)] = path
        images = pictures(folder)
        for path in images:
            gold = texts.get(_stem(path))
            if gold is None:
                gathered.leave_out(path.name, "it is a picture without gold")
                continue
            try:
                text = gold.read_text("utf-8-sig")
            except (OSError, UnicodeDecodeError) as error:
                gathered.leave_out(gold.name, f"it cannot be read as UTF-8: {error}")
                continue
            place = path.relative_to(folder).with_suffix("")
            # The pages of a folder are one document.
            document = place.parent.as_posix().replace("/", "__") if len(place.parts) > 1 else None
            id = place.as_posix().replace("/", "__")
            gathered.add(id, SamplePicture(path), PageText(text, markdown=gold.suffix.lower() == ".md"), document)
        named = {_stem(path) for path in images}
        for stem, path in texts.items():
            if stem not in named:
                gathered.leave_out(path.name, "it is a text without a picture")
    if not gathered.samples and not gathered.left_out:
        raise SourceError("{folder} has neither pages with a column text nor pictures with .txt or .md files", folder)
    return gathered.benchmark(TEXTS)


def _stem(path: Path) -> str:
    """Return a path without suffix in NFC, as some systems store Hangul as single letters."""
    return composed(str(path.with_suffix("")))


def load_pdf_texts(folder: Path) -> Benchmark:
    # What is scored needs no reader of documents.
    from kopub.pages.documents.folder import find_documents, is_pdf

    gathered = SampleCollector()
    documents = [document for document in find_documents(folder).documents if is_pdf(document.path)]
    if not documents:
        raise SourceError("{folder} has no PDF", folder)
    for document in documents:
        path = cast("Path", document.path)
        try:
            for page, text in enumerate(page_texts(path), start=1):
                id = f"{document.id}_{page}"
                if len(without_blanks(text)) < _FEWEST:
                    gathered.leave_out(id, "it has no text layer")
                else:
                    gathered.add(id, SamplePicture(path, page), PageText(text), document.id)
        except SourceError as error:
            gathered.leave_out(document.name, str(error))
    return gathered.benchmark(PDF_TEXTS)


def page_texts(path: Path) -> Iterator[str]:
    """Yield the text of each page of a PDF. Raises `SourceError`."""
    from pypdfium2 import PdfDocument, PdfiumError

    try:
        document = PdfDocument(path)
    except (PdfiumError, OSError) as error:
        raise SourceError("it cannot be opened: {error}", error) from None
    try:
        for page in document:
            text = page.get_textpage()
            # PDFium has a control character for the hyphen of a word that a line divides, and no line end after it.
            yield text.get_text_bounded().replace("\x02", "-\n")
            text.close()
            page.close()
    except PdfiumError as error:
        raise SourceError("its text cannot be read: {error}", error) from None
    finally:
        document.close()


TEXTS = Adapter(
    "texts",
    "Pages of your own with their texts",
    "Arrow or Parquet files of pages with a column text, or pictures with a .txt or .md file of the same name",
    "your own pages",
    OWN_PAGES,
    load_texts,
    score_page,
    ("cer", "bag_f1"),
)
CORRECTIONS = replace(
    TEXTS,
    name="corrections",
    says="The pages of your corpus that a person checked in `kopub browse --edit`",
    expects="nothing: the pages are those of $KOPUB_HOME",
    load=lambda folder: replace(load_texts(folder), name=CORRECTIONS.name),
)
PDF_TEXTS = replace(
    TEXTS,
    name="pdf_texts",
    says="Pages of PDFs with text layers, which are drawn and read again",
    expects="PDFs, in folders of any name; pages without a text layer are left out",
    source="your own PDFs, made by a program and not scanned",
    load=load_pdf_texts,
)
KOPUB = Adapter(
    "kopub",
    "SDS KoPub: the Korean pages of which its two texts agree",
    "Arrow or Parquet files of the corpus with the columns text and ocr",
    "https://huggingface.co/datasets/SamsungSDS-Research/SDS-KoPub-VDR-Benchmark (Samsung SDS)",
    "by page: its column license",
    load_kopub,
    score_page,
    ("bag_f1", "cer"),
)


_FIRST_LINES = 200
_LINE_REGIONS = (GivenRegion("text", Task.TEXT),)


def load_lines(folder: Path) -> Benchmark:
    if not with_suffix(folder, ".parquet"):
        raise SourceError("{folder} has no .parquet files of lines", folder)
    gathered = SampleCollector()
    for row in parquet_rows(folder, "test", ("text",)):
        if row.number >= _FIRST_LINES:
            break
        text = str(row.values.get("text") or "")
        if text.strip():
            gathered.add(f"row_{row.number}", row.picture, LineText(text), regions=_LINE_REGIONS)
        else:
            gathered.leave_out(f"row_{row.number}", "its gold is empty")
    return gathered.benchmark(IAM_LINES)


IAM_LINES = Adapter(
    "iam_lines",
    "IAM: the first 200 handwritten English lines of the test set",
    "the .parquet files of the test split with the columns image and text",
    "https://huggingface.co/datasets/Teklia/IAM-line (University of Bern)",
    "for research only, not for commercial use",
    load_lines,
    score_line,
    ("cer",),
)
