"""Takes texts of regions from a sound text layer, and compares it with the reading."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from kopub.fingerprints import CodeVersion
from kopub.layout.regions import FORMULAS, READ_TASKS, Region, Task
from kopub.pages.documents.text_layer import Mark, TextLayer, Word
from kopub.pages.nameless import NAMELESS, is_nameless
from kopub.recognition.content import KOREAN, fence_code, letters, main_script, script_of
from kopub.recognition.known_texts import LineSample
from kopub.recognition.regions import RegionText, TextOrigin
from kopub.states import Reason, State
from kopub.texts.layer_code import CODE_LABEL
from kopub.texts.layer_lines import Line, clean, code_of, joined, lines_of, text_of
from kopub.texts.layer_soundness import has_nameless, is_broken, printed_part, unsound
from kopub.texts.layer_tables import chunks_of, table_of
from kopub.texts.layer_tags import title_level
from kopub.texts.markdown import page_text
from kopub.texts.numbers_audit import NumbersAudit
from kopub.texts.region_words import MOST_BARE, outside_of, regions_with_words, without_rules, words_of_boxes
from kopub.texts.text_quality import Doubt, ramp

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
        7: "words between rules of a picture or of dots fill the cells of a table",
        8: "a line with a fraction is no sample, and faint print that is read as nothing keeps the text of the layer",
        9: "labels far apart, digits of formulas and those of scripts without a reader are no samples; rules are no "
        "print beside a text; a page that is read for its samples keeps the parts that agree, tables have whole "
        "numbers, and writing from right to left is read so",
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
_LATIN_WORD = re.compile(r"\S*[A-Za-z]\S*")
"""A word whose digits may be the small ones of a formula."""
_FRACTION = re.compile("[⁄¼-¾⅐-⅞]")
"""A sign of a fraction, whose small figures readers mistake."""
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

    In these regions the words are sound and are all that is printed but for rules. An unsound layer gives none. Lines
    are as printed; a table is `<table>` HTML; code is fenced and keeps its indents. The samples are at most three lines
    in `scripts`, those that the reader knows: one of the body, one of another size, and the one with most digits, since
    fonts map each character separately.
    """
    if unsound(layer, scripts) is not None:
        return ExtractedTexts({})
    layer = without_rules(printed_part(layer))
    texts: dict[int, str] = {}
    parts: dict[int, str] = {}
    printed: list[Line] = []
    for region, within in regions_with_words(list(regions), layer):
        words = list(map(_with_nameless, within.words))
        is_hidden = any(word.marks & Mark.INVISIBLE for word in words)
        is_whole = within.bare_share <= MOST_BARE
        is_table = region.task is Task.TABLE and region.label == _TABLE and not is_hidden
        if is_table and (table := table_of(layer, words, region.bbox)):
            lines, text = list(table.lines()), table.html()
        else:
            is_whole &= (
                region.task in (Task.TEXT, Task.ABANDON)
                and region.label not in _DRAWN
                and not any(word.marks & _NOT_PRINT or _FORMULA.search(word.text) for word in within.words)
            )
            lines = lines_of(words)
            text = text_of(lines)
            if lines and region.label == CODE_LABEL:
                text = fence_code(code_of(lines))
        if text and region.label == "paragraph_title" and (level := title_level(layer, words)):
            text = f"{'#' * level} {text}"
        all_letters = joined(words)
        if text and is_whole and not any(map(is_broken, text.replace("\n", ""))):
            texts[region.index] = text
        elif region.task not in READ_TASKS or region.label in _DRAWN or is_hidden:
            continue
        elif sum(map(is_nameless, all_letters)) <= _MOST_NAMELESS * len(all_letters):
            parts[region.index] = text
        else:
            continue
        printed += (line for line in lines if not any(map(has_nameless, line.words)))
    return ExtractedTexts(texts, _samples(layer, printed, scripts - _UNREAD), parts)


def _with_nameless(word: Word) -> Word:
    """Return a word in which each character without a name is a nameless one."""
    if not has_nameless(word):
        return word
    text = "".join(NAMELESS if is_broken(char) and not is_nameless(char) else char for char in clean(word.text))
    return replace(word, text=text if any(map(is_nameless, text)) else NAMELESS * len(text))


class _Candidate(NamedTuple):
    """A line that any reader should read, with counts of its text.

    The height is in pixels.
    """

    line: Line
    text: str
    letters: int
    digits: int
    height: int


