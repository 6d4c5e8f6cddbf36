"""Visits of the reading room with a real browser, which record messages and requests."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kopub.config.settings import ROOT
from tests.support.installed import NO_CHROMIUM, imported

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

KOREAN, ENGLISH = "ko-KR", "en-GB"


@contextmanager
def chromium(*options: str) -> Iterator["Browser"]:
    """Yield the system's Chromium, started with `options`, or skip the test where there is none."""
    sync = imported("playwright.sync_api")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip(NO_CHROMIUM)
    with sync.sync_playwright() as playwright:
        # Chromium refuses to sandbox itself for root, as in a container.
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        browser = playwright.chromium.launch(executable_path=program, args=[*sandbox, *options])
        yield browser
        browser.close()


@contextmanager
def browsed(environment: Mapping[str, str], *options: str) -> Iterator[str]:
    """Run `kopub browse` with `options`, and yield the address that it prints."""
    command = [sys.executable, "-c", "from kopub.cli.main import main; main()", "browse", "--port", "0", *options]
    unbuffered = {**environment, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=unbuffered, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        yield server.stdout.readline().split()[0]
        server.terminate()


class Visit:
    """A browser window; `said` holds its console messages and errors, `asked` the URLs it requested."""

    def __init__(self, browser: "Browser", url: str, pictures: Path, **window: Any) -> None:
        self._context = browser.new_context(base_url=url, **window)
        self.page: Page = self._context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self._pictures = pictures
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self._context.on("request", lambda request: self.asked.append(request.url))

    def open(self, path: str) -> None:
        self.page.goto(path)
        self.page.wait_for_load_state("networkidle")

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def tab_to(self, name: str) -> None:
        """Press Tab until the text or label of the focused element begins with `name`."""
        for _ in range(_MOST_TABS):
            self.page.keyboard.press("Tab")
            if self.page.evaluate(_FOCUSED).startswith(name):
                return
        raise AssertionError(f"no Tab leads to {name}")

    def follow(self, name: str) -> None:
        """Follow the link whose text or label begins with `name`, by Tab and Enter."""
        self.tab_to(name)
        with self.page.expect_navigation():
            self.page.keyboard.press("Enter")

    def picture(self, name: str) -> None:
        """Assert that nothing is wider than the window; take a screenshot if `KOPUB_TEST_PICTURES` is set."""
        self.page.wait_for_load_state("networkidle")
        if os.environ.get("KOPUB_TEST_PICTURES"):
            self.page.screenshot(path=self._pictures / f"{name}.png", full_page=True)
        wide, window = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= window, f"{name} is {wide} pixels wide in a window of {window}"

    def close(self, url: str) -> None:
        """Assert what must hold at the end of every visit."""
        self._context.close()
        assert not self.said
        assert self.asked
        assert all(address.startswith(url) for address in self.asked), "a request outside of this machine"


_MOST_TABS = 60
_FOCUSED = """() => {
  const at = document.activeElement;
  return (at.getAttribute("aria-label") || at.labels?.[0]?.textContent || at.innerText || "").trim();
}"""
