"""Random Korean tables with their signs and units, the same for the same seed. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

SEED = 48
TABLES = 200
"""Tables of all producers together."""


class Look(StrEnum):
    """The way in which a table shows its rows and columns."""

    RULED = "ruled"
    UNRULED = "unruled"
    BANDS = "bands"
    HEAD_RULES = "head rules"
    COLOURED_HEAD = "coloured head"


@dataclass(frozen=True, slots=True)
class MadeCell:
    """A cell of a table, with the rows and columns that it spans."""

    text: str
    rows: int = 1
    columns: int = 1
    figure: bool = False


@dataclass(frozen=True, slots=True)
class MadeTable:
    """A table: its rows with the cells that begin in each.

    The first `heads` rows are its heading, which is printed again on every further page.
    """

    look: Look
    points: int
    heads: int
    columns: int
    rows: Sequence[Sequence[MadeCell]]


@dataclass(frozen=True, slots=True)
class Sheet:
    """A document: its title, and its tables with a line of text before each."""

    name: str
    title: str
    tables: Sequence[MadeTable]
    leads: Sequence[str]


_SUBJECTS = (
    *("가로등", "도로", "하천", "공원", "상수도", "주차장", "도서관", "보건소"),
    *("경로당", "어린이집", "체육관", "문화재", "산림", "농로", "교량", "청사"),
)
_WORKS = ("정비", "보수", "신설", "확장", "개량", "운영", "지원", "관리", "조성", "점검", "보강", "이전")
_NOTES = ("계속", "신규", "완료", "이월", "국비", "도비", "자체", "보류", "변경", "감액")
_OFFICES = ("기획예산과", "도시개발과", "건설교통과", "상하수도과", "문화체육과", "환경위생과")
_LEADS = (
    "아래 표는 사업별 집행 현황을 나타낸 것이다.",
    "다음은 부서별 예산과 결산을 견주어 본 결과이다.",
    "시설의 면적과 이용 인원은 아래와 같이 조사되었다.",
)


def sheets(producer: str, tables: int) -> list[Sheet]:
    """Return the documents of a producer, with so many tables in total.

    One document in four has two tables on its page, and one has a table over several pages.
    """
    random = Random(f"{SEED} {producer}")
    documents: list[Sheet] = []
    left = tables
    while left > 0:
        kind = len(documents) % 4
        count = min(left, 2 if kind == 1 else 1)
        rows = (50, 75) if kind == 3 else (5, 11) if kind == 1 else (8, 24)
        of_sheet = [_table(random, random.randint(*rows), long=kind == 3) for _ in range(count)]
        title = f"{2015 + random.randrange(10)}년 {random.choice(_OFFICES)} 사업 현황"
        documents.append(Sheet(f"{len(documents) + 1:03d}", title, of_sheet, [random.choice(_LEADS) for _ in of_sheet]))
        left -= count
    return documents


def _table(random: Random, rows: int, long: bool) -> MadeTable:
    look = random.choice(list(Look))
    kinds = random.sample(["amount", "change", "share", "area", "count", "bracket"], random.randint(2, 4))
    if "amount" not in kinds:
        kinds[0] = "amount"
    note = random.random() < 0.5
    # Without rules around cells, nothing on the page tells a span.
    ruled = look in (Look.RULED, Look.COLOURED_HEAD)
    tall = ruled and not long and random.random() < 0.4
    names = [MadeCell(_UNITS[kind]) for kind in kinds]
    last = [MadeCell("비고", 2 if tall else 1)] if note else []
    head = [[MadeCell("사업명"), *names, *last]]
    if tall:
        year = MadeCell(f"{2015 + random.randrange(10)}년", 1, len(kinds))
        head = [[MadeCell("사업명", 2), year, *last], names]
    by_office = ruled and not long and random.random() < 0.5
    body: list[list[MadeCell]] = []
    left = 0
    for row in range(rows):
        first: list[MadeCell] = []
        if by_office and not left:
            left = min(random.randint(1, 4), rows - row)
            first = [MadeCell(random.choice(_OFFICES), left)]
        left -= 1
        name = f"{random.choice(_SUBJECTS)} {random.choice(_WORKS)}"
        last = [MadeCell(random.choice(_NOTES) if random.random() < 0.6 else "")] if note else []
        body.append([*first, MadeCell(name), *_figures(random, kinds), *last])
    if not by_office and random.random() < 0.4:
        body.append([MadeCell("합계"), *_figures(random, kinds), *([MadeCell("")] if note else [])])
    if by_office:
        head[0] = [MadeCell("부서", len(head)), *head[0]]
    columns = 1 + by_office + len(kinds) + note
    # Wider tables in larger type would be cut off or wrap.
    points = random.randint(8, 9 if columns > 5 else 11)
    return MadeTable(look, points, len(head), columns, [*head, *body])


_UNITS = {
    "amount": "예산(원)",
    "change": "증감",
    "share": "비율(%)",
    "area": "면적(㎡)",
    "count": "수량",
    "bracket": "전년 대비",
}


def _figures(random: Random, kinds: Sequence[str]) -> Iterator[MadeCell]:
    for kind in kinds:
        match kind:
            case "amount":
                # So many digits that no other row has the same amount, by which its page is found.
                text = f"{random.randint(10_000_000, 9_999_999_999):,}"
            case "change":
                sign = random.choice(("△", "▲", "-", "", ""))
                text = f"{sign}{random.randint(1, 999_999):,}" if random.random() < 0.9 else "-"
            case "share":
                text = f"{random.choice(('', '', '△', '-'))}{random.uniform(0, 150):.1f}%"
            case "area":
                text = f"{random.randint(10, 99_999):,}㎡"
            case "count":
                text = f"{random.randint(1, 2_000):,}{random.choice(('', '건', '명'))}"
            case _:
                in_brackets = random.random() < 0.5
                text = f"({random.randint(1, 99_999):,})" if in_brackets else f"{random.randint(1, 99_999):,}"
        yield MadeCell(text, figure=True)
