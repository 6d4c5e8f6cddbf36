"""Measure the cost of scoring a synthetic set like OmniDocBench, read with errors.

    python -m benchmarks.reading.evaluation [--pages N] [--cut SECONDS]

The set has the shape of OmniDocBench v1.5, as its demo and table of contents describe it: 1,355 pages, of which every
twentieth is a newspaper with ten times as many blocks, some 500 tables of up to 400 cells, and some 1,000 formulas. CPU
seconds are those of this process and of the one that compares tables; memory is the peak of each.
"""

import argparse
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.progress import track
from rich.table import Table

from kopub.boxes import Box
from kopub.evaluation.benchmark import MISSING, Element, ElementList, Sample, SampleReading
from kopub.evaluation.metrics import ALL, means
from kopub.evaluation.scoring import Scorer
from kopub.layout.regions import DEFAULT_TASKS
from kopub.states import State
from kopub.texts.regions import Region

PAGES = 1355
_SEED = 20_251_104
_SYLLABLES = "가나다라마바사아자차카타파하국어문서표그림 的是了在有和人这中大 abcdefghijklmnop 0123456789 ,."
_FORMULAS = (r"\frac{a_{i}}{b^{2}}", r"\sum_{i=1}^{n} x_{i}", r"\mathbf{A} \cdot \nabla \phi", r"\left( u, v \right)")
_LABELS = {"title": "paragraph_title", "text_block": "text", "table": "table", "equation_isolated": "display_formula"}
_LOST = 0.01
"""Share of the pages that could not be read."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=PAGES)
    parser.add_argument("--cut", type=float, default=60.0, help="longest time for the tables of one pair")
    arguments = parser.parse_args()
    console = Console()
    made = list(pages(arguments.pages))
    blocks = Counter(e.category for s, _ in made if isinstance(s.gold, ElementList) for e in s.gold.elements)
    before, started = cpu_seconds(), time.monotonic()
    scores = []
    with Scorer("omnidocbench", table_seconds=arguments.cut) as scorer:
        for scored in track(scorer.score_all(made), "scoring", total=len(made) + 1, console=console):
            scores.extend(scored)
    found = means([sample for sample, _ in made], scores)
    wall = time.monotonic() - started
    console.print(f"{len(made):,} pages: {', '.join(f'{count:,} {name}' for name, count in blocks.most_common())}")
    console.print(f"CPU: {cpu_seconds() - before:.0f} s, wall: {wall:.0f} s")
    mine, table_process = (resource.getrusage(who).ru_maxrss // 1024 for who in USAGES)
    console.print(f"most memory: {mine:,} MB here, {table_process:,} MB in the process that compares tables")
    table = Table("metric", "mean", "95 %", "samples", "lost", "skipped")
    for mean in found:
        if mean.slice == ALL:
            interval = f"{mean.low:.3f} to {mean.high:.3f}" if mean.low is not None else ""
            value = f"{mean.value:.4f}" if mean.value is not None else mean.skipped_reason
            table.add_row(mean.metric, value, interval, str(mean.samples), str(mean.lost), str(mean.skipped))
    console.print(table)


USAGES = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def cpu_seconds() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in USAGES)


def pages(count: int) -> Iterator[tuple[Sample, SampleReading]]:
    """Yield pages with gold and a reading, in which letters and blocks have errors.

    Letters are exchanged; blocks are lost, moved or reordered.
    """
    chance = random.Random(_SEED)
    for number in range(count):
        elements = list(page_elements(chance, newspaper=number % 20 == 0))
        gold = ElementList(tuple(elements), 1000, 1000)
        slices = {"language": chance.choice(("english", "chinese", "korean"))}
        sample = Sample(f"page_{number}", f"document_{number // 3}", None, slices, gold)
        yield sample, MISSING if chance.random() < _LOST else reading(chance, elements)


def page_elements(chance: random.Random, newspaper: bool) -> Iterator[Element]:
    kinds = ["title"] * 3 + ["text_block"] * (150 if newspaper else chance.randint(5, 25))
    kinds += ["table"] * (chance.random() < 0.3) + ["table"] * (chance.random() < 0.08)
    kinds += ["equation_isolated"] * (chance.randint(1, 8) if chance.random() < 0.17 else 0)
    chance.shuffle(kinds)
    height = 1 / len(kinds)
    for order, kind in enumerate(kinds):
        box = (0.1, order * height, 0.9, (order + 0.9) * height)
        yield Element(
            str(order),
            kind,
            box,
            order,
            text(chance, 15 if kind == "title" else chance.randint(30, 400)) if kind in ("title", "text_block") else "",
            table_html(chance) if kind == "table" else "",
            " = ".join(chance.choices(_FORMULAS, k=chance.randint(1, 6))) if kind == "equation_isolated" else "",
        )


def text(chance: random.Random, length: int) -> str:
    return "".join(chance.choices(_SYLLABLES, k=length))


def table_html(chance: random.Random) -> str:
    """Return a table of some 50 cells; every tenth has 400."""
    rows, columns = (40, 10) if chance.random() < 0.1 else (chance.randint(3, 15), chance.randint(2, 8))
    cells = [[text(chance, chance.randint(1, 12)).strip() for _ in range(columns)] for _ in range(rows)]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in cells)
    return f"<table><thead><tr><th colspan='{columns}'>{text(chance, 10)}</th></tr></thead>{body}</table>"


def reading(chance: random.Random, elements: list[Element]) -> SampleReading:
    regions = []
    for element in elements:
        if chance.random() < 0.03:
            continue
        content = damaged(chance, element.text or element.html or element.latex)
        box = Box(*(round(1000 * side + chance.uniform(-3, 3)) for side in element.bbox))
        label = _LABELS[element.category]
        pixels = Box(*map(float, box))
        regions.append(Region(0, label, DEFAULT_TASKS[label], 0.9, pixels, box, None, content, State.OK))
    if chance.random() < 0.2:
        at = chance.randrange(len(regions))
        regions.append(regions.pop(at))
    joined = "\n\n".join(region.content or "" for region in regions)
    return SampleReading(State.OK, None, joined, joined, regions)


def damaged(chance: random.Random, content: str) -> str:
    """Return the content with every fiftieth letter exchanged and every thirtieth cell lost."""
    if content.startswith("<table"):
        cells = content.split("<td>")
        content = "<td>".join(cell for cell in cells if chance.random() > 1 / 30 or cell == cells[0])
    letters = [
        chance.choice(_SYLLABLES) if "가" <= letter <= "힣" and chance.random() < 0.02 else letter for letter in content
    ]
    return "".join(letters)


if __name__ == "__main__":
    main()
