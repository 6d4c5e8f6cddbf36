"""Signs that a text is not what is printed. Pure.

They need neither a reference nor a second reading. Each sign has one share from which it counts and one from which it
is certain; both are beyond those of clean pages of manuals with code, tables, formulas and English
(`benchmarks/reading/text_quality.py`). A doubt is a warning and changes no state. Regions that failed are not part of a
page's text, and the page's state reports them; leave out their boxes too.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from kopub.errors import counted
from kopub.recognition.content import KOREAN, script_of, strip_fillers
from kopub.states import Reason

DOUBTFUL = 0.5
"""Pages with at least this doubt should be checked by a person."""

_PROSE = frozenset(("abstract", "aside_text", "content", "reference", "reference_content", "text", "vertical_text"))
"""Labels of regions whose text fills their boxes; titles have large type, and tables are mostly white."""
_STARVED, _STARVED_BESIDE = 4000, 4
"""A box has too few characters if each takes more than this many units of the 1000 x 1000 grid (body text of 10 points
takes 350 on A4, of 40 points on a slide 4,000), or this many times as many as on the rest of its page."""
_SMALLEST = 10_000
"""Units of the smallest box that counts: a hundredth of the page. A smaller one may contain a symbol."""
_NO_TITLE = 250_000
"""Units of a box too large for a title: a box of a quarter of the page with only a few characters was misread."""
_LOST = 25_000
"""Fewest units of all boxes without text that count; an icon that layout took for text has fewer."""
_MOSTLY_PICTURE = (0.5, 0.8)
"""Shares of the page covered by pictures: from the first, text in them is suspected; at the second, it is certain."""
_SIGNS = (100, 0.15)
"""Fewest characters of a page to be checked for letters and digits, and the share below which these are too few."""
_EVERYWHERE = frozenset(("LATIN", "GREEK", "MATHEMATICAL", "IDEOGRAPHIC", "MODIFIER", "ROMAN"))
"""First words of the Unicode names of letters that occur in documents of any language."""

_JAMO = re.compile(r"(?<=[가-힣ㄱ-ㅣ])[ㄱ-ㅣ]|[\u1100-\u11ff\ua960-\ua97f\ud7b0-\ud7ff]")
"""Hangul letters that make no syllable, inside a word; at the start of a word, one may be a bullet."""
_SYLLABLE = re.compile("[가-힣]")
_BROKEN = re.compile("[\ufffd\x80-\x9f\ue000-\uf8ff]")
_ACCENTED = re.compile("[À-ÖØ-öø-ÿ]")
_MARK = re.compile(r"[.,?!](?=\s|$)")
_ORPHAN = re.compile(r"(?:^[ \t]*|[^\S\n]{2}|[.,?!]\s+)[.,?!](?=\s|$)", re.MULTILINE)
"""Punctuation at the start of a line, after a gap or after other punctuation, where a word is missing."""
_SENTENCE_END = re.compile(r"(?:니다|세요|십시오)(?![가-힣])(?P<mark>\S*)[^\S\n]*(?P<line_end>\n|$)?")
"""The end of a Korean sentence, the marks after it, and whether a line ends there."""
_TABLE_ROW = re.compile(r"^.*\t.*", re.MULTILINE)
_INNER_MARK = re.compile(r"[가-힣](?<![다요오음함됨임까죠라자네시등것])([.,]) (?=\S)")
"""A mark inside a line after a syllable that does not end a sentence; it is nearly always a comma."""
_FEWEST_MARKS = 5
_AS_FULL_STOPS = 0.75
"""Share of full stops among such marks from which commas were misread; on sound pages it is at most 0.43."""
_NUMBER = re.compile(r"\d+")
_LATIN_WORD = re.compile("[A-Za-z]{2,}")
_WINDOW, _LETTERS, _LETTERS_OF_PROSE = 40, 10, 24
"""Characters of a stretch whose repetition is searched, and how many of them must be letters."""
_WEIGHTS = np.random.default_rng(0).integers(1, 2**64, _WINDOW, np.uint64, endpoint=False)
"""Weights by which the characters of a stretch add up to its checksum, modulo 2 ** 64."""
_DENSE_FROM = 600
"""Fewest bytes for compression to be a measure; prose reaches a factor of 3, listings and tables 6."""
_LITTLE_HANGUL = 0.2
"""Largest share of Hangul in a line's letters at which the line is checked for misread Hangul."""
_MUCH_LATIN = 0.15
"""Least share of a page's letters that are Latin in such lines for their capitals to be counted."""
_MIXED = 0.03
"""Least share of Latin words that mix capitals and small letters in misread Hangul; a page in capitals has none."""


