"""hOCR, ALTO and PAGE XML of documents, by the rules and schemas of these formats."""

import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from kopub.documents.document import Review
from kopub.documents.export import write_documents
from kopub.states import State
from tests.support.sources.documents import DocumentTables, PageRow, Printed

TABLE = (
    "<table><caption>표 1. 예산</caption><tr><th colspan=2>구분</th></tr>"
    "<tr><td>△48,163</td><td>첫째<br>둘째</td></tr></table> 단위: 천원"
)
PAGES = [
    PageRow(
        "보고서.pdf_1",
        "보고서.pdf",
        1,
        [
            Printed("doc_title", "예산 & <결산>", (100, 50, 900, 100)),
            Printed("text", "첫 줄은 여기까지이고\n둘째\x01 줄\ufffe", (100, 120, 900, 200)),
            Printed("table", TABLE, (100, 300, 900, 500)),
            Printed("table", "<table></table>", (100, 510, 900, 520)),
            Printed("image", "", (100, 600, 500, 700)),
            Printed("text", None, (100, 720, 900, 800)),
            Printed("display_formula", "x^2", (100, 820, 900, 900)),
            Printed("text", "English only", (100, 910, 900, 930)),
            Printed("number", "- 1 -", (400, 950, 600, 980)),
        ],
        state=State.PARTIAL,
        reason="1 of 8 regions failed",
    ),
    PageRow("보고서.pdf_2", "보고서.pdf", 2, state=State.QUARANTINED, reason="the file is damaged"),
]
FORMATS = ["hocr", "alto", "page_xml"]
ALTO, PAGE = (
    "{http://www.loc.gov/standards/alto/ns-v4#}",
    "{http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15}",
)


class Read(DocumentTables):
    """Tables that say which engines made them."""

    def metadata(self, asset: str, shard: str) -> dict[str, str]:
        engine = {"layout_regions": "cpu", "ocr_results": "tesseract"}[asset]
        return {"made_with": f'{{"engines": [{{"engine": "{engine}", "version": 6, "parameters": {{}}}}]}}'}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    reviews = {"보고서.pdf_1": Review(0.3, ("3 numbers differ",))}
    write_documents(Read(s=PAGES), ["s"], folder, FORMATS, reviews=reviews)
    return folder


def schema_file(name: str) -> bytes:
    """Return a file of the folder where `.ci/run` puts the schemas, or skip: they are not ours to copy."""
    folder = Path(os.environ.get("KOPUB_TEST_SCHEMAS") or Path(__file__).parents[2] / ".schemas")
    if (folder / name).is_file():
        return (folder / name).read_bytes()
    for wheel in folder.glob("ocrd_validators-*.whl"):
        with zipfile.ZipFile(wheel) as held:
            if f"ocrd_validators/{name}" in held.namelist():
                return held.read(f"ocrd_validators/{name}")
    pytest.skip(f"needs {name} in .schemas: .ci/run fetches it")


class Beside(etree.Resolver):
    """A resolver that takes imported schemas from the same folder."""

    def resolve(self, system_url: str, public_id: str, context: object) -> object:
        return self.resolve_string(schema_file(Path(system_url).name), context)


@pytest.mark.parametrize(("name", "folder"), [("alto-4-4.xsd", "보고서.alto"), ("page.xsd", "보고서.page")])
def test_every_page_is_valid_by_the_schema(out: Path, name: str, folder: str) -> None:
    parser = etree.XMLParser()
    parser.resolvers.add(Beside())
    wanted = etree.XMLSchema(etree.fromstring(schema_file(name), parser))
    assert sorted(path.name for path in (out / folder).iterdir()) == ["1.xml", "2.xml"]
    for path in (out / folder).iterdir():
        wanted.assertValid(etree.parse(str(path)))


CHILDREN = {
    "alto": r"Description Tags (ReadingOrder )?Layout ",
    "Description": r"MeasurementUnit sourceImageInformation (Processing )*",
    "sourceImageInformation": r"fileName fileIdentifier documentIdentifier ",
    "Processing": r"processingSoftware ",
    "processingSoftware": r"softwareName softwareVersion ",
    "Tags": r"((Layout|Other)Tag )*",
    "ReadingOrder": r"OrderedGroup ",
    "OrderedGroup": r"(ElementRef )+",
    "Layout": r"Page ",
    "Page": r"PrintSpace ",
    "PrintSpace": r"((TextBlock|Illustration|ComposedBlock) )*",
    "ComposedBlock": r"(TextBlock )+",
    "TextBlock": r"(TextLine )*",
    "TextLine": r"String (SP String )*",
}
"""The children that ALTO 4.4 allows, as far as they are written."""


