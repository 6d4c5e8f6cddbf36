"""What LibreOffice prints of office files: all that they say, and nothing that was deleted."""

import io
import zipfile
from pathlib import Path

import pytest
from pypdfium2 import PdfDocument

from kopub.pages.documents import conversion, office, web_page
from kopub.pages.documents.conversion import Conversion, Conversions
from tests.support.sources.office_files import archive, docx, open_document, xlsx

converts = pytest.mark.skipif(
    any(map(office.lacks, office.SUFFIXES)) or not conversion.has_korean_font(),
    reason="apt-get install libreoffice-writer libreoffice-calc libreoffice-impress fonts-noto-cjk",
)

pytestmark = pytest.mark.usefixtures("one_process")


@pytest.fixture
def printed(tmp_path: Path):
    """Return a function that prints a file: the letters of each page, and its width in points."""
    conversions = Conversions()

    def pages(name: str, content: bytes) -> list[tuple[str, float]]:
        (tmp_path / name).write_bytes(content)
        made = conversions.pdf(name, tmp_path / name)
        assert isinstance(made, Conversion), made
        assert made.lost == {}
        with PdfDocument(made.pdf) as document:
            return [("".join(page.get_textpage().get_text_range().split()), page.get_width()) for page in document]

    yield pages
    conversions.end()


@pytest.mark.slow
@converts
def test_a_tracked_deletion_is_not_printed_and_an_insertion_is(printed) -> None:
    change = '<w:{0} w:id="{1}" w:author="a" w:date="2024-01-01T00:00:00Z"><w:r><w:{2}>{3}</w:{2}></w:r></w:{0}>'
    changes = change.format("del", 1, "delText", "삼천만") + change.format("ins", 2, "t", "오천만")
    table = f"<w:tbl><w:tr><w:tc><w:p>{changes}</w:p></w:tc></w:tr></w:tbl>"
    ((text, _),) = printed("a.docx", docx("계약 금액", body=f"<w:p>{changes}</w:p>{table}<w:p/>"))
    assert text == "계약금액오천만오천만"

    gone = (
        '<text:tracked-changes><text:changed-region xml:id="c" text:id="c"><text:deletion><office:change-info '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:creator>a</dc:creator><dc:date>2024-01-01T00:00:00</dc:date>'
        "</office:change-info><text:p>지운 글</text:p></text:deletion></text:changed-region></text:tracked-changes>"
    )
    with zipfile.ZipFile(io.BytesIO(open_document("text", '남은<text:change text:change-id="c"/> 글'))) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts["content.xml"] = parts["content.xml"].replace(b"<office:text>", f"<office:text>{gone}".encode())
    ((text, _),) = printed("b.odt", archive({**parts}))
    assert text == "남은글"


@converts
def test_numbers_wider_than_their_column_are_printed_as_they_are_shown(printed) -> None:
    rows = ["2024년도 부서별 예산 편성 현황과 전년 대비 증감", "부서\t금액\t비율", "총무과\t84592980078\t0.426"]
    narrow = '<cols><col min="1" max="3" width="3" customWidth="1"/></cols>'
    ((text, width),) = printed("a.xlsx", xlsx([rows], columns=narrow, formats=["General", "#,##0", "0.0%"]))
    assert all(said in text for said in ("84,592,980,078", "42.6%", rows[0].replace(" ", ""), "총무과"))
    assert "#" not in text
    assert width < 600, "a title over the columns widens none of them"


@pytest.mark.slow
@converts
def test_a_wide_sheet_is_one_page_wide_with_rules_around_its_cells(printed) -> None:
    rows = ["\t".join(["지점", *(f"{month}월 매출액" for month in range(1, 25))])]
    rows += [
        "\t".join([branch, *map(str, range(first, first + 24))]) for branch, first in (("서울", 1001), ("제주", 2001))
    ]
    ((text, width),) = printed("a.xlsx", xlsx([rows], formats=["General"] * 25))
    assert width > 600
    assert all(said in text for said in ("24월매출액", "1001", "1024", "2001", "2024"))


@pytest.mark.slow
@converts
def test_sheets_are_printed_under_their_names_and_hidden_ones_not_at_all(printed) -> None:
    pages = printed("a.xlsx", xlsx([["첫 글"], ["숨은 글"], ["셋째 글"]], hidden=1))
    assert [text for text, _ in pages] == ["S1첫글", "S3셋째글"]


@pytest.mark.slow
@converts
@pytest.mark.parametrize("head", ["", '<meta charset="euc-kr">', '<meta charset="utf-8">'])
def test_a_web_page_in_cp949_is_read_whatever_it_declares(printed, head: str) -> None:
    page = f"<html><head>{head}</head><body><h1>채용 공고</h1><p>행정 3명</p></body></html>"
    ((text, _),) = printed("a.html", page.encode("cp949"))
    assert text == "채용공고행정3명"


@pytest.mark.parametrize(
    ("charset", "declared"),
    [
        ("utf-8", ""),
        ("utf-8", "euc-kr"),
        ("utf-8-sig", ""),
        ("utf-16", ""),
        ("cp949", ""),
        ("cp949", "euc-kr"),
        ("cp949", "ks_c_5601-1987"),
        ("cp949", "no-such-charset"),
    ],
)
def test_a_page_s_charset_is_known(charset: str, declared: str) -> None:
    meta = f'<meta http-equiv="Content-Type" content="text/html; charset={declared}">' if declared else ""
    # In CP949, but not in EUC-KR.
    rare = "햏" if declared.startswith(("euc", "ks")) else ""
    page = f"<html>{meta}<p>채용 공고: 아래와 같이 직원을 모집합니다. {rare}</p>"
    assert web_page.decoded(page.encode(charset)) == page


def test_what_a_page_says_is_in_the_charset_of_its_print(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text('<html><meta charset="utf-8"><p>zero\u200bwidth \ufeffbom</p></html>', "utf-8")
    assert [piece.text for piece in office.pieces(page, tmp_path / "a.pdf")] == ["zerowidth bom"]
