"""Takes texts of regions from a sound text layer, and compares it with the reading."""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
from rapidfuzz.distance import Levenshtein

from kopub.errors import counted
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import READ_TASKS, Region, Task
from kopub.pages.documents.text_layer import Mark, TextLayer, Word
from kopub.pages.nameless import NAMELESS, is_nameless
from kopub.recognition.content import KOREAN, fence_code, letters, script_of
from kopub.recognition.known_texts import LineSample
from kopub.recognition.regions import RegionText, TextOrigin
from kopub.states import Reason, State
from kopub.store.corpus_tables import TABLES
from kopub.texts.layer_code import CODE_LABEL
from kopub.texts.layer_lines import (
    MOST_BARE,
    Line,
    RegionWords,
    clean,
    code_of,
    lines_of,
    outside_of,
    text_of,
    words_of_regions,
)
from kopub.texts.layer_tables import LayerTable, table_of, without_rules
from kopub.texts.layer_tags import title_level
from kopub.texts.markdown import page_text
from kopub.texts.numbers_audit import NumbersAudit
from kopub.texts.text_quality import DOUBTFUL, Doubt, doubts, ramp, total

if TYPE_CHECKING:
    from kopub.store.table_store import TableStore

_BROKEN = frozenset({"Cc", "Co", "Cn", "Cs"})
"""Unicode categories of characters that are never printed: control, private, unassigned."""
_PRIVATE = re.compile("[\ue000-\uf8ff\ufffd\U000f0000-\U0010ffff]")
_CID = re.compile(r"\(cid:\d+\)")
"""Written by some programs for characters that they could not map."""
_MOST_BROKEN, _MOST_WITHOUT_INK, _MOST_OUTSIDE = 0.5, 0.5, 0.2
"""Shares of the characters from which a whole layer is distrusted; fewer cost only the regions that they are in."""
_FEW = 3
"""Fewer characters than this prove nothing."""
_SCRIPTS = frozenset({"mojibake", "jamo", "capitals"})
"""Kinds of doubt that concern the characters of a text; that a script is unknown to the reader speaks for a layer."""
_COMMON_LATIN = frozenset("etaoin")
"""These six are at least 40 % of the small letters in English words, code and commands; by chance 23 % of 26."""
_WORD = re.compile("[a-z]{4,}")
_LATIN, _LEAST_COMMON_LATIN = 120, 0.32
_COMMON = frozenset("이다는의에을하고를가은로한지기어도사리시나자서일으인라대해그들수있정제아부전과주")
"""A quarter to half of the syllables on a Korean page are among these 40."""
_SYLLABLES, _LEAST_COMMON = 80, 0.08
_IDEOGRAPHS, _LEAST_TAUGHT = 20, 0.8
_TAUGHT = (("gb2312", 0xB0, 0xD7), ("euc_jp", 0xB0, 0xCF), ("big5", 0xA4, 0xC6), ("euc_kr", 0xCA, 0xFD))
"""Ranges of the ideographs in common use: nearly all of a text, a third of those that a wrong map gives."""


def unsound(layer: TextLayer, scripts: frozenset[str] = KOREAN) -> str | None:
    """Return the plainest reason to distrust a page's text layer, or None.

    `scripts` are those expected on the page. A sound layer may lack parts of its page, for example a stamp on a scan.
    """
    return next(_reasons(layer, scripts), None)


def has_nameless(word: Word) -> bool:
    """Return whether a word has a character that its font does not identify."""
    return bool(word.marks & Mark.UNMAPPED) or any(map(_is_broken, clean(word.text)))


def printed_part(layer: TextLayer) -> TextLayer:
    """Return a layer without the words of which nothing is printed."""
    return replace(layer, words=tuple(word for word in layer.words if not word.marks & Mark.NO_INK))


def _is_broken(char: str) -> bool:
    return char == NAMELESS or unicodedata.category(char) in _BROKEN


