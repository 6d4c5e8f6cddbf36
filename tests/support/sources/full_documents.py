"""Made office and HWP files, with what each shows and what it hides."""

# The libraries that make the files state no types of what they make.
# pyright: reportOptionalMemberAccess=false, reportOptionalSubscript=false, reportArgumentType=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

import io
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape

import docx
import odfdo
import openpyxl
import pptx
from docx.opc.packuri import PackURI
from docx.opc.part import Part
from docx.oxml import parse_xml
from openpyxl.chart import BarChart, Reference
from openpyxl.comments import Comment
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from tests.support.sources import hwp_files

_WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_NOUNS = [one + other for one in ("예산", "사업", "시설", "교통", "복지") for other in ("계획", "실적", "평가", "조사")]


@dataclass
class FullDocument:
    """A file with what must come out once, on each page, or never."""

    name: str
    content: bytes = b""
    shown: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    tables: int = 0
    _random: random.Random = field(default_factory=random.Random)

    def __post_init__(self) -> None:
        self._random.seed(self.name)

    def text(self, is_hidden: bool = False) -> str:
        """Return a text that no other file or place has."""
        nouns = self._random.choice(_NOUNS)
        text = f"{nouns} {self._random.randrange(1000, 9999)}호 {'숨김' if is_hidden else '공개'}"
        (self.hidden if is_hidden else self.shown).append(text)
        return text

    def head(self) -> str:
        """Return the text of a running head or foot."""
        self.heads.append(self.text())
        return self.shown.pop()

    def figure(self) -> str:
        """Return an amount as Korean tables print it."""
        amount = f"{self._random.choice(['△', '', '▲'])}{self._random.randrange(100_000, 9_999_999):,}"
        self.shown.append(amount)
        return amount


def full_documents() -> Iterator[FullDocument]:
    """Yield one file of each form that the makers know, the same each time."""
    makers: tuple[tuple[str, int, Callable[[FullDocument, int], bytes]], ...] = (
        ("docx", 6, _docx),
        ("xlsx", 2, _xlsx),
        ("pptx", 2, _pptx),
        ("odt", 1, _odt),
        ("ods", 1, _ods),
        ("html", 2, _html),
        ("hwpx", 6, _hwpx),
        ("hwp", 2, _hwp),
    )
    for suffix, count, maker in makers:
        for at in range(count):
            made = FullDocument(f"{suffix}_{at}.{suffix}")
            made.content = maker(made, at)
            yield made


def _saved(document: object) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def _change(made: FullDocument, kind: str, text: str) -> object:
    part = "delText" if kind == "del" else "t"
    return parse_xml(
        f'<w:{kind} {_WORD} w:id="{len(made.shown) + len(made.hidden)}" w:author="a" w:date="2024-01-01T00:00:00Z">'
        f"<w:r><w:{part}>{text}</w:{part}></w:r></w:{kind}>"
    )


def _docx(made: FullDocument, at: int) -> bytes:
    file = docx.Document()
    section = file.sections[0]
    section.header.paragraphs[0].text = made.head()
    section.footer.paragraphs[0].text = made.head()
    file.add_heading(made.text(), 0)
    file.add_heading(made.text(), 1 + at % 3)
    paragraph = file.add_paragraph(made.text())
    paragraph.add_run(made.text(is_hidden=True)).font.hidden = True
    for style in ("List Bullet", "List Bullet 2", "List Number"):
        file.add_paragraph(made.text(), style=style)
    table = file.add_table(4, 3, style="Table Grid" if at % 2 else None)
    for row in range(4):
        for column in range(3):
            table.cell(row, column).text = made.figure() if column == 2 else f"{made.text()}"
    merged = table.cell(0, 0)
    for column in (0, 1):
        made.shown.remove(table.cell(0, column).text)
        table.cell(0, column).text = ""
    merged.merge(table.cell(0, 1)).text = made.text()
    made.tables += 1
    changed = table.cell(1, 0).paragraphs[0]._p
    changed.append(_change(made, "del", made.text(is_hidden=True)))
    changed.append(_change(made, "ins", made.text()))
    if at % 3 == 0:
        _add_note(file, paragraph, made)
    if at % 3 == 1:
        _add_text_box(file, made)
    if at % 3 == 2:
        _add_chart(file, made)
    file.add_comment(paragraph.runs, made.text(is_hidden=True))
    file.add_paragraph(made.text())
    return _saved(file)