@dataclass(frozen=True, slots=True)
class JudgedRegion:
    """A region that was to be read: its label, its area, and the characters read.

    The area is in units of the 1000 x 1000 grid. `cut` means that the reading was cut off, `unsure` that its engine
    doubts it. A `picture` was not read.
    """

    label: str
    area: float
    characters: int
    cut: bool = False
    unsure: bool = False
    picture: bool = False


@dataclass(frozen=True, slots=True)
class Doubt:
    """A sign of a bad text: kind, certainty (0 to 1), sentence for people."""

    kind: str
    weight: float
    says: str


@dataclass(frozen=True, slots=True)
class DoubtfulText:
    """A page whose text looks wrong, and the reasons."""

    page_id: str
    doubt: float
    doubts: tuple[str, ...]


def doubts(text: str, boxes: Sequence[JudgedRegion] = (), scripts: Set[str] = KOREAN) -> list[Doubt]:
    """Return the doubts about a page's text, the most certain first.

    A sound text has none. `scripts` are the scripts expected on pages, named as in `script_of`. If Hangul is among
    them, lines without it are checked, and Chinese characters in these are doubted unless CJK is expected.
    """
    text = unicodedata.normalize("NFC", text)
    signs = by_weight([*_characters(text, scripts), *_repetition(text), *_area(boxes)])
    if not text and boxes and not signs:
        form = "the page has ink, and nothing was read from it ({regions})"
        return [Doubt("truncated", 1.0, Reason(form, regions=counted(len(boxes), "region")))]
    return signs


def by_weight(signs: Sequence[Doubt]) -> list[Doubt]:
    """Return the doubts that have a weight, the most certain first."""
    return sorted((doubt for doubt in signs if doubt.weight > 0), key=lambda doubt: -doubt.weight)


def total(signs: Sequence[Doubt]) -> float:
    """Return the probability, 0 to 1, that any of a page's independent signs is right."""
    sound = 1.0
    for doubt in signs:
        sound *= 1 - doubt.weight
    return round(1 - sound, 3)


def doubtful(table: pa.Table) -> list[DoubtfulText]:
    """Return the pages of a `parsed_texts` table that look wrong, worst first."""
    pages: list[DoubtfulText] = []
    for at, doubt in enumerate(table["doubt"].to_pylist()):
        if (doubt or 0.0) >= DOUBTFUL:
            signs = table["doubts"][at].as_py()
            pages.append(DoubtfulText(table["page_id"][at].as_py(), doubt, tuple(signs or ())))
    return sorted(pages, key=lambda page: -page.doubt)


def unexpected_scripts(scripts: Iterable[str | None], expected: Set[str]) -> Counter[str]:
    """Count the pages with each unexpected main script."""
    fitting = _EVERYWHERE | expected
    return Counter(script for script in scripts if script and script not in fitting)


