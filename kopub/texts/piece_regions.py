"""The regions of a page whose document says what is on it. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kopub.boxes import is_within
from kopub.layout.grid import table_html
from kopub.layout.regions import PICTURES, Layout, Region, Task
from kopub.pages.documents.pieces import CHART, FORMULA, Piece, PrintedWords, letters_of
from kopub.pages.documents.text_layer import TextLayer, Word
from kopub.recognition.content import fence_code
from kopub.recognition.known_texts import KnownText
from kopub.recognition.regions import TextOrigin
from kopub.texts.layer_lines import clean, on_one_line
from kopub.texts.region_words import MOST_BARE, area, bbox_around, regions_with_words, shared, without_rules

_CODE, _NOTE = "algorithm", "aside_text"
_MARK, _NEAR = 8, 4.0
"""Most letters of the bullet or number before a text, and its distance in heights of a word."""
_JOINED = re.compile(r"([•●○◎◦▪■□▣◆◇▶▷∙‧※❖☞✔★☆]+|[0-9]{1,3}[.)]?)([^\W\d])")
"""A bullet or number that touches the word behind it."""
_SHORT = 3
"""Most characters of a name in a chart that may stand anywhere."""
_DEEPEST = 6
"""The deepest level of a title in markdown."""
_SAME = 0.5
"""Share of a region within a chart, or of a picture within a table, from which it is a part of that."""


def content_of(piece: Piece) -> str:
    """Return a piece as the content of its region."""
    if piece.is_table:
        return table_html(piece.cells, [" ".join(cell.text.split()) for cell in piece.cells])
    text = piece.cells[0].text
    return fence_code(text) if piece.label == _CODE else text


def regions_of_pieces(layout: Layout, layer: TextLayer) -> tuple[list[Region], list[Region], TextLayer]:
    """Return the pieces' regions, the layout's beside them, and the words of neither.

    A text begins with the bullet or number that is printed before it. What is not printed has a box without height at
    the foot of the page.
    """
    printed = PrintedWords([[word.text for word in layer.words]])
    words_of_pieces = [_words(piece, printed) for piece in layer.pieces]
    rest = printed.untaken()
    for at, piece in enumerate(layer.pieces):
        if piece.label == FORMULA:
            words_of_pieces[at] |= _rest_of_formula(at, piece, words_of_pieces, layer.words, rest)
            rest -= words_of_pieces[at]
    regions: list[Region] = []
    for piece, words in zip(layer.pieces, words_of_pieces, strict=True):
        content = content_of(piece)
        if (place := _place_of_chart(piece, layer, rest)) is not None:
            box = place
            regions.append(Region(0, CHART, Task.SKIP, 1.0, box))
            within = [at for at in sorted(rest) if is_within(layer.words[at].box, box)]
            figures = PrintedWords([[layer.words[at].text for at in within]])
            rest.difference_update(within[at] for at in _words(replace(piece, printed=True), figures))
        elif not words:
            box = (0.0, layer.height, layer.width, layer.height)
        else:
            marks = [] if piece.is_table or piece.label == FORMULA else _marks(layer.words, min(words), rest)
            rest.difference_update(marks)
            mark = " ".join(clean(layer.words[at].text) for at in marks)
            if not piece.is_table and (joined := _JOINED.match(layer.words[min(words)].text)):
                mark = f"{mark} {joined[1]}".strip() if content.startswith(joined[2]) else mark
            # The file may have the number in another form.
            content = content if not mark or content.startswith(mark.rstrip(".)")) else f"{mark} {content}"
            box = bbox_around(layer.words[at] for at in (*marks, *words))
        if piece.level > 1:
            content = f"{'#' * min(piece.level, _DEEPEST)} {content}"
        if piece.is_table:
            label, task = "table", Task.TABLE
        elif piece.label == FORMULA:
            label, task = FORMULA, Task.FORMULA
        else:
            label, task = (piece.label if words else _NOTE), Task.TEXT
        regions.append(Region(0, label, task, 1.0, box, text=content))
    unclaimed = replace(layer, words=tuple(layer.words[at] for at in sorted(rest)), pieces=())
    return regions, list(_beside(layout.regions, regions, layer, unclaimed.words)), unclaimed


def texts_of_pieces(regions: Iterable[Region], layer: TextLayer) -> dict[int, KnownText]:
    """Return the texts of the regions that `regions_of_pieces` made."""
    printed = {content_of(piece): piece.printed for piece in layer.pieces}
    texts: dict[int, KnownText] = {}
    for region in regions:
        content = next((content for content in printed if region.text and region.text.endswith(content)), None)
        if region.text and content is not None:
            origin = TextOrigin.DOCUMENT if printed[content] else TextOrigin.UNPRINTED
            texts[region.index] = KnownText(region.text, origin)
    return texts


def _words(piece: Piece, printed: PrintedWords) -> set[int]:
    """Return the numbers of a piece's words."""
    if not piece.printed:
        return set()
    cells = printed.take_cells(piece.cells) if piece.is_table else [printed.take(piece.printed_text(piece.cells[0]))]
    return {word for words in cells for word in words or () if word is not None}


