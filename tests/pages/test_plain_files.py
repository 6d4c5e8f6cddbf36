"""Texts, markdown, delimited tables and e-mails come out as they are written, with what is attached."""

import io
from collections.abc import Iterator
from email.message import EmailMessage
from html import unescape
from pathlib import Path

import pytest
from PIL import Image
from pypdfium2 import PdfDocument, PdfImage

from kopub.config.settings import ROOT
from kopub.pages.documents import conversion, office, plain
from kopub.pages.documents.conversion import Conversions, pieces_of_page
from kopub.pages.documents.folder import find_documents
from kopub.pages.documents.pieces import Conversion
from kopub.pages.documents.text_layer import Failure
from tests.support.processes import forked

pytestmark = pytest.mark.skipif(
    any(map(office.lacks, office.SUFFIXES)) or not conversion.has_korean_font(),
    reason="apt-get install libreoffice-writer libreoffice-calc libreoffice-impress fonts-noto-cjk",
)
BUDGET = (ROOT / "docs" / "examples" / "budget.pdf").read_bytes()


@pytest.fixture
def conversions() -> Iterator[Conversions]:
    made = Conversions()
    yield made
    made.end()


@pytest.mark.parametrize(
    ("name", "content", "held"),
    [
        (
            "old.txt",
            "예산 안내\r\n\r\n  항목   금액\r\n  도서관   △70\r\n\r\n<b>굵게</b>".encode("cp949"),
            [("text", "예산 안내"), ("text", "항목금액"), ("text", "도서관△70"), ("text", "<b>굵게</b>")],
        ),
        (
            "notes.md",
            "# 제목\n\n본문 **굵게**\n\n| 항목 | 금액 |\n|---|--:|\n| 도서관 | △70 |\n\n<script>x</script>\n".encode(),
            [
                ("doc_title", "제목"),
                ("text", "본문굵게"),
                ("table", "항목\n금액\n도서관\n△70"),
                ("text", "<script>x</script>"),
            ],
        ),
        (
            "table.csv",
            '사업명;금액;비고\n도서관;"△48,163";007\n역;=1+1;"두\n줄"\n'.encode("utf-8-sig"),
            [("table", "사업명\n금액\n비고\n도서관\n△48,163\n007\n역\n=1+1\n두\n줄")],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_plain_file_says_what_it_says(
    conversions: Conversions, tmp_path: Path, name: str, content: bytes, held: list[tuple[str, str]]
):
    (tmp_path / name).write_bytes(content)
    made = conversions.pdf(name, tmp_path / name)
    assert isinstance(made, Conversion), made
    assert made.lost == {}
    pieces = pieces_of_page(made, 0)
    assert [(piece.label, "".join(piece.text.replace("\u200b", "").split(" "))) for piece in pieces] == [
        (label, text.replace(" ", "")) for label, text in held
    ]


def mail() -> EmailMessage:
    message = EmailMessage()
    message["From"], message["Subject"] = "홍길동 <hong@example.kr>", "예산 자료"
    message.set_content("글로만 쓴 본문")
    message.add_alternative(
        '<p style="display:none">숨은 글</p><p>첨부를 보십시오</p><img src="cid:seal"><img src="http://127.0.0.1:9/x.png">',
        subtype="html",
    )
    picture = io.BytesIO()
    Image.new("RGB", (300, 200), "navy").save(picture, "PNG")
    for body in message.iter_parts():
        if isinstance(body, EmailMessage) and body.get_content_subtype() == "html":
            body.add_related(picture.getvalue(), "image", "png", cid="<seal>")
    message.add_attachment(BUDGET, maintype="application", subtype="pdf", filename="예산.pdf")
    message.add_attachment("역,007\n".encode("cp949"), maintype="text", subtype="csv", filename="표.csv")
    message.add_attachment(picture.getvalue(), maintype="image", subtype="png", filename="scan.png")
    message.add_attachment(b"PK", maintype="application", subtype="zip", filename="묶음.zip")
    message.add_attachment(BUDGET[:99], maintype="application", subtype="pdf", filename="cut.pdf")
    return message


@pytest.mark.slow
def test_a_mail_comes_with_its_attachments_and_names_those_that_cannot_be_read(
    conversions: Conversions, tmp_path: Path
):
    outer = EmailMessage()
    outer["From"], outer["Subject"] = "kim@example.kr", "전달"
    outer.set_content("전달합니다")
    outer.add_attachment(mail())
    (tmp_path / "a.eml").write_bytes(outer.as_bytes())
    made = conversions.pdf("a.eml", tmp_path / "a.eml")
    assert isinstance(made, Conversion), made
    with PdfDocument(made.pdf) as document:
        texts = [page.get_textpage().get_text_range() for page in document]
        pictures = [sum(isinstance(part, PdfImage) for part in page.get_objects()) for page in document]
    assert len(texts) == 5
    assert "전달합니다" in texts[0]
    assert "첨부를 보십시오" in texts[1]
    assert not [text for text in texts if "숨은 글" in text or "글로만" in text]
    assert "△48,163" in texts[2]
    assert [piece.text for piece in pieces_of_page(made, 3)] == ["역\n007"]
    assert pictures == [0, 1, 0, 0, 1]
    assert made.lost == {
        1: "the attachment 묶음.zip was not read: no PDF, image, HWP, office or text file; "
        "the attachment cut.pdf was not read: the file is damaged or no PDF"
    }


def test_quotes_that_are_doubled_below_the_first_lines_and_apostrophes_stay():
    written = "이름,비고\n" + "가,'예'\n" * 9000 + '나,"그는 ""예"", 라고"\n'
    made = unescape(plain.spreadsheet(".csv", written.encode()).decode())
    assert made.count("<text:p>'예'</text:p>") == 9000
    assert '<text:p>그는 "예", 라고</text:p>' in made


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", bytes(range(256)), "the file is no text in UTF-8, UTF-16 or CP949: save it as UTF-8"),
        ("a.csv", b'a,"b\n', "the file is no table of delimited values: unexpected end of data (line 1)"),
        ("a.csv", b"a," * 2000, "the table has more than 500,000 cells, or than 1,024 in a row"),
        ("a.eml", b"\x00\x01 no mail", "the file is no e-mail: it has neither sender nor date"),
        (
            "b.eml",
            b"From: a@b.c\r\n" + b"Content-Type: message/rfc822\r\n\r\n" * 3000,
            "the file holds too many mails in each other",
        ),
    ],
)
def test_what_is_none_of_its_kind_is_one_line(
    conversions: Conversions, tmp_path: Path, name: str, content: bytes, reason: str
):
    (tmp_path / name).write_bytes(content)
    assert conversions.pdf(name, tmp_path / name) == Failure(reason)


def test_a_text_beside_a_page_of_its_name_changes_no_id(tmp_path: Path):
    for name in ("a.pdf", "b.png"):
        (tmp_path / name).write_bytes(b"x")
    before = [document.id for document in find_documents(tmp_path).documents]
    for name in ("a.txt", "b.txt", "c.md"):
        (tmp_path / name).write_bytes(b"x")
    after = {document.name: document.id for document in find_documents(tmp_path).documents}
    assert before == [after["a.pdf"], after["b.png"]]
    assert len(set(after.values())) == 5
    assert after["c.md"] == "c"


@pytest.mark.slow
def test_a_lower_limit_of_the_machine_stays_and_ends_no_conversion(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Plain words.")
    program = (
        "import resource, sys, kopub\n"
        "for limit, most in ((resource.RLIMIT_CPU, 60), (resource.RLIMIT_FSIZE, 50 << 20)):\n"
        "    resource.setrlimit(limit, (most, most))\n"
        "print(kopub.read(sys.argv[1]).markdown)"
    )
    environment = forked.inherited() | {
        "KOPUB_HOME": str(tmp_path / "home"),
        "KOPUB_RUNTIME": str(tmp_path / "runtime"),
    }
    done = forked.run(["python", "-c", program, str(tmp_path / "a.txt")], environment)
    assert "Plain words." in done.stdout, done.stderr