def _characters(text: str, scripts: Set[str]) -> Iterator[Doubt]:
    expected = _EVERYWHERE | scripts | ({"CJK"} if "HANGUL" in scripts else set())
    visible = letters = digits = hangul = rare = foreign = 0
    # Each character is looked at once, however often it occurs.
    for char, count in Counter(text).items():
        visible += 0 if char.isspace() else count
        digits += count if char.isdigit() else 0
        if char.isalpha():
            letters += count
            foreign += 0 if script_of(char) in expected else count
            if _SYLLABLE.match(char):
                hangul += count
                rare += 0 if _is_common(char) else count
    if not visible:
        return
    words = letters + digits
    fewest, least = _SIGNS
    if visible >= fewest and words < least * visible:
        yield Doubt(
            "signs",
            ramp(1 - words / visible, 1 - 2 * least, 1 - least),
            Reason("only {share:.0%} of the characters are letters or digits", share=words / visible),
        )
    broken = len(_BROKEN.findall(text))
    yield _share("mojibake", broken, visible, 3, (0.005, 0.03), "of the characters are broken")
    accented = len(_ACCENTED.findall(text))
    yield _share("mojibake", accented, letters, 10, (0.1, 0.3), "of the letters have accents, as in a wrong encoding")
    yield _share("mojibake", rare, hangul, 5, (0.01, 0.05), "of the syllables are in no Korean word")
    jamo = len(_JAMO.findall(text))
    yield _share("jamo", jamo, hangul + jamo, 5, (0.01, 0.05), "of the Hangul are letters that make no syllable")
    yield _share("script", foreign, letters, 10, (0.1, 0.3), "of the letters are of a script that is not expected")
    if "HANGUL" in scripts:
        # Blur removes small marks first. Lists and slides may leave out full stops at the ends of lines, and tables
        # anywhere in their cells, so these count only if commas have become full stops too.
        inner = _INNER_MARK.findall(text)
        blurred = len(inner) >= _FEWEST_MARKS and inner.count(".") >= _AS_FULL_STOPS * len(inner)
        ends = unmarked = 0
        for end in _SENTENCE_END.finditer(text if blurred else _TABLE_ROW.sub("", text)):
            if blurred or end["line_end"] is None:
                ends += 1
                unmarked += not end["mark"]
        says = "of the sentences end without a mark, as in print out of focus"
        yield _share("marks", unmarked, ends, 4, (0.4, 0.7), says)
        yield from _without_hangul(text, letters, "CJK" in scripts)


def _without_hangul(text: str, letters: int, chinese: bool) -> Iterator[Doubt]:
    """Yield doubts about lines whose Hangul seems to be lost.

    It was left out or misread, as the lines do not look like English, code or formulas. `chinese` says that Chinese
    characters are expected even without Hangul.
    """
    lines: list[str] = []
    for line in text.splitlines():
        if len(_SYLLABLE.findall(line)) <= _LITTLE_HANGUL * sum(map(str.isalpha, line)):
            lines.append(line)
    plain = strip_fillers("\n".join(lines))
    hanja = 0 if chinese else sum(count for char, count in Counter(plain).items() if script_of(char) == "CJK")
    yield _share("script", hanja, letters, 20, (0.1, 0.3), "of the letters are Chinese, in lines without Hangul")
    marks, orphans = len(_MARK.findall(plain)), len(_ORPHAN.findall(plain))
    yield _share("dropped", orphans, marks, 5, (0.3, 0.5), "of the punctuation is alone, as if Hangul was left out")
    words = _LATIN_WORD.findall(plain)
    latin = sum(map(len, words))
    mixed = sum(not (word.islower() or word.isupper() or word.istitle()) for word in words)
    if mixed >= _MIXED * len(words) and latin >= _MUCH_LATIN * letters:
        capitals = sum(map(str.isupper, "".join(words)))
        says = "of the Latin letters are capitals, as of misread Hangul"
        yield _share("capitals", capitals, latin, 30, (0.3, 0.5), says)