def _add_note(file: object, paragraph: object, made: FullDocument) -> None:
    notes = "".join(f'<w:footnote w:id="{at}" w:type="separator"><w:p/></w:footnote>' for at in (-1, 0))
    body = (
        f'<w:footnote w:id="1"><w:p><w:r><w:footnoteRef/></w:r><w:r><w:t>{made.text()}</w:t></w:r></w:p></w:footnote>'
    )
    part = Part(
        PackURI("/word/footnotes.xml"),
        "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml",
        f'<?xml version="1.0" encoding="UTF-8"?><w:footnotes {_WORD}>{notes}{body}</w:footnotes>'.encode(),
        file.part.package,
    )
    file.part.relate_to(part, f"{_LINKS}/footnotes")
    paragraph._p.append(parse_xml(f'<w:r {_WORD}><w:footnoteReference w:id="1"/></w:r>'))


def _add_text_box(file: object, made: FullDocument) -> None:
    file.add_paragraph()._p.append(
        parse_xml(
            f'<w:r {_WORD} xmlns:v="urn:schemas-microsoft-com:vml"><w:pict><v:shape style="width:300pt;height:40pt">'
            f"<v:textbox><w:txbxContent><w:p><w:r><w:t>{made.text()}</w:t></w:r></w:p></w:txbxContent></v:textbox>"
            "</v:shape></w:pict></w:r>"
        )
    )


def _chart_data(made: FullDocument) -> CategoryChartData:
    data = CategoryChartData()
    data.categories = [made.text(), made.text()]
    data.add_series(made.text(), (12.5 + len(made.name), 17.25))
    return data


def _add_chart(file: object, made: FullDocument) -> None:
    slides = pptx.Presentation()
    place = (0, 0, Inches(4), Inches(3))
    shapes = slides.slides.add_slide(slides.slide_layouts[6]).shapes
    chart = shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, _chart_data(made)).chart
    kind = "application/vnd.openxmlformats-officedocument.drawingml.chart+xml"
    part = Part(PackURI("/word/charts/chart1.xml"), kind, _without_workbook(chart.part.blob), file.part.package)
    link = file.part.relate_to(part, f"{_LINKS}/chart")
    drawing = "http://schemas.openxmlformats.org/drawingml/2006"
    file.add_paragraph()._p.append(
        parse_xml(
            f'<w:r {_WORD}><w:drawing><wp:inline xmlns:wp="{drawing}/wordprocessingDrawing"><wp:extent cx="4000000" '
            f'cy="2500000"/><wp:docPr id="1" name="c"/><a:graphic xmlns:a="{drawing}/main"><a:graphicData '
            f'uri="{drawing}/chart"><c:chart xmlns:c="{drawing}/chart" xmlns:r="{_LINKS}" r:id="{link}"/>'
            "</a:graphicData></a:graphic></wp:inline></w:drawing></w:r>"
        )
    )
    made.tables += 1


def _without_workbook(chart: bytes) -> bytes:
    begin, _, rest = chart.partition(b"<c:externalData")
    return begin + rest.partition(b"</c:externalData>")[2]


def _xlsx(made: FullDocument, at: int) -> bytes:
    book = openpyxl.Workbook()
    for number, title in enumerate(("첫째 표", "둘째 표", "셋째 표")):
        sheet = book.active if number == 0 else book.create_sheet()
        sheet.title = f"{title} {at}"
        made.shown.append(sheet.title)
        sheet.append([made.text(), made.text(), made.text(), made.text(is_hidden=True)])
        for row in range(4):
            amount, share = made._random.randrange(100_000, 9_999_999), made._random.randrange(10_000, 99_999)
            is_hidden = row == 2
            sheet.append([made.text(is_hidden), amount, share / 100_000, made.text(is_hidden=True)])
            sheet.cell(row + 2, 2).number_format = "#,##0;△#,##0"
            sheet.cell(row + 2, 3).number_format = "0.000%"
            made.shown += [] if is_hidden else [f"{amount:,}", f"{share / 1000:.3f}%"]
        sheet.column_dimensions["D"].hidden = True
        sheet.row_dimensions[4].hidden = True
        sheet["A6"] = f"=B2*0-48163{number}"
        sheet["A6"].number_format = "#,##0;△#,##0"
        made.shown.append(f"△481,63{number}")
        sheet["B6"], sheet["B7"] = made.text(), made.text()
        sheet.merge_cells("A6:A7")
        sheet["A1"].comment = Comment(made.text(is_hidden=True), "a")
        made.tables += 1
    if at % 2:
        chart = BarChart()
        chart.add_data(Reference(book.active, min_col=2, min_row=2, max_row=4))
        book.active.add_chart(chart, "H2")
    for state in ("hidden", "veryHidden"):
        sheet = book.create_sheet(state)
        sheet["A1"] = made.text(is_hidden=True)
        sheet.sheet_state = state
    return _saved(book)