def _reasons(layer: TextLayer, scripts: frozenset[str]) -> Iterator[str]:
    if layer.failure:
        yield Reason("it could not be read: {reason}", reason=layer.failure)
        return
    characters = layer.characters
    if not characters:
        yield "all of its text lies outside of the page"
        return
    text = "\n".join(clean(word.text) for word in layer.words)
    broken = sum(map(_is_broken, text.replace("\n", "")))
    unmapped = layer.marked(Mark.UNMAPPED)
    cids = sum(map(len, _CID.findall(text)))
    nameless = _share(max(broken, unmapped, cids), characters)
    if nameless >= _MOST_BROKEN:
        yield Reason("{share:.0%} of its characters have no meaning, as of fonts without a Unicode map", share=nameless)
    outside = _share(layer.outside, characters + layer.outside)
    if outside >= _MOST_OUTSIDE:
        yield Reason("{share:.0%} of its characters lie outside of the page", share=outside)
    bare = _share(layer.marked(Mark.NO_INK), characters)
    if bare >= _MOST_WITHOUT_INK:
        yield Reason("{share:.0%} of its characters stand where nothing is printed", share=bare)
    if layer.is_of_scan:
        invisible = layer.marked(Mark.INVISIBLE) / characters
        form = "{share:.0%} of its characters are invisible: it is the reading of another program"
        yield Reason(form, share=invisible)
    found = [doubt for doubt in doubts(_as_page(layer.words), (), scripts) if doubt.kind in _SCRIPTS]
    if total(found) >= DOUBTFUL:
        yield found[0].says
    yield from _implausible(text)


_FEW_COMMON = "only {share:.0%} of its {letters} are common ones, as of a wrong Unicode map"


def _implausible(text: str) -> Iterator[str]:
    """Yield the signs that a font's characters were mapped with another font's map."""
    # Each word counts once, since a page may repeat one that is no word of any language.
    latin = list("".join(sorted(set(_WORD.findall(text)))))
    hangul = [char for char in text if "가" <= char <= "힣"]
    for alphabet, fewest, common, least, name in (
        (latin, _LATIN, _COMMON_LATIN, _LEAST_COMMON_LATIN, "Latin letters"),
        (hangul, _SYLLABLES, _COMMON, _LEAST_COMMON, "syllables"),
    ):
        share = sum(char in common for char in alphabet) / len(alphabet) if len(alphabet) >= fewest else 1.0
        if share < least:
            yield Reason(_FEW_COMMON, share=share, letters=name)
    ideographs = [char for char in text if script_of(char) == "CJK"]
    share = sum(map(_is_taught, ideographs)) / len(ideographs) if len(ideographs) >= _IDEOGRAPHS else 1.0
    if share < _LEAST_TAUGHT:
        yield Reason(_FEW_COMMON, share=share, letters="Chinese characters")


def _is_taught(ideograph: str) -> bool:
    codes = ((ideograph.encode(name, "ignore")[:1], first, last) for name, first, last in _TAUGHT)
    return any(code and first <= code[0] <= last for code, first, last in codes)


def _as_page(words: Iterable[Word]) -> str:
    """Return the words as the PDF has them, without nameless characters."""
    text = "".join(("\n" if word.marks & Mark.LINE else " ") + clean(word.text) for word in words)
    return _PRIVATE.sub("", text)


def _share(part: int, whole: int) -> float:
    return part / whole if whole and part >= _FEW else 0.0


CODE = CodeVersion(
    "texts.layers",
    {
        1: "the first release",
        2: "a layer is taken only where a reading of some lines agrees; one that cannot be read costs its page alone",
        3: "the cells of tables are taken from the layer, and every table and number is compared with it",
        4: "a layer is judged region by region, completes what is read, and speaks for scripts without a reader; the "
        "text below the rules of a table is no row of it; narrow columns are parted where white runs down through the "
        "rows, and so are rows that are not filled",
        5: "code keeps its empty lines; tables without rules, and the levels of titles, follow the tags of their PDF; "
        "signs that stand alone are compared too",
        6: "words drawn into and behind a row are of the row; numbers that came out nowhere on a page are named",
    },
)
"""With a new version, the texts of all pages with a layer are taken again."""

