"""The first five minutes with one's own files: the commands, then the reading room."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kopub.config.settings import ROOT
from tests.cli.test_cli import environment_of, run_anew
from tests.support.sources.own_files import write_own_files
from tests.support.visits import ENGLISH, KOREAN, Visit, browsed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.services, pytest.mark.slow, pytest.mark.browser]

QUESTION = "하드웨어 아키텍처"


@dataclass(frozen=True)
class FiveMinutes:
    """The output of the commands, and the address of the room."""

    run: str
    status: str
    url: str


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FiveMinutes]:
    """Run `kopub run FOLDER`, `kopub status` and `kopub browse` in a new home (cpu profile)."""
    folder = tmp_path_factory.mktemp("five_minutes")
    home, files = folder / "home", write_own_files(folder / "my_files")
    # Dagster's home as `make setup` leaves it.
    (home / "dagster").mkdir(parents=True)
    (home / "dagster" / "dagster.yaml").symlink_to(ROOT / "deploy" / "local" / "dagster.yaml")
    said: list[str] = []
    for status, command in ((3, ("run", str(files))), (0, ("status",))):
        ran = run_anew(home, "kopub", *command)
        assert (ran.returncode, ran.stderr) == (status, "")
        said.append(ran.stdout)
    with browsed(environment_of(home)) as url:
        yield FiveMinutes(said[0], said[1], url)


def test_make_demo_types_the_same_commands():
    """Without a folder, `kopub run` of `make demo` indexes the samples."""
    recipe = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert recipe.stdout.splitlines()[-2:] == [".venv/bin/kopub run", ".venv/bin/kopub status"]


def test_the_commands_tell_what_became_of_every_file(here: FiveMinutes):
    told = here.run.splitlines()
    assert told[0] == "6 documents, 8 pages"
    assert "will be quarantined: broken.pdf: the file is damaged or no PDF" in told
    assert any(line.startswith("8 pages in 1 shard by the profile cpu: about ") for line in told)
    assert any(line.startswith("ocr_results: 7 of 8 rows made, 1 quarantined") for line in told)
    assert "8 pages: 6 ok, 1 blank, 1 quarantined; 3 need review" in told
    assert told[-1].startswith("next: kopub browse")
    assert "broken.pdf quarantined in raw_pages, shard_00: the file is damaged or no PDF" in here.status


def test_a_visit_by_mouse_in_korean(browser: "Browser", here: FiveMinutes, tmp_path: Path):
    visit = Visit(browser, here.url, tmp_path, viewport={"width": 1280, "height": 800}, locale=KOREAN)
    page = visit.page
    visit.open("/")
    assert visit.text("h1") == "my_files"
    assert page.locator(".tile b").all_inner_texts() == ["6", "8", "3", "0", "0", "1"]
    assert page.get_by_text("figure_notes").count() == 0, "an asset that is off lacks nothing"
    visit.picture("home")

    page.get_by_role("link", name="설치 안내.pdf").click()
    visit.picture("document")
    page.get_by_role("link", name="1쪽").click()
    assert visit.text("h1") == "설치 안내.pdf, 1쪽"
    page.get_by_role("button", name="확대").click()
    assert visit.text("output") == "150%"
    visit.picture("zoomed")

    page.get_by_role("searchbox").fill(QUESTION)
    page.get_by_role("button", name="검색").click()
    assert page.locator("mark").first.inner_text() in QUESTION
    visit.picture("hits")
    page.locator(".hits h2 a").first.click()
    assert visit.text("h1") == "설치 안내.pdf, 1쪽"
    visit.picture("hit")

    page.get_by_role("link", name="확인할 쪽", exact=True).click()
    page.get_by_role("link", name="하나씩 차례로 보기").click()
    seen = {visit.text("h1")}
    assert "3개 가운데 1번째" in visit.text(".walk")
    for _ in range(2):
        page.locator(".walk [rel=next]").click()
        seen.add(visit.text("h1"))
    assert seen == {f"사진/IMG_000{number}.JPG, 1쪽" for number in (1, 2, 3)}
    visit.picture("doubtful")
    visit.open("/pages?kind=quarantined")
    page.locator(".card").click()
    assert "파일이 손상되었거나 PDF가 아닙니다" in visit.text(".note")
    visit.picture("broken")
    visit.close(here.url)


def test_the_same_by_keyboard_in_english(browser: "Browser", here: FiveMinutes, tmp_path: Path):
    visit = Visit(browser, here.url, tmp_path, viewport={"width": 390, "height": 844}, locale=ENGLISH)
    keys = visit.page.keyboard
    visit.open("/")
    visit.picture("narrow-home")
    visit.follow("설치 안내.pdf")
    visit.follow("Page 1")
    assert visit.text("h1") == "설치 안내.pdf, page 1"
    visit.tab_to("The picture")
    keys.press("+")
    assert visit.text("output") == "150%"
    visit.picture("narrow-zoomed")

    visit.open("/")
    visit.tab_to("Question")
    # There is no input method here, so the text is inserted as one would commit it.
    keys.insert_text(QUESTION)
    with visit.page.expect_navigation():
        keys.press("Enter")
    visit.picture("narrow-hits")
    visit.follow("설치 안내.pdf, page 1")
    assert visit.page.locator("mark").count()
    visit.picture("narrow-hit")

    visit.follow("Needs review")
    visit.follow("Go through them one by one")
    seen = {visit.text("h1")}
    assert "1 of 3" in visit.text(".walk")
    for number in (2, 3):
        with visit.page.expect_navigation():
            keys.press("ArrowRight")
        assert f"{number} of 3" in visit.text(".walk")
        seen.add(visit.text("h1"))
    assert seen == {f"사진/IMG_000{number}.JPG, page 1" for number in (1, 2, 3)}
    visit.picture("narrow-doubtful")
    visit.follow("Back to the list")
    visit.follow("Quarantined")
    visit.follow("No picture")  # A card begins with the placeholder of its picture.
    assert visit.text("h1") == "broken.pdf"
    assert visit.text(".note") == "broken.pdf: the file is damaged or no PDF"
    visit.picture("narrow-broken")
    visit.close(here.url)