def test_elements_of_alto_stand_where_they_may_and_refer_to_what_is_there(out: Path) -> None:
    for path in (out / "보고서.alto").iterdir():
        root = etree.parse(str(path)).getroot()
        for element in root.iter():
            children = "".join(f"{child.tag.removeprefix(ALTO)} " for child in element)
            assert re.fullmatch(CHILDREN.get(element.tag.removeprefix(ALTO), ""), children), element.tag
        ids = [element.get("ID") for element in root.iter() if element.get("ID")]
        assert len(ids) == len(set(ids))
        refers = " ".join(element.get("TAGREFS", "") + " " + element.get("REF", "") for element in root.iter()).split()
        assert set(refers) <= set(ids)


def test_alto_says_what_was_read_where_by_whom_and_what_is_a_guess(out: Path) -> None:
    root = etree.parse(str(out / "보고서.alto" / "1.xml")).getroot()
    tags = {tag.get("ID"): tag.get("DESCRIPTION") or tag.get("LABEL") for tag in root.find(f"{ALTO}Tags")}
    blocks = {block.get("ID"): block for block in root.find(f".//{ALTO}PrintSpace").iter() if block.get("ID")}
    order = [reference.get("REF") for reference in root.iter(f"{ALTO}ElementRef")]
    assert order == ["r0", "r1", "r2", "r2_1", "r2_2", "r3", "r4", "r5", "r6", "r7", "r8"]
    title, text, failed, cell = blocks["r0"], blocks["r1"], blocks["r5"], blocks["r2_1_c1"]
    assert [title.get(name) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT", "LANG")] == [
        "100",
        "100",
        "800",
        "100",
        "ko",
    ]
    assert blocks["r7"].get("LANG") is None
    assert [line.get("TAGREFS") for line in title] == [None]
    assert [line.get("TAGREFS") for line in text] == ["estimated", "estimated"]
    words = [[word.get("CONTENT") for word in line if word.get("CONTENT")] for line in text]
    assert words == [["첫", "줄은", "여기까지이고"], ["둘째", "줄"]]
    assert [tags[name] for name in failed.get("TAGREFS").split()] == ["text", "could not be read: no answer"]
    assert len(failed) == 0
    assert [string.get("CONTENT") for string in cell.iter(f"{ALTO}String")] == ["△48,163"]
    made = [element.text for element in root.iter(f"{ALTO}softwareName")]
    assert made == ["kopub", "cpu for layout_regions", "tesseract for ocr_results"]
    whole = root.find(f".//{ALTO}Page")
    assert whole.get("QUALITY_DETAIL") == "partial: 1 of 8 regions failed; 3 numbers differ"
    assert whole.get("PC") == "0.700"
    lost = etree.parse(str(out / "보고서.alto" / "2.xml")).getroot().find(f".//{ALTO}Page")
    assert lost.get("QUALITY_DETAIL") == "quarantined: the file is damaged"


def test_page_xml_says_the_same_with_the_cells_of_tables(out: Path) -> None:
    root = etree.parse(str(out / "보고서.page" / "1.xml")).getroot()
    regions = {region.get("id"): region for region in root.iter() if region.tag.endswith("Region")}
    assert {name: regions[name].get("type") for name in ("r0", "r1", "r8")} == {
        "r0": "heading",
        "r1": "paragraph",
        "r8": "page-number",
    }
    assert regions["r5"].get("comments") == "could not be read: no answer"
    assert regions["r1"].find(f"{PAGE}TextEquiv/{PAGE}Unicode").text == "첫 줄은 여기까지이고\n둘째 줄"
    assert [line.get("custom") for line in regions["r1"].iter(f"{PAGE}TextLine")] == ["place {estimated:true;}"] * 2
    table = regions["r2_1"]
    assert (table.tag, table.get("rows"), table.get("columns")) == (f"{PAGE}TableRegion", "2", "2")
    cells = [
        (role.get("rowIndex"), role.get("columnIndex"), role.get("colSpan"), cell.findtext(f".//{PAGE}Unicode"))
        for cell in table.iter(f"{PAGE}TextRegion")
        for role in cell.iter(f"{PAGE}TableCellRole")
    ]
    assert cells == [("0", "0", "2", "구분"), ("1", "0", "1", "△48,163"), ("1", "1", "1", "첫째\n둘째")]
    assert regions["r0"].find(f"{PAGE}Coords").attrib == {"points": "100,100 900,100 900,200 100,200", "conf": "1.000"}
    assert root.findtext(f".//{PAGE}Creator") == "kopub " + made_version(root)
    assert root.find(f"{PAGE}Page").get("conf") == "0.700"
    order = [reference.get("regionRef") for reference in root.iter(f"{PAGE}RegionRefIndexed")]
    assert order == [region.get("id") for region in root.find(f"{PAGE}Page") if region.tag.endswith("Region")]