_DRAWN = frozenset({"seal"})
"""Labels of text that is a picture."""
_FORMULA = re.compile("[∑∏∫∮√∂∇\U0001d400-\U0001d7ff]")
"""Signs of a formula in a line: a layer has the characters of a formula but not their arrangement."""
_NOT_PRINT = Mark.INVISIBLE | Mark.UNMAPPED
_MOST_NAMELESS = 0.3
"""Share of a region's characters without a name up to which the others are worth having."""
_UNREAD = frozenset({"GREEK"})
"""A script on Korean pages that readers of Korean and English mistake for Latin letters."""
_FEWEST, _BEST, _MOST = 6, 40, 100
"""Letters of a line that is read as a sample: fewer prove little, more take too long."""
_PLAIN = 0.7
"""Share of letters and digits in a line from which every reader should be able to read it."""
_LEGIBLE = 10
"""Pixels of the lowest line that a reader can read."""
_FEWEST_DIGITS = 4
_OTHER_SIZE = 1.2
"""A line this many times as high as another is taken to be in another font."""
_MARGIN = 0.25
"""Margin around a sample as a share of its line's height: glyphs leave their boxes, and readers need some paper."""


@dataclass(frozen=True, slots=True)
class ExtractedTexts:
    """Texts from a layer by region index, and sample lines to verify it by reading.

    `parts` are those of regions that have more in print, or characters that no font names. It
    is empty where the layer has no letters.
    """

    texts: Mapping[int, str]
    samples: Sequence[LineSample] = ()
    parts: Mapping[int, str] = field(default_factory=dict)


def extract_texts(layer: TextLayer, regions: Iterable[Region], scripts: frozenset[str] = KOREAN) -> ExtractedTexts:
    """Return the texts of the regions that the layer covers soundly.

    In these regions the words are sound and are all that is printed. An unsound layer gives none. Lines are as printed;
    a table is `<table>` HTML; code is fenced and keeps its indents. The samples are at most three lines in `scripts`,
    those that the reader knows: one of the body, one of another size, and the one with most digits, since fonts map
    each character separately.
    """
    regions = list(regions)
    if unsound(layer, scripts) is not None:
        return ExtractedTexts({})
    layer = printed_part(layer)
    texts: dict[int, str] = {}
    parts: dict[int, str] = {}
    printed: list[Line] = []
    for region, within in zip(regions, words_of_regions(layer, [region.bbox for region in regions]), strict=True):
        words = [_with_nameless(word) for word in within.words]
        is_table = region.task is Task.TABLE and region.label == _TABLE
        table = _table(layer, region, words) if is_table else None
        lines = lines_of(words) if table is None else list(table.lines())
        text = _text(region, lines) if table is None else table.html()
        if text and region.label == "paragraph_title" and (level := title_level(layer, words)):
            text = f"{'#' * level} {text}"
        is_whole = table is not None or _can_be_taken(region, within)
        if text and is_whole and not any(map(_is_broken, text.replace("\n", ""))):
            texts[region.index] = text
        elif _is_part(region, words):
            parts[region.index] = text
        else:
            continue
        printed += (line for line in lines if not any(map(has_nameless, line.words)))
    return ExtractedTexts(texts, _samples(layer, printed, scripts - _UNREAD), parts)


def _can_be_taken(region: Region, within: RegionWords) -> bool:
    return (
        region.task in (Task.TEXT, Task.ABANDON)
        and region.label not in _DRAWN
        and within.bare_share <= MOST_BARE
        and not any(word.marks & _NOT_PRINT or _FORMULA.search(word.text) for word in within.words)
    )


def _with_nameless(word: Word) -> Word:
    """Return a word in which each character without a name is a nameless one."""
    if not has_nameless(word):
        return word
    text = "".join(NAMELESS if _is_broken(char) and not is_nameless(char) else char for char in clean(word.text))
    return replace(word, text=text if any(map(is_nameless, text)) else NAMELESS * len(text))


def _is_part(region: Region, words: Sequence[Word]) -> bool:
    """Return whether words of a region are at least a part of its print."""
    text = "".join(word.text for word in words)
    hidden = any(word.marks & Mark.INVISIBLE for word in words)
    is_read = region.task in READ_TASKS and region.label not in _DRAWN
    return is_read and not hidden and sum(map(is_nameless, text)) <= _MOST_NAMELESS * len(text)


