"""A drawn page, and the answers of DeepSeek-OCR for all of it or for parts."""

from functools import cache

from kopub.pages.page import Page
from tests.support.sources.drawn import Sheet

WIDTH, HEIGHT = 1240, 1754
TITLE, FIRST, CAPTION = (95, 95, 900, 150), (95, 195, 1150, 500), (95, 600, 700, 640)
TABLE, LAST = (98, 698, 1103, 1003), (95, 1195, 1150, 1500)
HTML = "<table><tr><td>서울</td><td>12</td></tr><tr><td>부산</td><td>-</td></tr></table>"
TEXTS = {
    "title": "인구 통계",
    "first": "2023년 인구는 5,132만 명이다. 전년보다 줄었다.",
    "caption": "표 1. 지역별 인구",
    "table": HTML,
    "last": "다음 장에서 지역별로 살펴본다.",
}
Box = tuple[int, int, int, int]


@cache
def drawn_page() -> Page:
    """Return a page of title, paragraph, ruled table with caption, and another paragraph."""
    sheet = Sheet(WIDTH, HEIGHT)
    sheet.text(100, 100, "Population Statistics", 40)
    sheet.paragraph(100, 200, 1000, 8)
    sheet.text(100, 605, "Table 1. Population by region", 24)
    sheet.grid((100, 400, 700, 1100), (700, 800, 900, 1000))
    for row in range(3):
        for column, x in enumerate((120, 420, 720)):
            sheet.text(x, 730 + 100 * row, f"cell {row} {column}", 24)
    sheet.paragraph(100, 1200, 1000, 8)
    return sheet.page("p_1")


def tag(label: str, box: Box, top: int = 0, bottom: int = HEIGHT) -> str:
    """Return the tag of a box in page pixels, for rows `top` to `bottom`."""
    x1, y1, x2, y2 = box
    height = bottom - top
    edges = (999 * x1 / WIDTH, 999 * (y1 - top) / height, 999 * x2 / WIDTH, 999 * (y2 - top) / height)
    return f"<|ref|>{label}<|/ref|><|det|>[[{', '.join(str(round(edge)) for edge in edges)}]]<|/det|>"


def upper(bottom: int = HEIGHT) -> str:
    """Return the answer for the title and the first paragraph."""
    return (
        f"{tag('title', TITLE, 0, bottom)}\n# {TEXTS['title']}\n\n{tag('text', FIRST, 0, bottom)}\n{TEXTS['first']}\n\n"
    )


def table(bottom: int = HEIGHT) -> str:
    """Return the answer for the table, whose caption's tag comes after its own."""
    caption = f"{tag('table_caption', CAPTION, 0, bottom)}\n{TEXTS['caption']}"
    return f"{tag('table', TABLE, 0, bottom)}\n{caption}\n\n{HTML}\n\n"


def last(top: int = 0) -> str:
    """Return the answer for the last paragraph."""
    return f"{tag('text', LAST, top)}\n{TEXTS['last']}\n"


WHOLE = upper() + table() + last()
