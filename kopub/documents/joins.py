"""Joins lines, and paragraphs and tables that are broken across pages."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import pairwise, takewhile

from kopub.documents.document import Block, BlockKind, BlockPart
from kopub.documents.outline import NUMBER_SIGN
from kopub.documents.tables import CONTINUED, TableGrid, grid_of
from kopub.recognition.content import content_parts
from kopub.recognition.tables import is_table, tables_and_text
from kopub.search.morphemes import korean_analyser

ITEM = re.compile(r"\s*(?:[•●○◎◦▪■□▣◆◇▶▷ㆍ∙‧※]\s*|[·–*+°ㅇ\-]\s+)(?=\S)")
"""The bullet of a list entry. Tesseract reads `•` as `ㆍ` or `+`, and `◦` as `°`."""
NUMBERED = re.compile(r"\s*(?:\(?(?:\d{1,3}|[가나다라마바사아자차카타파하A-Za-z])[.)]|[①-⑳ⓐ-ⓩ㉮-㉻])\s*(?=\S)")
"""The number of a list entry: 1. 가. 1) (1) ①."""
ENDED = re.compile(r"[.?!:;。…][\"'”’」』)\]]*$")
"""The end of a sentence."""
_LEADER = re.compile(r"(?:[.·…‥]\s?){4,}\s*\S{0,6}$")
"""The end of a line in a table of contents."""
_COMMAND = re.compile(r"\s*[$#>%]\s")
_FULL = 0.78
"""Share of the longest line from which a line counts as full: on a shorter one, even the longest word would fit."""
_SHORT = 30
"""Text whose lines all have fewer columns is not running text."""
_PITCH = 2.6
"""Printed lines are less than this far apart, in heights of type; a whole paragraph on one line seems far higher."""
_CONTEXT = 12
"""Characters on each side that are used to tell whether a word continues."""
_DOUBT = 2.0
"""If the log-likelihoods of the two readings differ by less, the two words alone cannot decide."""
_KNOWN = 1 << 16
"""Pairs of words whose joint is cached, some 20 MB: a document repeats its words."""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A paragraph, a list entry without its `bullet`, or code.

    Its line breaks belong to the content.
    """

    text: str
    bullet: str = ""
    is_code: bool = False
    language: str = ""


def paragraphs(content: str, width: float = 0, height: float = 0) -> list[Paragraph]:
    """Return the content of a region as running text.

    `width` and `height` are those of the region in pixels: line breaks that cannot be those of the print were set by
    the reader and are kept. A line that is not continued ends a paragraph if it ends a sentence.
    """
    printed = are_print_lines([line for line in content.split("\n") if line.strip()], width, height)
    parts: list[Paragraph] = []
    for passage in content_parts(content):
        if passage.is_code:
            parts.append(Paragraph(passage.text, is_code=True, language=passage.language))
            continue
        lines = [line.strip() for line in passage.text.split("\n")]
        if printed:
            unwrapped: list[str] = []
            for line, continues in zip(lines, _continuing(lines), strict=True):
                if continues:
                    unwrapped[-1] = glue_lines(unwrapped[-1], line)
                else:
                    unwrapped.append(line)
            lines = unwrapped
        # A list entry is a paragraph, and so are the lines up to a number, the end of a sentence or a gap.
        loose: list[str] = []
        for line in [*lines, ""]:
            bullet = ITEM.match(line)
            if loose and (not line or bullet or NUMBER_SIGN.match(line) or ENDED.search(loose[-1])):
                parts.append(Paragraph("\n".join(loose)))
                loose = []
            if bullet:
                parts.append(Paragraph(line[bullet.end() :], bullet=bullet[0].strip()))
            elif line:
                loose.append(line)
    return parts


def one_line(content: str) -> str:
    """Return a title or caption in one line."""
    lines = [" ".join(line.split()) for line in content.split("\n") if line.strip()]
    text = lines[0] if lines else ""
    for line in lines[1:]:
        text = glue_lines(text, line)
    return text


def glue_lines(left: str, right: str) -> str:
    """Join two lines of one paragraph, and mend a broken word."""
    if is_broken_word(left, right):
        return left[:-1] + right
    return left + joint(left, right) + right