def _repetition(text: str) -> Iterator[Doubt]:
    flat = " ".join(strip_fillers(text).split())
    # A loop may count up; table rows may also differ only in numbers, but they have fewer letters.
    repeated = max(_repeated(flat, _LETTERS), _repeated(_NUMBER.sub("0", flat), _LETTERS_OF_PROSE))
    says = "of the text repeats earlier text, by a reading loop or in print"
    yield _share("repeated", repeated, len(flat), 5 * _WINDOW, (0.2, 0.35), says)
    encoded = flat.encode("utf-8", "surrogatepass")
    if len(encoded) >= _DENSE_FROM:
        density = len(encoded) / len(zlib.compress(encoded))
        says = Reason("the text says the same {times:.0f} times over", times=density)
        yield Doubt("repeated", ramp(density, 9, 15), says)


def _repeated(text: str, letters: int) -> int:
    """Count the characters that begin a repeated stretch with at least so many `letters`."""
    if len(text) <= _WINDOW:
        return 0
    # Without two stretches of one checksum, nothing repeats.
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    checksums = np.sort(sliding_window_view(codes, _WINDOW) @ _WEIGHTS)
    if not (checksums[1:] == checksums[:-1]).any():
        return 0
    stretches: set[str] = set()
    repeated = 0
    for start in range(len(text) - _WINDOW + 1):
        stretch = text[start : start + _WINDOW]
        if stretch in stretches:
            repeated += sum(map(str.isalpha, stretch)) >= letters
        stretches.add(stretch)
    return repeated


def _area(boxes: Sequence[JudgedRegion]) -> Iterator[Doubt]:
    drawn = 0.0
    cut = unsure = 0
    read: list[JudgedRegion] = []
    for box in boxes:
        cut += box.cut
        unsure += box.unsure
        if box.picture:
            drawn += box.area
        else:
            read.append(box)
    pictures = min(1.0, drawn / 1e6)
    if pictures >= _MOSTLY_PICTURE[0]:
        weight = 0.5 + 0.5 * ramp(pictures, *_MOSTLY_PICTURE)
        form = "pictures cover {share:.0%} of the page: writing in them is not read"
        yield Doubt("picture", weight, Reason(form, share=pictures))
    if cut:
        yield Doubt("truncated", 0.6, Reason("the reading was cut off ({regions})", regions=counted(cut, "region")))
    if unsure:
        form = "the engine is unsure of what it read ({regions})"
        yield Doubt("unsure", 0.6, Reason(form, regions=counted(unsure, "region")))
    usual = median([box.area / box.characters for box in read if box.characters] or [_STARVED])
    most = min(_STARVED, max(_STARVED_BESIDE * usual, _STARVED / 4))
    starved = 0
    large = lost = 0.0
    for box in read:
        if box.area < _SMALLEST:
            continue
        large += box.area
        # Text should fill the box of prose, or one that is too large for a title.
        is_dense = box.label in _PROSE or (box.area >= _NO_TITLE and box.label != "table")
        if not box.characters or (is_dense and box.area > most * box.characters):
            starved += 1
            lost += box.area
    if lost >= _LOST:
        form = "hardly any text was read from {share:.0%} of the page ({regions})"
        says = Reason(form, share=min(lost / 1e6, 1), regions=counted(starved, "region"))
        yield Doubt("truncated", ramp(lost / large, 0.05, 0.2), says)


def _share(kind: str, part: int, whole: int, fewest: int, edges: tuple[float, float], says: str) -> Doubt:
    """Return a doubt by share; it has no weight if `part` is below `fewest`."""
    share = part / whole if whole and part >= fewest else 0.0
    return Doubt(kind, ramp(share, *edges), Reason(f"{{share:.0%}} {says}", share=share))


def ramp(value: float, fine: float, sure: float) -> float:
    """Return 0 up to `fine`, 1 from `sure` on, and a proportional value in between."""
    return min(1.0, max(0.0, (value - fine) / (sure - fine)))


@lru_cache(maxsize=16_384)
def _is_common(syllable: str) -> bool:
    """Return whether a syllable is among KS X 1001's 2,350, as nearly all are."""
    try:
        return len(syllable.encode("euc_kr")) == 2
    except UnicodeEncodeError:
        return False