def _samples(layer: TextLayer, lines: Iterable[Line], scripts: Collection[str]) -> list[LineSample]:
    candidates: list[_Candidate] = []
    # What stands far apart in a row, as labels of a drawing do, is no line to a reader.
    parts = list(chain.from_iterable(map(chunks_of, lines)))
    # Fonts of other scripts draw digits of their own.
    reads_digits = main_script("".join(part.letters for part in parts)) in {None, *scripts}
    for line in parts:
        text, height = text_of([line]), max(1, line.box.height)
        characters = letters(text)
        readable = sum(reads_digits if char.isdigit() else script_of(char) in scripts for char in characters)
        # The boxes of turned lines are not places on the page, and no reader sees what is not drawn.
        turned = any(word.marks & (Mark.UP | Mark.DOWN | Mark.UNDRAWN) for word in line.words)
        is_legible = min(line.box) >= 0 and not turned and height >= _LEGIBLE
        is_plain = readable >= _PLAIN * len("".join(text.split())) and not _FRACTION.search(text)
        if is_legible and is_plain and _FEWEST <= len(characters) <= _MOST:
            digits = sum(map(str.isdigit, _LATIN_WORD.sub("", text)))
            candidates.append(_Candidate(line, text, len(characters), digits, height))
    if not candidates:
        return []
    body = min(candidates, key=lambda candidate: abs(candidate.letters - _BEST))
    chosen = [body]
    others = [other for other in candidates if not 1 / _OTHER_SIZE < other.height / body.height < _OTHER_SIZE]
    if others:
        chosen.append(max(others, key=lambda candidate: candidate.letters))
    numbers = max(candidates, key=lambda candidate: candidate.digits)
    if numbers.digits >= _FEWEST_DIGITS > max(candidate.digits for candidate in chosen):
        chosen.append(numbers)
    samples: list[LineSample] = []
    for candidate in chosen:
        # A reader gets some of the paper around the line.
        x1, y1, x2, y2 = candidate.line.box
        margin = _MARGIN * candidate.height
        right, bottom = min(layer.width, x2 + margin), min(layer.height, y2 + margin)
        samples.append(LineSample(candidate.text, (max(0.0, x1 - margin), max(0.0, y1 - margin), right, bottom)))
    return samples


_FEWEST_LETTERS = 20
"""Fewest letters and digits for which a distance is meaningful."""
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
    other places must come out somewhere on the page. Of a page of which the layer holds most letters, numbers that were
    read elsewhere are guesses.
    """
    layer = without_rules(printed_part(layer))
    edits = longest = 0
    numbers = NumbersAudit()
    guesses: list[str] = []
    beside = outside_of(layer, boxes)
    printed_somewhere = list(beside)
    for reading, within in zip(readings, words_of_boxes(layer, boxes), strict=True):
        text = page_text([reading])
        answer, printed = letters(text), letters(text_of(lines_of(within.words)))
        was_read = reading.state is not State.FAILED and reading.finish_reason != "skipped"
        printed_somewhere += within.words if reading.state is not State.FAILED else ()
        is_engines = reading.origin in (TextOrigin.RECOGNIZER, TextOrigin.LAYOUT)
        if was_read and is_engines and not printed and reading.native_label not in FORMULAS:
            guesses.append(text)
        is_table = reading.native_label == _TABLE
        is_text = is_table or (within.bare_share <= MOST_BARE and reading.native_label not in FORMULAS)
        if was_read and printed and is_text:
            if is_table:
                of_answer, of_print = Counter(answer), Counter(printed)
                edits += max((of_answer - of_print).total(), (of_print - of_answer).total())
            else:
                edits += Levenshtein.distance(answer, printed)
            longest += max(len(answer), len(printed))
            numbers.add(joined(within.words, " "), text)
    seen = " ".join(word.text for word in printed_somewhere if not word.marks & Mark.INVISIBLE)
    numbers.add_lost(seen, page_text(readings))
    outside, whole = _count_letters(beside), _count_letters(layer.words)
    if whole > sum(map(len, map(letters, guesses))):
        numbers.add("", " ".join(guesses))
    outside_share = outside / whole if outside >= _FEWEST_LETTERS else 0.0
    return Comparison(edits / longest if longest >= _FEWEST_LETTERS else None, outside_share, numbers)


def doubt_blank(layer: TextLayer) -> list[Doubt]:
    """Return what speaks against a page that looks blank.

    Its print may be as small as specks, or its picture lost with the text over it left.
    """
    count = _count_letters(layer.words)
    says = Reason("the page looks blank, but the text layer of its PDF has {count:,} letters", count=count)
    return [Doubt("layer", 1.0, says)] if count >= _FEWEST_LETTERS else []


def _count_letters(words: Iterable[Word]) -> int:
    return sum(len(letters(word.text)) for word in words)