def joint(left: str, right: str) -> str:
    """Return the joint of two lines: a blank, or nothing inside a word.

    Korean is broken between any two syllables, without a hyphen, so only the words themselves can tell.
    """
    if not left or not right or left[-1].isspace() or right[0].isspace() or is_broken_word(left, right):
        return ""
    if left[-1] in "-/" and left[-2:-1].strip():
        return ""
    if not "가" <= left[-1] <= "힣" and not "가" <= right[0] <= "힣":
        # Chinese and Japanese have no blanks.
        return "" if unicodedata.east_asian_width(left[-1]) == unicodedata.east_asian_width(right[0]) == "W" else " "
    if not (left[-1].isalnum() and right[0].isalnum()):
        # A blank stands neither behind an opening sign nor before a closing one.
        opens = unicodedata.category(left[-1]) in ("Ps", "Pi")
        closes = unicodedata.category(right[0]) in ("Pe", "Pf", "Po")
        return "" if opens or closes else " "
    first, _, more = right.partition(" ")
    # A single syllable may be a particle of the previous word or a word itself; only the next word can tell.
    begin = first if first[1:] else f"{first} {more.partition(' ')[0]}"
    gain = _gain_of_blank(left.rpartition(" ")[2][-_CONTEXT:], begin[:_CONTEXT].strip())
    if 0 < abs(gain) < _DOUBT:
        gain = _gain_of_blank(left[-_CONTEXT:].strip(), right[:_CONTEXT].strip())
    return " " if gain >= 0 else ""


@lru_cache(_KNOWN)
def _gain_of_blank(left: str, right: str) -> float:
    """Return the log-likelihood gained by a blank between the words."""
    # The likelihood of an unknown word follows its length; a model of its syllables finds up to 1 % fewer joints.
    analyse = partial(korean_analyser().analyze, oov_handling="rule")
    ((_, apart),), ((_, together),) = analyse(f"{left} {right}"), analyse(f"{left}{right}")
    return apart - together


def columns(line: str) -> int:
    """Return the width of a line in columns of half a syllable."""
    return sum(map(_WIDTHS.__getitem__, line.strip()))


class _Widths(dict[str, int]):
    """The columns of each character met so far."""

    def __missing__(self, char: str) -> int:
        self[char] = 2 if unicodedata.east_asian_width(char) in "WF" else 1
        return self[char]


_WIDTHS = _Widths()


def is_command(line: str) -> bool:
    """Return whether a line looks like a terminal command, which no other line continues."""
    return _COMMAND.match(line) is not None


def are_print_lines(lines: list[str], width: float, height: float) -> bool:
    """Return whether the line breaks are those of the print."""
    longest = max(map(columns, lines), default=0)
    if len(lines) < 2 or longest < _SHORT:
        return False
    if not width or not height:
        return True
    return (height / len(lines)) / (2 * width / longest) < _PITCH


def _continuing(lines: Sequence[str]) -> Iterator[bool]:
    """Yield whether each printed line continues the one before."""
    longest = max(map(columns, lines))
    goes_on = False
    for before, line in pairwise(["", *lines]):
        # `다.` begins an entry of a list, or ends a sentence whose last word was broken.
        begins_entry = ITEM.match(line) or (NUMBERED.match(line) and ENDED.search(before))
        yield bool(goes_on and line and not begins_entry and not is_command(line))
        goes_on = columns(line) >= _FULL * longest and not is_command(line) and not _LEADER.search(line)


def mend_words(text: str, width: float = 0, height: float = 0, *, is_one_line: bool = False) -> str:
    """Return printed lines, each word that a line's end cuts whole in its first line.

    `width` and `height` are those of the region in pixels. All lines of a text that `is_one_line`, as titles are,
    continue each other; others as those of `paragraphs`.
    """
    lines = text.split("\n")
    if is_one_line:
        continuing = [False, *map(bool, map(str.strip, lines[1:]))]
    elif are_print_lines([line for line in lines if line.strip()], width, height):
        continuing = _continuing([line.strip() for line in lines])
    else:
        return text
    mended: list[str] = []
    for (before, line), continues in zip(pairwise(["", *lines]), continuing, strict=True):
        end, _, rest = line.strip().partition(" ")
        if not continues or joint(before.rstrip(), line.strip()):
            mended.append(line)
            continue
        begun = mended.pop().rstrip()
        mended.append((begun[:-1] if is_broken_word(before.rstrip(), end) else begun) + end)
        if rest:
            mended.append(rest)
    return "\n".join(mended)


def is_broken_word(left: str, right: str) -> bool:
    """Return whether a word of Latin letters is hyphenated at the end of the line."""
    return bool(re.search(r"[a-z]{2}-$", left) and re.match(r"[a-z]{2}", right))