def _table(layer: TextLayer, region: Region, words: Sequence[Word]) -> LayerTable | None:
    """Return the table of a region's words, if they are all its print."""
    if any(word.marks & Mark.INVISIBLE for word in words):
        return None
    [bare] = words_of_regions(without_rules(layer), [region.bbox])
    return table_of(layer, words, region.bbox) if bare.bare_share <= MOST_BARE else None


def _text(region: Region, lines: Sequence[Line]) -> str:
    if region.label == CODE_LABEL:
        return fence_code(code_of(lines)) if lines else ""
    return text_of(lines)


def _samples(layer: TextLayer, lines: Iterable[Line], scripts: Collection[str]) -> list[LineSample]:
    readable = [(line, text) for line in lines if (text := _readable(line, scripts))]
    if not readable:
        return []
    body = min(readable, key=lambda each: abs(len(letters(each[1])) - _BEST))
    chosen = [body]
    others = [each for each in readable if not 1 / _OTHER_SIZE < _height(each[0]) / _height(body[0]) < _OTHER_SIZE]
    if others:
        chosen.append(max(others, key=lambda each: len(letters(each[1]))))
    numbers = max(readable, key=lambda each: _digits(each[1]))
    if numbers not in chosen and _digits(numbers[1]) >= _FEWEST_DIGITS > max(_digits(text) for _, text in chosen):
        chosen.append(numbers)
    return [LineSample(text, _around(layer, line)) for line, text in chosen]


def _readable(line: Line, scripts: Collection[str]) -> str:
    """Return the text of an upright line that any reader should read, or empty."""
    text = text_of([line])
    signs, found = "".join(text.split()), letters(text)
    known = sum(char.isdigit() or script_of(char) in scripts for char in found)
    # The boxes of turned lines are not places on the page, and no reader sees what is not drawn.
    upright = min(line.box) >= 0 and not any(word.marks & (Mark.UP | Mark.DOWN | Mark.UNDRAWN) for word in line.words)
    legible = upright and _height(line) >= _LEGIBLE
    return text if legible and _FEWEST <= len(found) <= _MOST and known >= _PLAIN * len(signs) else ""


def _height(line: Line) -> int:
    return max(1, line.box[3] - line.box[1])


def _digits(text: str) -> int:
    return sum(map(str.isdigit, text))


def _around(layer: TextLayer, line: Line) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = line.box
    margin = _MARGIN * _height(line)
    right, bottom = min(layer.width, x2 + margin), min(layer.height, y2 + margin)
    return max(0.0, x1 - margin), max(0.0, y1 - margin), right, bottom


SOUND, UNSOUND = "sound", "unsound"
"""The kinds of text layers in `parsed_texts`."""

_FEWEST_LETTERS = 20
"""Fewest letters and digits for which a distance is meaningful."""
_FORMULAS = frozenset({"display_formula", "inline_formula"})
_TABLE = "table"
_FAR = "{share:.0%} of the letters differ from the text layer of its PDF"
_LEFT_OUT = "{share:.0%} of the letters in the text layer of its PDF are in no region"
_DISTANCE, _OUTSIDE = (0.03, 0.17), (0.2, 0.6)
"""Distance, and share of letters in no region, from which a page is doubted and from which the doubt is certain."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a reading with a sound layer of the same regions.

    `distance` is the number of edits per character of the longer text, 0 to 1, over letters and digits; None if there
    are too few to tell. `outside` is the share of the layer's letters that are in no region. `numbers` are those that
    differ.
    """

    distance: float | None
    outside: float
    numbers: NumbersAudit = field(default_factory=NumbersAudit)

    def doubts(self) -> list[Doubt]:
        """Return the doubts about the reading."""
        far = self.distance or 0.0
        return [
            Doubt("layer", ramp(far, *_DISTANCE), Reason(_FAR, share=far)),
            Doubt("layer", ramp(self.outside, *_OUTSIDE), Reason(_LEFT_OUT, share=self.outside)),
            *self.numbers.doubts(),
        ]