def _pptx(made: FullDocument, at: int) -> bytes:
    deck = pptx.Presentation()
    hidden, slide = (deck.slides.add_slide(deck.slide_layouts[5]) for _ in range(2))
    hidden.shapes.title.text = made.text(is_hidden=True)
    hidden.notes_slide.notes_text_frame.text = made.text(is_hidden=True)
    hidden._element.set("show", "0")
    slide.shapes.title.text = made.text()
    table = slide.shapes.add_table(3, 2, Inches(0.5), Inches(1.6), Inches(4.5), Inches(1.5)).table
    for row in range(3):
        table.cell(row, 0).text, table.cell(row, 1).text = made.text(), made.figure()
    made.tables += 1
    if at % 2:
        place = (Inches(5), Inches(3), Inches(4.5), Inches(3))
        slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, *place, _chart_data(made))
        made.tables += 1
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(Inches(0.5), Inches(5), Inches(4), Inches(0.5)).text_frame.text = made.text()
    slide.notes_slide.notes_text_frame.text = made.text()
    return _saved(deck)


def _odt(made: FullDocument, at: int) -> bytes:
    file = odfdo.Document("text")
    file.body.clear()
    file.body.append(odfdo.Header(1, made.text()))
    file.body.append(odfdo.Paragraph(made.text()))
    file.body.append(odfdo.List([made.text(), made.text()]))
    table = odfdo.Table(f"t{at}", width=3, height=3)
    for row in range(3):
        for column in range(3):
            table.set_value((column, row), made.figure() if column else made.text())
    file.body.append(table)
    made.tables += 1
    noted = odfdo.Paragraph(made.text())
    noted.insert_note(after=None, note_id="n1", citation="1", body=made.text())
    file.body.append(noted)
    file.body.append(odfdo.Paragraph(made.text()))
    return _saved(file)


def _ods(made: FullDocument, at: int) -> bytes:
    file = odfdo.Document("spreadsheet")
    file.body.clear()
    for number in range(3):
        sheet = odfdo.Table(f"{number}번 표 {at}", width=3, height=3)
        made.shown.append(f"{number}번 표 {at}")
        for row in range(3):
            for column in range(3):
                sheet.set_value((column, row), made.figure() if column else made.text())
        file.body.append(sheet)
        made.tables += 1
    return _saved(file)


def _html(made: FullDocument, at: int) -> bytes:
    rows = "".join(f"<tr><td>{made.text()}</td><td>{made.figure()}</td></tr>" for _ in range(4))
    made.tables += 1
    charset = "<meta charset=euc-kr>" if at % 2 else ""
    hidden = (
        f"<p hidden>{made.text(is_hidden=True)}</p><div style='display:none'>{made.text(is_hidden=True)}</div>"
        f"<div class=k>{made.text(is_hidden=True)}</div><!-- {made.text(is_hidden=True)} -->"
        f"<script>var a = '{made.text(is_hidden=True)}'</script>"
    )
    page = (
        f"<html><head><title>제목</title>{charset}<style>p {{color: #000}} .k {{display: none}}</style></head><body>"
        f"<h1>{made.text()}</h1><h2>{made.text()}</h2><p>{made.text()}<b>{made.text()}</b></p>{hidden}"
        f"<table border={at % 2}>{rows}<tr><td colspan=2>{made.text()}</td></tr></table>"
        f"<ul><li>{made.text()}<ul><li>{made.text()}</li></ul></li></ul><ol><li>{made.text()}</li></ol>"
        f"<pre>{escape('if a < b:')}\n    return 1</pre></body></html>"
    )
    return page.encode("cp949")


def _hwpx(made: FullDocument, at: int) -> bytes:
    paragraph = hwp_files.paragraph
    rows = [[made.text(), made.figure(), made.figure()] for _ in range(4)]
    rows[0] = [rows[0][0], "", rows[0][2]]
    made.shown.remove(made.shown[1])
    table = hwp_files.table(rows, {(0, 0): (1, 2)}, caption=made.text() if at % 2 else "")
    made.tables += 1
    body = [
        paragraph(made.text(), hwp_files.deleted(made.text(is_hidden=True)) + hwp_files.note(made.text())),
        paragraph("", table),
        paragraph(made.text(), hwp_files.hidden(made.text(is_hidden=True))),
    ]
    if at % 3 == 0:
        body.append(paragraph(made.text(), hwp_files.note(made.text(), "endNote")))
    if at % 3 == 1:
        body += [paragraph("", hwp_files.table([["", ""], ["", ""]])), paragraph(made.text(), breaks="page")]
    if at % 3 == 2:
        body.append(paragraph(made.text(), hwp_files.equation("S = {a+b} over {c}")))
    heads = hwp_files.head(made.head()) + hwp_files.head(made.head(), "footer")
    return hwp_files.hwpx(*body, first=heads)


def _hwp(made: FullDocument, at: int) -> bytes:
    rows = [[made.text(), made.figure(), made.figure()] for _ in range(3 + at)]
    made.tables += 1
    return hwp_files.hwp(made.text(), hwp_files.hwp_table(rows), made.text())