_RUNNING = frozenset({"text", "content", "abstract", "reference_content"})
_FULL_LINE = 0.9
"""Share of the longest line from which a paragraph's last line is full, so that the paragraph may continue."""
_LONG = 40
"""Columns from which a paragraph that the reader gave as one line may continue."""
_ALIKE = 25
"""Most that the left edges or widths of a paragraph's parts may differ, in parts of 1,000 of the page."""
_FOOT, _HEAD = 80, 60
"""Most space below the first part and above the second, in parts of 1,000."""
_SAME_EDGES = 15
"""Most that the edges of a table's parts, or within one column, may differ, in parts of 1,000."""
_NEXT_LINE = 15
"""Most space between the lines of a paragraph, in parts of 1,000 of the page."""
_SENTENCE_END = re.compile(r"(?:[다요죠까음함됨임것]|있음|없음|바람)$")
"""Endings of sentences and of keyword notes, which need no full stop."""
_GOES_ON = re.compile(r"[가-힣A-Za-z,]$")
_BEGINS = re.compile(r"[가-힣a-z(“‘]")


def join_pages(blocks: Sequence[Block], whole: Collection[int]) -> list[Block]:
    """Join each paragraph and table that surely continues, and return the blocks.

    It may continue on the next page, or below the place that layout took for its end. `whole` are the pages of which
    every region was read; only they are joined. Blocks between the parts (heads, feet and notes; within a page,
    pictures) are moved after the region of the second part, so that regions stay whole.
    """
    tops: dict[int, int] = {}
    bottoms: dict[int, int] = {}
    for block in blocks:
        if block.kind in (BlockKind.FURNITURE, BlockKind.LOST) or not block.is_printed:
            continue
        for part in block.parts:
            box = part.region.box_2d
            tops[part.page] = min(box.y1, tops.get(part.page, box.y1))
            bottoms[part.page] = max(box.y2, bottoms.get(part.page, box.y2))
    # The print of most pages, without heads and feet: a tenth of the pages is left out at each end.
    tenth = len(tops) // 10
    extent = (sorted(tops.values())[tenth], sorted(bottoms.values())[-1 - tenth]) if tops else (0, 1000)
    done: list[Block] = []
    between: list[Block] = []
    region: BlockPart | None = None
    for block in blocks:
        if region is not None and (block.page, block.parts[0].region.index) != (region.page, region.region.index):
            done += between
            between, region = [], None
        at = _may_go_on(done, block)
        if at is not None and done[at].last_page in whole and block.page in whole:
            one = _as_one(done[at], block, done[at + 1 :], extent)
            if one is not None:
                between = done[at + 1 :]
                done[at:] = [one]
                region = block.parts[0]
                continue
        done.append(block)
    return done + between


def _may_go_on(done: Sequence[Block], block: Block) -> int | None:
    """Return the position of the block that this one may continue.

    That is the last one, apart from blocks that may stand between.
    """
    if block.kind not in (BlockKind.TEXT, BlockKind.TABLE):
        return None
    for at in range(len(done) - 1, -1, -1):
        before = done[at]
        between_pages = before.kind is BlockKind.FURNITURE or (
            before.kind is BlockKind.FOOTNOTE and before.page < block.page
        )
        within_page = before.kind is BlockKind.PICTURE or (
            before.kind is BlockKind.CAPTION and block.kind is BlockKind.TABLE and CONTINUED.search(before.text)
        )
        if between_pages or (within_page and before.page == block.page):
            continue
        if block.kind is BlockKind.TABLE and before.page < block.page:
            # A table within a cell of a table that stands above it is not the one that goes on.
            inner = before.parts[0]
            on_page = takewhile(lambda other, page=inner.page: other.last_page >= page, reversed(done[:at]))
            outer = (part for other in on_page if other.kind is block.kind for part in other.parts)
            if any(part.page == inner.page and inner.region.box_2d.inside(part.region.box_2d) for part in outer):
                continue
        return at if before.last_page in (block.page, block.page - 1) else None
    return None


