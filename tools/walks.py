"""Trace the way of a page and of a question through the modules: `python -m tools.walks [--write]`.

Two commands run in this process on one small page, `kopub run` and `kopub search`, and each module is noted when one of
its functions is first called. The lists are part of docs/architecture.md; `--write` renews them there.
"""

import argparse
import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

from PIL import Image, ImageDraw

from kopub.cli.entry import main as run_command

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("kopub", "kopub_assets", "resources")
ASSETS = ("raw_pages", "layout_regions", "ocr_results", "parsed_texts", "passage_embeddings")
QUESTION = "expenses"
BEFORE = "the command"
_BEGIN, _END = "<!-- walks: written by python -m tools.walks --write -->", "<!-- end of walks -->"

Walk = dict[str, list[str]]
"""The modules by the step in which they were first at work, in that order."""


@contextmanager
def traced(walk: Walk) -> Iterator[None]:
    """Note the modules at work in this process until the context ends."""
    seen: set[CodeType] = set()
    known: set[str] = set()
    step = walk[BEFORE] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal step
        code = frame.f_code
        if event != "call" or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        if code.co_name == "began" and "asset" in frame.f_locals:
            step = walk.setdefault(frame.f_locals["asset"], [])
        elif code.co_qualname == "RunEnd.of":
            step = walk.setdefault("the end", [])
        if code in seen or (module := _module(code.co_filename)) is None or _is_importing(frame):
            return
        seen.add(code)
        if module not in known:
            known.add(module)
            step.append(module)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


@cache
def _module(file: str) -> str | None:
    """Return the module of a file of the product; None on the ground floor, which every room uses."""
    try:
        inside = Path(file).relative_to(ROOT)
    except ValueError:
        return None
    is_product = inside.parts[0] in PACKAGES and inside.name != "__init__.py"
    return None if not is_product or inside.parent == Path("kopub") else ".".join(inside.with_suffix("").parts)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _module(frame.f_code.co_filename) is not None:
            return True
        frame = frame.f_back
    return False


def command(*arguments: str) -> Walk:
    """Return the walk of a `kopub` command in this process."""
    walk: Walk = {}
    before, sys.argv = sys.argv, ["kopub", *arguments]
    try:
        with traced(walk):
            run_command()
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
    finally:
        sys.argv = before
    return walk


def walks(home: Path) -> dict[str, Walk]:
    """Return the walks by title, on one page that is drawn here."""
    draw_page(home / "source" / "page.png")
    os.environ |= {"KOPUB_HOME": str(home), "KOPUB_PROFILE": "cpu", "DAGSTER_HOME": str(home / "dagster")}
    named = [word for asset in ASSETS for word in ("--asset", asset)]
    page = command("run", str(home / "source"), *named)
    return {"A page, in `kopub run`": page, "A question, in `kopub search`": command("search", QUESTION)}


def draw_page(path: Path) -> None:
    """Write a page with two lines of text."""
    path.parent.mkdir(parents=True)
    page = Image.new("L", (900, 600), 255)
    for at, line in enumerate(("Budget of the year 2026", "Expenses fell by two percent.")):
        ImageDraw.Draw(page).text((80, 100 + 120 * at), line, fill=0, font_size=40)
    page.save(path)


def table(found: dict[str, Walk]) -> str:
    """Return the walks as markdown."""
    blocks = []
    for title, walk in found.items():
        rows = [f"| {step} | {', '.join(f'`{module}`' for module in modules)} |" for step, modules in walk.items()]
        blocks.append("\n".join([f"### {title}", "", "| in | modules that come in |", "|---|---|", *rows]))
    return "\n\n".join(blocks)


def modules_by_step(page: str) -> list[tuple[str, set[str]]]:
    """Return the modules of each step; threads come in at any time, so without order."""
    rows = [line.split("|") for line in page.partition(_BEGIN)[2].partition(_END)[0].splitlines() if "`" in line]
    return [(row[1], set(row[2].replace(",", "").split())) for row in rows if len(row) > 2]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    with tempfile.TemporaryDirectory(prefix="kopub-walks-") as home:
        now = table(walks(Path(home)))
    before, _, rest = PAGE.read_text("utf-8").partition(_BEGIN)
    text = f"{before}{_BEGIN}\n\n{now}\n\n{_END}{rest.partition(_END)[2]}"
    if write:
        PAGE.write_text(text, "utf-8")
    elif modules_by_step(text) != modules_by_step(PAGE.read_text("utf-8")):
        print("docs/architecture.md tells another way than the code goes: python -m tools.walks --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