def made_version(root: etree._Element) -> str:
    made = [item.get("value") for item in root.iter(f"{PAGE}MetadataItem")]
    assert [maker.rpartition(" ")[0] for maker in made] == [
        "kopub",
        "cpu for layout_regions",
        "tesseract for ocr_results",
    ]
    return "; ".join(made).removeprefix("kopub ")


PROPERTIES = re.compile(
    r"""(?:(?:bbox|image|ppageno|x_[a-z0-9]+)(?:\ +(?:[!-:<-~]+|"[ !#-~]+"))+)(?:\ *;\ *|$)""", re.VERBOSE
)
"""A property by the grammar of hOCR 1.2."""


def test_hocr_follows_its_grammar_for_xml_and_html_parsers(out: Path) -> None:
    text = (out / "보고서.hocr").read_text("utf-8")
    page = BeautifulSoup(text, "lxml")
    meta = {tag["name"]: tag["content"] for tag in page.find_all("meta") if tag.get("name")}
    able = str(meta["ocr-capabilities"]).split()
    assert str(meta["ocr-system"]).endswith("; cpu for layout_regions 6; tesseract for ocr_results 6")
    assert (meta["ocr-number-of-pages"], meta["ocr-langs"]) == ("2", "ko")
    marked = page.select("[class]")
    assert {tag["class"][0] for tag in marked} <= set(able)
    assert all(PROPERTIES.sub("", str(tag["title"])) == "" for tag in marked)
    ids = [tag["id"] for tag in page.select("[id]")]
    assert len(ids) == len(set(ids)) == 13
    for tag in page.select(".ocr_page .ocr_line, .ocr_page .ocrx_line"):
        inner, outer = box_of(tag.attrs), box_of(tag.parent.attrs if tag.parent else {})
        assert outer[0] <= inner[0] < inner[2] <= outer[2]
        assert outer[1] <= inner[1] < inner[3] <= outer[3]
    # An XML parser sees the same elements.
    tree = etree.fromstring(text.encode())
    assert len(tree.xpath("//*[@class]")) == len(marked)


def box_of(attributes: Mapping[str, object]) -> list[int]:
    return [int(edge) for edge in str(attributes["title"]).partition(";")[0].split()[1:5]]


def test_hocr_says_what_was_read_in_reading_order(out: Path) -> None:
    page = BeautifulSoup((out / "보고서.hocr").read_text("utf-8"), "lxml").select_one("#page_1")
    assert page is not None
    parts = page.find_all(recursive=False)
    assert [part["class"][0] for part in parts] == [
        *("ocr_title", "ocr_carea", "ocr_carea", "ocr_table", "ocr_carea", "ocr_carea"),
        *("ocr_image", "ocr_carea", "ocr_carea", "ocr_carea", "ocr_pageno"),
    ]
    assert [span.get_text() for span in parts[1].select(".ocrx_line")] == ["첫 줄은 여기까지이고", "둘째 줄"]
    assert [span.get_text() for span in parts[0].select(".ocr_line")] == ["예산 & <결산>"]
    assert [[cell.get_text() for cell in row.find_all(["td", "th"])] for row in parts[3].find_all("tr")] == [
        ["구분"],
        ["△48,163", "첫째\n둘째"],
    ]
    assert parts[7]["data-remark"] == "could not be read: no answer"
    assert page["data-state"] == "partial: 1 of 8 regions failed; 3 numbers differ"
    assert "; x_textconf 0.700" in str(page["title"])


def test_files_of_pages_that_are_gone_are_removed_and_others_are_left_alone(tmp_path: Path) -> None:
    write_documents(Read(s=PAGES), ["s"], tmp_path, FORMATS)
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.*") if path.is_file()}
    write_documents(Read(s=PAGES), ["s"], tmp_path, FORMATS)
    assert all(path.stat().st_mtime_ns == times[path] for path in times if path.suffix in (".xml", ".hocr"))
    write_documents(Read(s=PAGES[:1]), ["s"], tmp_path, FORMATS)
    assert sorted(path.name for path in tmp_path.glob("*.alto/*")) == ["1.xml"]
    write_documents(Read(s=[PageRow("b_1", "b.pdf", 1)]), ["s"], tmp_path, FORMATS)
    assert {path.name for path in tmp_path.iterdir() if "json" not in path.name} == {"b.alto", "b.page", "b.hocr"}
