"""Make the documentation's pictures from the samples: `python -m tools.docs_pictures [NAME...]`.

It needs playwright and Chromium or Chrome. Without names, every picture of `PICTURES` is made.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from kopub.config.settings import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = ROOT / "docs"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_START_SECONDS = 90
_SETTLE_MILLISECONDS = 2500
"""Wait after the last request, while the graph is laid out and drawn."""


@dataclass(frozen=True)
class Picture:
    """A picture of a server's page, a file of `docs/`.

    `clicked` are the texts to click, in order; `part` is a CSS selector of the part to show, as far as it fits the
    window of `window` pixels.
    """

    name: str
    server: str
    path: str
    window: tuple[int, int]
    clicked: tuple[str, ...] = ()
    part: str = "body"


_SHARD = "/assets/layout_regions?view=partitions&partition=shard_00"
_HIT = "/page?id=lshort-ko_20&q=한글로 쓴 가장 짧은 LaTeX 문서는 어떻게 생겼나요?"
PICTURES = (
    Picture("asset_graph", "dagster", "/asset-groups", (1900, 900)),
    Picture("layout_preview", "dagster", _SHARD, (1000, 950), ("Show markdown",), "[role=dialog]"),
    Picture("reading_room", "room", _HIT, (1180, 820)),
    Picture("diff_page", "diff", "", (1000, 1100), (), "#page-0"),
)

SERVERS = {
    "dagster": ("dagster-webserver", "--module-name", "definitions", "--host", "127.0.0.1", "--port"),
    "room": ("kopub", "browse", "--port"),
}
"""The command of each server, to which a port is added."""
_UPGRADE = {"KOPUB_RECOGNITION__LANGUAGES": '["eng"]'}
"""The upgrade that `diff` compares with, which lost its Korean."""


def find_browser() -> str:
    """Return the path of Chromium or Chrome. Exits with one line if there is none."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        sys.exit(f"no browser was found: install one of {', '.join(BROWSERS)}")
    return found


def make_demo(folder: Path) -> dict[str, str]:
    """Make all tables of the samples in `folder`; return the environment of that home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KOPUB_", "DAGSTER_"))}
    home, history = folder / "home", folder / "dagster"
    history.mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "local" / "dagster.yaml", history)
    path = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", "")))
    environment = kept | {"KOPUB_HOME": str(home), "DAGSTER_HOME": str(history), "PATH": path}
    subprocess.run(["kopub", "run"], check=True, cwd=ROOT, env=environment)
    return environment


@contextmanager
def opened(server: str, environment: dict[str, str], folder: Path) -> Iterator[str]:
    """Yield the URL of a server of `SERVERS`, or of `kopub diff`'s file in `folder`."""
    if server in SERVERS:
        with serve(SERVERS[server], environment) as url:
            yield url
        return
    upgrade, file = ["kopub", "run", "--asset", "ocr_results", "--shards", "shard_00"], folder / "diff.html"
    subprocess.run(upgrade, check=True, cwd=ROOT, env=environment | _UPGRADE)
    subprocess.run(["kopub", "diff", "shard_00", "--html", str(file)], check=True, cwd=ROOT, env=environment | _UPGRADE)
    yield file.as_uri()


@contextmanager
def serve(command: tuple[str, ...], environment: dict[str, str]) -> Iterator[str]:
    """Yield the URL of a server that runs until the block ends.

    Exits with one line if it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen([*command, str(port)], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not _answers(url):
                if server.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{' '.join(command)} {port} does not answer")
                time.sleep(0.3)
            yield url
        finally:
            server.terminate()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False


def take(browser: "Browser", url: str, picture: Picture, folder: Path) -> Path:
    """Save `picture` of the server at `url` as a PNG in `folder`; return its path."""
    width, height = picture.window
    page = browser.new_page(viewport={"width": width, "height": height}, locale="en-GB")
    answer = page.goto(url + picture.path)
    if answer is not None and answer.status >= 400:
        sys.exit(f"{url}{picture.path} answers {answer.status}: {picture.name} was not made")
    page.wait_for_load_state("networkidle")
    for text in picture.clicked:
        page.get_by_text(re.compile(re.escape(text), re.IGNORECASE)).first.click()
        page.wait_for_load_state("networkidle")
    page.wait_for_timeout(_SETTLE_MILLISECONDS)
    part = page.locator(picture.part).first
    part.evaluate("each => each.scrollIntoView()")
    box = part.bounding_box() or {"x": 0, "y": 0, "width": width, "height": height}
    left, top = max(box["x"], 0), max(box["y"], 0)
    right, bottom = min(box["x"] + box["width"], width), min(box["y"] + box["height"], height)
    path = folder / f"{picture.name}.png"
    page.screenshot(path=path, clip={"x": left, "y": top, "width": right - left, "height": bottom - top})
    page.close()
    # A browser's page has few colours, so a palette halves the bytes.
    with Image.open(path) as shot:
        few = shot.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(each.name for each in PICTURES))
    parser.add_argument("--to", type=Path, default=DOCS, help="The folder that they are written into.")
    chosen = parser.parse_args()
    if unknown := set(chosen.names) - {each.name for each in PICTURES}:
        parser.error(f"there is no picture {', '.join(sorted(unknown))}")
    pictures = [each for each in PICTURES if not chosen.names or each.name in chosen.names]

    # It is not needed to list the pictures.
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    executable = find_browser()
    # Chromium refuses to sandbox itself as root, for instance in a container.
    sandbox = [] if os.getuid() else ["--no-sandbox"]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        environment = make_demo(Path(folder))
        browser = playwright.chromium.launch(executable_path=executable, args=sandbox)
        for server in dict.fromkeys(each.server for each in pictures):
            with opened(server, environment, Path(folder)) as url:
                for picture in pictures:
                    if picture.server == server:
                        print(take(browser, url, picture, chosen.to))
        browser.close()


if __name__ == "__main__":
    main()
