"""axe-core finds nothing in any view of the reading room, light and dark."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from kopub.embedding.hashed import HashedEmbedder
from kopub.evaluation.benchmark import Benchmark, PageText, Sample
from kopub.evaluation.home import KnownAnswers, write_gold
from tests.support.harness import Platform
from tests.support.installed import imported
from tests.support.sources.corpora import page_image, pages, query
from tests.support.visits import ENGLISH, KOREAN, Visit, browsed
from tests.web.test_room import MADE, Scribe, ThreeBoxes

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]

UNLINKED = (
    "/search?q=%20",
    "/search?q=nothing+like+it",
    "/search?q=글&mode=bm25",
    "/page?id=a_1&q=글",
    "/page?id=a_2&walk=partial",
    "/page?id=b_2",
    "/documents?name=nobody",
    "/page?id=nobody",
    "/nowhere",
)
"""Addresses that no link leads to, or whose kind another address already covers."""
FILES = ("/picture", "/figure", "/markdown", "/json", "/pdf", "/xlsx", "/csv")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve a room with something in every view: states, questions, scores, versions and figures."""
    home = tmp_path_factory.mktemp("accessible")
    shards = [pages("a_1", "a_2", "a_3"), [*pages("b_1"), ("b_2", b"no picture"), ("b_3", page_image(9))]]
    platform = Platform.of(home, shards, [query("q1", "무엇을 찾나요?", "a_1")])
    garbled = "좋은 글 " + "�" * 40 + " 나쁜 글"
    for text in (garbled.replace("좋은", "고운"), garbled):
        platform.engines = {
            "layout": ThreeBoxes(lost="a_3"),
            "recognition": Scribe(text=text, partly="a_2"),
            "embedding": HashedEmbedder(),
        }
        platform.make(*MADE, "query_embeddings")
    gold = Benchmark("texts", "1", "", "", [Sample("a_1", "a", None, {}, PageText("좋은 글"))])
    write_gold(home / "gold.parquet", [KnownAnswers(gold, 1)])
    for scores in ("ocr_scores", "retrieval_scores"):
        assert platform.run(scores, first=None).success
    with browsed({"PATH": os.environ["PATH"], "KOPUB_HOME": str(home)}, "--edit", "--author", "Kim") as url:
        yield url


@pytest.mark.parametrize(("scheme", "locale", "width"), [("light", ENGLISH, 1280), ("dark", KOREAN, 390)])
def test_axe_finds_nothing_in_any_view(
    browser: "Browser", url: str, tmp_path: Path, scheme: str, locale: str, width: int
):
    axe = imported("axe_playwright_python.sync_playwright").Axe()
    window = {"viewport": {"width": width, "height": 844}, "locale": locale, "color_scheme": scheme}
    visit = Visit(browser, url, tmp_path, **window)
    page, seen, found = visit.page, set[tuple[str, str, str]](), dict[str, str]()

    def look(address: str) -> None:
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        results = axe.run(page, options={"rules": {"target-size": {"enabled": True}}})
        if results.violations_count:
            found[address] = results.generate_report()

    to_see = ["/", *UNLINKED]
    while to_see:
        address = to_see.pop(0)
        if (kind := _kind(address)) in seen:
            continue
        seen.add(kind)
        page.goto(address)
        look(address)
        links = page.locator("a:not(svg a)").evaluate_all("(all) => all.map((a) => a.href)")
        inside = [link.removeprefix(url) for link in links if link.startswith(f"{url}/")]
        to_see += [link for link in inside if _kind(link)[0] not in FILES]
    page.goto("/page?id=b_1&view=edit")
    page.locator("#author-checked").fill(" ")
    with page.expect_navigation():
        page.locator("#author-checked").press("Enter")
    assert page.locator("[role=alert]").count() == 1
    look("a form that was refused")
    # The browser logs the expected 4xx answers too.
    visit.said = [said for said in visit.said if "Failed to load resource" not in said]
    visit.close(url)
    assert not found, "\n".join(f"{address}: {report}" for address, report in found.items())
    assert {"markdown", "history", "answer", "versions", "edit"} <= {kind[1] for kind in seen}
    paths = {"/documents", "/document", "/pages", "/figures", "/search", "/evaluation", "/versions"}
    assert paths <= {kind[0] for kind in seen}


def _kind(address: str) -> tuple[str, str, str]:
    """Return the kind of an address; the test looks at one of each kind."""
    parts = urlsplit(address)
    asked = parse_qs(parts.query)
    path = address if address in UNLINKED else parts.path
    return path, asked.get("view", [""])[0], asked.get("kind", [""])[0]
