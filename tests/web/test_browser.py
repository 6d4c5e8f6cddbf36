"""Visits with a real browser, by mouse and by keyboard."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from kopub.config.settings import load_settings
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.regions import PageReading, RegionText, page_reading
from kopub.recognition.tesseract.recognizer import TesseractRecognizer
from kopub.states import State
from tests.support.harness import Platform
from tests.support.sample_home import sample
from tests.support.sources.corpora import query
from tests.support.visits import ENGLISH, KOREAN, Visit, browsed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

QUESTION = "하드웨어 아키텍처는 몇 개나 지원하나요?"
MADE = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "corpus_text_embeddings", "query_embeddings")


class PartlyBlind(TesseractRecognizer):
    """Tesseract that fails at the regions `fail` of every page."""

    speed_only: ClassVar[frozenset[str]] = frozenset({"threads", "fail"})
    fail: list[int]

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        hidden: dict[str, list[RegionText]] = {}

        def seen() -> Iterator[tuple[Page, Sequence[Region]]]:
            for page, regions in pages:
                hidden[page.page_id] = [
                    RegionText(region.index, region.label, "", State.FAILED, "it repeats itself", "length", 2)
                    for region in regions
                    if region.index in self.fail
                ]
                yield page, [region for region in regions if region.index not in self.fail]

        for reading in super().read(seen()):
            texts = sorted([*reading.regions, *hidden[reading.page_id]], key=lambda text: text.index)
            yield page_reading(reading.page_id, texts, reading.crops)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a room over two partly read sample pages and an undecodable file."""
    settings, home = load_settings(), tmp_path_factory.mktemp("visit")
    names = ("install.ko_19", "gimp-layermodes_4")
    broken = ("install.ko_20", b"no picture")
    platform = Platform.of(home, [[*map(sample, names), broken]], [query("q1", QUESTION, names[0])])
    platform.engines = {
        "layout": settings.layout,
        "recognition": PartlyBlind(fail=[3]),
        "embedding": settings.embedding,
    }
    platform.make(*MADE)
    with browsed({"PATH": os.environ["PATH"], "KOPUB_HOME": str(home)}) as url:
        yield url


def test_a_visit_by_mouse_in_korean(browser: "Browser", url: str, tmp_path: Path):
    visit = Visit(browser, url, tmp_path, viewport={"width": 1280, "height": 800}, locale=KOREAN)
    page = visit.page
    visit.open("/")
    assert page.locator("html").get_attribute("lang") == "ko"
    visit.picture("home")
    page.get_by_role("link", name="install.ko").first.click()
    visit.picture("document")
    page.get_by_role("link", name="19쪽").click()
    assert visit.text("h1") == "install.ko, 19쪽"
    visit.picture("page")

    region = page.locator(".regions > li").nth(4)
    region.hover()
    assert page.locator(".box.lit").get_attribute("data-region") == "4"
    page.locator(".words text[data-region='1']").click()
    assert page.evaluate("document.activeElement.closest('li').dataset.region") == "1"
    assert "lit" in (page.locator("#text-1").get_attribute("class") or "")

    before = page.locator(".sheet img").bounding_box()
    page.get_by_role("button", name="확대").click()
    page.get_by_role("button", name="확대").click()
    after = page.locator(".sheet img").bounding_box()
    assert before
    assert after
    assert after["width"] == pytest.approx(2 * before["width"], rel=0.05)
    assert visit.text("output") == "200%"
    visit.picture("zoomed")
    page.get_by_role("link", name="마크다운").click()
    assert page.locator(".rendered table td").first.is_visible()
    visit.picture("markdown")
    page.get_by_role("link", name="처리 과정").click()
    assert page.get_by_text("ocr_results").first.is_visible()

    page.get_by_role("searchbox").fill(QUESTION)
    page.get_by_role("button", name="검색").click()
    visit.picture("hits")
    assert page.locator("mark").count()
    page.locator(".hits h2 a").first.click()
    assert visit.text("h1") == "install.ko, 19쪽"
    visit.picture("hit")
    page.get_by_role("link", name="검색 결과로").click()
    assert page.locator(".hits").is_visible()
    visit.close(url)