def compare(layer: TextLayer, readings: Sequence[RegionText], boxes: Sequence[Sequence[float]]) -> Comparison:
    """Compare a layer with readings, whose `boxes` are in pixels.

    Failed regions, formulas and pictures are left out. Regions are compared one by one, so the reading order does not
    matter. A table's cells may be in another order, so only letters that just one of the two has count. Numbers of
    other places must come out somewhere on the page.
    """
    layer = printed_part(layer)
    edits = longest = 0
    numbers = NumbersAudit()
    printed_somewhere = outside_of(layer, boxes)
    for reading, within in zip(readings, words_of_regions(layer, boxes), strict=True):
        told = letters(page_text([reading]))
        printed = letters(text_of(lines_of(within.words)))
        was_read = reading.state is not State.FAILED and reading.finish_reason != "skipped"
        printed_somewhere += within.words if reading.state is not State.FAILED else ()
        is_table = reading.native_label == _TABLE
        is_text = is_table or (within.bare_share <= MOST_BARE and reading.native_label not in _FORMULAS)
        if was_read and printed and is_text:
            measure = _unshared if is_table else Levenshtein.distance
            edits += measure(told, printed)
            longest += max(len(told), len(printed))
            numbers.add(" ".join(word.text for word in within.words), page_text([reading]))
    seen = " ".join(word.text for word in printed_somewhere if not word.marks & Mark.INVISIBLE)
    numbers.add_lost(seen, page_text(readings))
    return Comparison(edits / longest if longest >= _FEWEST_LETTERS else None, _outside(layer, boxes), numbers)


def doubt_blank(layer: TextLayer) -> list[Doubt]:
    """Return what speaks against a page that looks blank.

    Its print may be as small as specks, or its picture lost with the text over it left.
    """
    found = sum(len(letters(word.text)) for word in layer.words)
    says = Reason("the page looks blank, but the text layer of its PDF has {count:,} letters", count=found)
    return [Doubt("layer", 1.0, says)] if found >= _FEWEST_LETTERS else []


def layer_figures(table: pa.Table) -> dict[str, float]:
    """Count the sound and unsound layers of a `parsed_texts` table, with the usual distance.

    Empty if no page was compared with a layer.
    """
    states = Counter(filter(None, table["text_layer"].to_pylist()))
    if not states:
        return {}
    distances = [distance for distance in table["text_layer_distance"].to_pylist() if distance is not None]
    usual = {"text_layer_distance": median(distances)} if distances else {}
    return {"text_layers_sound": states[SOUND], "text_layers_unsound": states[UNSOUND], **usual}


@dataclass(frozen=True, slots=True)
class FromLayers:
    """Counts of regions with text from the PDF, all regions, and pages."""

    regions: int = 0
    of: int = 0
    pages: int = 0

    def __add__(self, other: "FromLayers") -> "FromLayers":
        return FromLayers(self.regions + other.regions, self.of + other.of, self.pages + other.pages)

    def __str__(self) -> str:
        of = f"{self.regions:,} of {counted(self.of, 'region')} on {counted(self.pages, 'page')}"
        return f"text of {of} taken from the text layers of PDFs"


def from_layers(store: "TableStore", shards: Iterable[str]) -> FromLayers:
    """Count the regions of `shards` whose text comes from text layers.

    Only one small column of each table is read. Raises `StoreError`.
    """
    regions = of = pages = 0
    for shard in shards:
        with store.open(TABLES.readings.name, shard) as table:
            read = table.read(columns=["regions.list.element.origin"])["regions"].to_pylist()
        for page in read:
            taken = sum(region["origin"] == TextOrigin.TEXT_LAYER for region in page or ())
            regions, of, pages = regions + taken, of + len(page or ()), pages + (taken > 0)
    return FromLayers(regions, of, pages)


def _unshared(a: str, b: str) -> int:
    return max((Counter(a) - Counter(b)).total(), (Counter(b) - Counter(a)).total())


def _outside(layer: TextLayer, boxes: Sequence[Sequence[float]]) -> float:
    every, outside = (_count(words) for words in (layer.words, outside_of(layer, boxes)))
    return outside / every if outside >= _FEWEST_LETTERS else 0.0


def _count(words: Sequence[Word]) -> int:
    return sum(len(letters(word.text)) for word in words if not word.marks & Mark.NO_INK)
