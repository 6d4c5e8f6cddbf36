"""The text of a page, whose words are whole as in its document."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from kopub.boxes import Box
from kopub.documents.joins import mend_words
from kopub.recognition.content import content_parts, fence_code
from kopub.recognition.regions import region_texts
from kopub.texts.markdown import page_text

_ONE_LINE = frozenset({"doc_title", "paragraph_title", "figure_title"})
_NO_LINES = frozenset({"table", "chart", "display_formula", "inline_formula"})


def text_of_page(regions: Iterable[Mapping[str, Any]] | None, width: float, height: float) -> str:
    """Return the text of a page with words whole that a line's end cuts.

    `regions` are those of its row of `ocr_results`, `width` and `height` the pixels of the page. Lines stay lines, and
    every letter stays in its region.
    """
    texts = []
    for region, text in zip(regions or (), region_texts(regions), strict=True):
        if text.native_label in _NO_LINES:
            texts.append(text)
            continue
        box = Box(*region["bbox_2d"])
        size = box.width * width / 1000, box.height * height / 1000
        is_one_line = text.native_label in _ONE_LINE
        content = "\n".join(
            fence_code(part.text, part.language)
            if part.is_code
            else mend_words(part.text, *size, is_one_line=is_one_line)
            for part in content_parts(text.content)
        )
        texts.append(replace(text, content=content))
    return page_text(texts)