def test_a_document_is_read_as_one_text_and_taken_away(browser: "Browser", url: str, tmp_path: Path):
    visit = Visit(browser, url, tmp_path, viewport={"width": 1280, "height": 800}, locale=KOREAN)
    page = visit.page
    visit.open("/document?id=install.ko")
    page.get_by_role("link", name="본문", exact=True).click()
    assert page.locator(".rendered.text table td").first.is_visible()
    visit.picture("document-text")
    page.get_by_role("link", name="19쪽").click()
    assert visit.text("h1") == "install.ko, 19쪽"
    page.get_by_role("link", name="문서 본문에서 이 쪽 보기").click()
    assert page.locator(".leaf:target").inner_text().startswith("19쪽")
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="내려받기 .md").click()
    assert downloaded.value.suggested_filename == "install.ko.md"
    visit.close(url)


def test_a_visit_by_keyboard_in_english_through_the_pages_to_look_at(browser: "Browser", url: str, tmp_path: Path):
    visit = Visit(browser, url, tmp_path, viewport={"width": 390, "height": 844}, locale=ENGLISH, color_scheme="dark")
    page, keys = visit.page, visit.page.keyboard
    visit.open("/")
    keys.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    keys.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    visit.picture("narrow-home")

    page.get_by_role("link", name="Needs review", exact=True).focus()
    keys.press("Enter")
    page.locator(".tabs").get_by_role("link", name="Partly read").focus()
    keys.press("Enter")
    visit.picture("narrow-list")
    page.get_by_role("link", name="Go through them one by one").focus()
    keys.press("Enter")
    first = visit.text("h1")
    assert "1 of 2" in visit.text(".walk")
    visit.picture("narrow-walk")
    with page.expect_navigation():
        keys.press("ArrowRight")
    assert visit.text("h1") != first
    assert "2 of 2" in visit.text(".walk")
    with page.expect_navigation():
        keys.press("ArrowLeft")
    assert visit.text("h1") == first

    page.locator(".regions .tag a").first.focus()
    keys.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('li').dataset.region") == "1"
    assert page.locator(".box.lit").get_attribute("data-region") == "1"
    page.locator(".pan").focus()
    keys.press("+")
    assert visit.text("output") == "150%"
    keys.press("0")
    assert visit.text("output") == "100%"
    keys.press("-")
    assert visit.text("output") == "75%"
    keys.press("0")

    page.get_by_role("searchbox").focus()
    keys.type("architecture")
    keys.press("Enter")
    visit.picture("narrow-hits")
    visit.open("/pages?kind=quarantined")
    page.locator(".card").first.focus()
    keys.press("Enter")
    assert "No picture" in page.locator(".viewer").inner_text()
    visit.picture("narrow-quarantined")
    visit.close(url)


def test_keys_and_links_work_from_nowhere_in_particular(browser: "Browser", url: str, tmp_path: Path):
    visit = Visit(browser, url, tmp_path, viewport={"width": 1400, "height": 800}, locale=ENGLISH)
    page, keys = visit.page, visit.page.keyboard
    visit.open("/page?id=install.ko_19#text-4")
    assert page.locator(".box.lit").get_attribute("data-region") == "4"
    page.locator(".regions > li").nth(1).hover()
    page.mouse.move(5, 400)
    assert page.locator(".box.lit").get_attribute("data-region") == "4"
    keys.press("+")
    assert visit.text("output") == "150%"
    keys.press("-")
    assert visit.text("output") == "100%"
    visit.open("/page?id=install.ko_19")
    first = visit.text("h1")
    key = page.locator("a[data-key='['], a[data-key=']']").first.get_attribute("data-key") or ""
    with page.expect_navigation():
        keys.press(key)
    assert visit.text("h1") != first
    keys.press("g")
    assert page.evaluate("document.activeElement.name") == ("number" if page.locator(".jump").count() else None)
    visit.open("/page?id=install.ko_19")
    keys.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('li').dataset.region") == "0"
    keys.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('li').dataset.region") == "1"
    page.get_by_role("searchbox").focus()
    keys.type("1+1")
    assert visit.text("output") == "100%"

    page.get_by_role("link", name="Markdown").click()
    assert page.evaluate("scrollY") == 0
    page.get_by_role("button", name="Copy").click()
    visit.picture("copied")
    visit.close(url)


_SELECTED = "String(getSelection()).replace(/\\s+/g, ' ').trim()"