def _as_one(first: Block, second: Block, between: Sequence[Block], extent: tuple[int, int]) -> Block | None:
    """Return the two blocks as one, or None if that is not certain.

    `extent` is the top and bottom of the print of most pages, in parts of 1,000.
    """
    above, below = first.parts[-1].region, second.parts[0].region
    tops: dict[BlockKind, list[int]] = defaultdict(list)
    for block in between:
        tops[block.kind].append(block.parts[0].region.box_2d.y1)
    captions, notes = tops[BlockKind.CAPTION], tops[BlockKind.FOOTNOTE]
    if first.last_page == second.page:
        # The second is the next line of the first one's column.
        gap = below.box_2d.y1 - above.box_2d.y2
        is_aligned = abs(above.box_2d.x1 - below.box_2d.x1) <= _SAME_EDGES
        near = above is not below and is_aligned and -_NEXT_LINE <= gap <= _NEXT_LINE
    else:
        top = min([below.box_2d.y1, *captions])
        # The print of a page ends above its notes.
        near = min([extent[1], *notes]) - above.box_2d.y2 <= _FOOT and top - extent[0] <= _HEAD
    if not near:
        return None
    if first.kind is second.kind is BlockKind.TABLE:
        return _one_table(first, second, bool(captions)) if first.last_page < second.page else None
    running = {first.parts[-1].region.label, second.parts[0].region.label} <= _RUNNING
    if first.kind not in (BlockKind.TEXT, BlockKind.ITEM) or second.kind is not BlockKind.TEXT or not running:
        return None
    if not _goes_on(first.parts[-1], second.parts[0]):
        return None
    left, right = first.text, second.text
    if is_broken_word(left, right):
        ended = replace(first.parts[-1], text=first.parts[-1].text[:-1])
        return replace(first, parts=(*first.parts[:-1], ended, *second.parts))
    return replace(first, parts=(*first.parts, replace(second.parts[0], joint=joint(left, right)), *second.parts[1:]))


def _goes_on(first: BlockPart, second: BlockPart) -> bool:
    """Return whether a page's last paragraph continues on the next page."""
    end, begin = first.text.rstrip().rpartition("\n")[2], second.text.lstrip()
    if not _GOES_ON.search(end) or ENDED.search(end) or not _BEGINS.match(begin) or _SENTENCE_END.search(end):
        return False
    # `다.` is the end of a sentence whose word was broken, since the first part lacks the ending.
    is_entry = ITEM.match(begin) or (NUMBERED.match(begin) and not "가" <= begin[0] <= "힣")
    if is_entry or is_command(end) or is_command(begin):
        return False
    if end[-1].isascii() and not (begin[0].islower() or "가" <= begin[0] <= "힣"):
        return False
    one, other = first.region.box_2d, second.region.box_2d
    # They stand in one column, or in two columns of equal width.
    are_columns = abs(one.x1 - other.x1) <= _ALIKE or abs(one.width - other.width) <= _ALIKE
    lines = [line for line in (first.region.content or "").split("\n") if line.strip()]
    if are_print_lines(lines, first.region.box.width, first.region.box.height):
        is_full = columns(lines[-1]) >= _FULL_LINE * max(map(columns, lines))
    else:
        is_full = columns(end) >= _LONG
    return are_columns and is_full


def _one_table(first: Block, second: Block, is_named: bool) -> Block | None:
    """Join two tables with the same edges, columns and heading.

    The second needs no heading if it `is_named` as the continuation, by a caption of its own or one before it, or if
    the first table is a heading alone.
    """
    upper, lower = tables_and_text(first.parts[-1].text), tables_and_text(second.parts[0].text)
    if len(upper) != 1 or len(lower) != 1 or not is_table(upper[0]) or not is_table(lower[0]):
        return None
    one, other = first.parts[-1].region.box_2d, second.parts[0].region.box_2d
    if abs(one.x1 - other.x1) > _SAME_EDGES or abs(one.x2 - other.x2) > _SAME_EDGES:
        return None
    above, below = grid_of(tables_and_text(first.parts[0].text)[0]), grid_of(lower[0])
    is_named = is_named or CONTINUED.search(below.caption) is not None
    if above.columns != below.columns or below.columns < 2 or (below.caption and not is_named):
        return None
    rows, cells = head = _heading(above)
    # A heading with an empty cell above may be that of another table.
    is_sound = all(text for row, _, _, _, text in cells if row == 0)
    repeated = rows if is_sound and head == _heading(below) and rows < below.rows else 0
    goes_on = is_named or above.heading_rows == above.rows
    if not repeated and (not goes_on or any(cell.heading for cell in below.row(0))):
        return None
    return replace(first, parts=(*first.parts, replace(second.parts[0], repeated=repeated), *second.parts[1:]))


def _heading(grid: TableGrid) -> tuple[int, list[tuple[int, int, int, int, str]]]:
    """Return the number and the cells of a table's first rows.

    They are those that its first cells span, or the headings.
    """
    rows = max([grid.heading_rows, *(cell.rows for cell in grid.row(0))])
    cells: list[tuple[int, int, int, int, str]] = []
    for cell in grid.cells:
        if cell.row < rows:
            cells.append((cell.row, cell.column, cell.rows, cell.columns, "".join(cell.text.split())))
    return rows, cells