def _place_of_chart(piece: Piece, layer: TextLayer, free: set[int]) -> tuple[float, float, float, float] | None:
    """Return the box of a chart in its file, or around its printed names."""
    if piece.box is not None:
        x1, y1, x2, y2 = piece.box
        return x1 * layer.width, y1 * layer.height, x2 * layer.width, y2 * layer.height
    if piece.label != CHART:
        return None
    names = tuple(cell for cell in piece.cells if not (cell.row and cell.column) and len(cell.text) > _SHORT)
    near = sorted(free)
    words = _words(replace(piece, cells=names, printed=True), PrintedWords([[layer.words[at].text for at in near]]))
    return bbox_around(layer.words[near[at]] for at in words) if words else None


def _rest_of_formula(
    at: int, formula: Piece, words_of_pieces: Sequence[set[int]], words: Sequence[Word], free: set[int]
) -> set[int]:
    """Return the free words near a formula that consist of its letters.

    A formula is printed in another order than it is written.
    """
    above, below = list(filter(None, words_of_pieces[:at])), list(filter(None, words_of_pieces[at + 1 :]))
    first = min(above[-1]) if above else 0
    last = max(below[0]) if below else len(words)
    lacking = Counter(filter(str.isalnum, letters_of(formula.printed_text(formula.cells[0]))))
    for number in words_of_pieces[at]:
        lacking -= Counter(letters_of(words[number].text))
    rest: set[int] = set()
    for near in sorted(free):
        letters = Counter(filter(str.isalnum, letters_of(words[near].text)))
        if first <= near <= last and letters <= lacking and (letters or rest):
            lacking -= letters
            rest.add(near)
    return rest


def _marks(words: Sequence[Word], first: int, free: set[int]) -> list[int]:
    """Return the words of the bullet or number before the first word of a text."""
    marks: list[int] = []
    left, height = words[first].box.x1, words[first].box.height
    near = [at for at in free if on_one_line(words[at].box, words[first].box) and words[at].box.x2 <= left + 1]
    letters = 0
    for at in sorted(near, key=lambda at: -words[at].box.x2):
        letters += len(words[at].text)
        if letters > _MARK or left - words[at].box.x2 > _NEAR * height:
            break
        marks.insert(0, at)
        left = words[at].box.x1
    return marks


def _beside(
    regions: Sequence[Region], pieces: Sequence[Region], layer: TextLayer, unclaimed: Iterable[Word]
) -> Iterator[Region]:
    """Yield the layout's regions without words of pieces, and its pictures, but no empty boxes.

    What has neither words nor pictures is drawn, for a document's text is in its print.
    """
    free = set(map(id, unclaimed))
    for region, within in regions_with_words(regions, without_rules(layer)):
        is_picture = region.task is Task.SKIP and region.label in PICTURES
        has_own = not free.issuperset(map(id, within.words))
        if has_own and not (is_picture and within.bare_share > MOST_BARE):
            continue
        wholes = (Task.SKIP, Task.TABLE) if is_picture else (Task.SKIP,)
        overlaps = [shared(region.bbox, piece.bbox) for piece in pieces if piece.task in wholes]
        if max(overlaps, default=0.0) >= _SAME * area(region.bbox):
            continue
        is_drawn = not within.words and not any(shared(region.bbox, picture) for picture in layer.pictures)
        if not (is_drawn or is_picture):
            yield replace(region, text=None)
        elif is_picture or within.bare_share:
            label = region.label if is_picture else "image"
            yield replace(region, label=label, task=Task.SKIP, text=None)