def test_the_words_over_the_picture_are_selected(browser: "Browser", url: str, tmp_path: Path):
    visit = Visit(browser, url, tmp_path, viewport={"width": 1400, "height": 900}, locale=ENGLISH)
    page = visit.page
    visit.open("/page?id=install.ko_19")
    words = page.locator(".words text").filter(has_text="아키텍처").first
    said, region = words.text_content(), words.get_attribute("data-region")
    words.scroll_into_view_if_needed()
    box = words.bounding_box()
    assert said
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 1, middle)
    assert page.locator(".box.lit").get_attribute("data-region") == region
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 1, middle, steps=5)
    page.mouse.up()
    assert page.evaluate(_SELECTED) == said
    assert page.evaluate("document.activeElement.closest('.regions')") is None, "who selects goes nowhere"
    visit.picture("selected")
    page.mouse.dblclick(box["x"] + box["width"] / 2, middle)
    assert 0 < len(page.evaluate(_SELECTED)) < len(said)
    assert visit.text("output") == "100%"

    page.get_by_role("button", name="Select text").click()
    assert not words.is_visible()
    page.mouse.click(box["x"] + box["width"] / 2, middle)
    assert page.evaluate("document.activeElement.closest('li').dataset.region") == region
    visit.close(url)


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_cut_at_the_side(browser: "Browser", url: str, tmp_path: Path, width: int):
    visit = Visit(browser, url, tmp_path, viewport={"width": width, "height": 844}, locale=KOREAN)
    for path in ("/evaluation", "/page?id=install.ko_19", "/page?id=install.ko_19&view=history", "/search?q=아키텍처"):
        visit.open(path)
        assert visit.page.evaluate(_SIDEWAYS) == [], path
    visit.close(url)


_SIDEWAYS = """() => [document.documentElement, ...document.querySelectorAll("table.scores, .tabs, .turn")]
  .map((node) => node.closest(".scroll") ?? node)
  .filter((node) => node.scrollWidth > node.clientWidth + 1).map((node) => node.className)"""


def test_everything_can_be_reached_without_scripts(browser: "Browser", url: str, tmp_path: Path):
    visit = Visit(browser, url, tmp_path, java_script_enabled=False, locale=ENGLISH)
    visit.open("/")
    visit.page.get_by_role("link", name="install.ko").first.click()
    visit.page.get_by_role("link", name="Page 19").click()
    assert visit.page.locator(".regions > li").count() > 5
    assert not visit.page.locator(".tools").is_visible()
    visit.page.locator(".regions .tag a").nth(2).click()
    assert visit.page.url.endswith("#box-2")
    visit.close(url)


def test_language_and_colours_are_switched_without_scripts_and_stay(browser: "Browser", url: str, tmp_path: Path):
    visit = Visit(browser, url, tmp_path, java_script_enabled=False, locale=ENGLISH, color_scheme="dark")
    page = visit.page

    def shade() -> str:
        # This is the browser's own tool, so it works although scripts of the page are off.
        return page.locator("body").evaluate("(body) => getComputedStyle(body).backgroundColor")

    visit.open("/page?id=install.ko_19")
    dark = shade()
    page.get_by_role("button", name="Light").click()
    light = shade()
    assert light != dark
    page.get_by_role("button", name="한국어").click()
    assert page.url == f"{url}/page?id=install.ko_19"
    assert visit.text("h1") == "install.ko, 19쪽"
    visit.picture("switched")
    visit.open("/documents")
    assert (shade(), page.locator("html").get_attribute("lang")) == (light, "ko")
    page.get_by_role("button", name="시스템 설정").click()
    assert shade() == dark
    visit.close(url)


def test_a_file_that_is_dropped_on_the_first_page_is_read_and_shown(browser: "Browser", url: str, tmp_path: Path):
    visit = Visit(browser, url, tmp_path, locale=ENGLISH)
    page = visit.page
    visit.open("/")
    visit.picture("drop")
    page.evaluate(_DROP, list(sample("gimp-layermodes_4")[1]))
    page.wait_for_url("**/read/result/page?**", timeout=120_000)
    assert "mine" in visit.text("h1")
    assert page.locator(".sheet img").evaluate("(image) => image.decode().then(() => image.naturalWidth)") > 0
    assert page.locator(".regions > li").count() > 2
    visit.picture("dropped")
    page.get_by_role("link", name="Back to the corpus").click()
    assert page.url == f"{url}/"
    visit.close(url)


_DROP = """(bytes) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([new Uint8Array(bytes)], "mine.png", { type: "image/png" }));
  const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
  document.querySelector("main").dispatchEvent(drop);
}"""
