"""A corpus of tiny pages with instant engines, and a count of a run's faults.

The engines decode every page, and the text of a page is the SHA-256 of its bytes, so that a row made from the bytes of
another page can be recognized by its text.
"""

import hashlib
import io
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.finding.package import peak
from kopub.config.settings import Settings
from kopub.fingerprints import CodeVersion
from kopub.layout.base import LayoutDetector
from kopub.layout.regions import Layout, Region, Task
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading, RegionText, page_reading
from kopub.states import MADE, State
from kopub.store.corpus_tables import TABLES

ROOT = Path(__file__).resolve().parent.parent
PROFILE = {"layout": {"engine": "cpu"}, "recognition": {"engine": "tesseract"}, "embedding": {"engine": "hashed"}}
DIM = 64
BROKEN, UNREAD, NO_LAYOUT = 997, 499, 1499
"""One of this many pages has bytes that are no image, loses a region, or has no layout."""
WIDTH, HEIGHT = 32, 48
REGIONS = 3


class Bands(LayoutDetector):
    """A detector of bands of text, which fails for one of `NO_LAYOUT` pages."""

    code_version: ClassVar[CodeVersion] = CodeVersion("layout.bands", {1: "synthetic"})

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        for page in pages:
            height, width = page.image.shape[:2]
            if _every(NO_LAYOUT, page.page_id):
                yield Layout(page.page_id, State.FAILED, "no layout, as one page of so many")
                continue
            high = height / REGIONS
            boxes = [(0.0, at * high, float(width), (at + 1) * high) for at in range(REGIONS)]
            regions = tuple(Region(at, "text", Task.TEXT, 0.9, box) for at, box in enumerate(boxes))
            yield Layout(page.page_id, State.OK, None, regions)


class Digests(Recognizer):
    """A reader of each region as its page's SHA-256, in `seconds` per page."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.digests", {1: "synthetic"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"seconds"})

    seconds: float = 0.0

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        for page, regions in pages:
            time.sleep(self.seconds)
            said = hashlib.sha256(page.data).hexdigest()
            texts = [RegionText(region.index, region.label, said) for region in regions]
            if _every(UNREAD, page.page_id):
                texts[-1] = replace(
                    texts[-1], content="", state=State.FAILED, reason="unread, as in one page of so many"
                )
            yield page_reading(page.page_id, texts, ())


def _every(pages: int, page_id: str) -> bool:
    number = int(page_id.rpartition("_")[2])
    return number % pages == pages - 1


def write(folder: Path, pages: int, shards: int, queries: int) -> Path:
    """Write and return a source for `kopub index`: `pages` in `shards` Arrow files."""
    from PIL import Image

    (folder / "corpus").mkdir(parents=True)
    size = -(-pages // shards)
    for shard, start in enumerate(range(0, pages, size)):
        rows = []
        for number in range(start, min(start + size, pages)):
            noise = hashlib.shake_256(str(number).encode()).digest(WIDTH * HEIGHT // 16)
            image = Image.frombytes("L", (WIDTH // 4, HEIGHT // 4), noise).resize((WIDTH, HEIGHT), 0)
            file = io.BytesIO()
            image.save(file, "PNG")
            data = b"no image %d" % number if number % BROKEN == BROKEN - 1 else file.getvalue()
            rows.append({"id": f"doc{shard}_{number}", "image": {"bytes": data, "path": None}})
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(str(folder / "corpus" / f"pages-{shard:03d}.arrow"), table.schema) as writer:
            writer.write_table(table, 100)
    asked = [
        {"id": f"q{at}", "query": f"질문 {at}", "type": "text", "ground_truth": [f"doc0_{at % size}"]}
        for at in range(queries)
    ]
    if asked:
        pq.write_table(pa.Table.from_pylist(asked), folder / "qa.parquet")
    return folder


def settings_of(home: Path, seconds: float = 0.0, store: str | None = None) -> Settings:
    """Return the settings of a home with these engines, and tables at `store`."""
    profile: dict[str, Any] = {**PROFILE, "embedding": {"engine": "hashed", "dim": DIM}}
    if store is not None:
        profile["store"] = {"url": store}
    return replace(Settings.of(home, profile, "synthetic"), layout=Bands(), recognition=Digests(seconds=seconds))


def materialize(home: Path, seconds: float = 0.0) -> None:
    """Materialize everything, for all shards, in one Dagster run with its history in `home`."""
    import dagster as dg

    from kopub_assets.definitions import definitions_of
    from kopub_assets.running.engines import range_tags

    os.environ["DAGSTER_HOME"] = str(home / "dagster")
    settings = settings_of(home, seconds)
    keys = settings.corpus.manifest.keys
    tags = range_tags(keys[0], keys[-1])
    with dg.DagsterInstance.get() as instance:
        job = definitions_of(settings).resolve_implicit_global_asset_job_def()
        job.execute_in_process(instance=instance, tags=tags)


def make_home(home: Path, source: Path) -> Path:
    """Make and return a home with the indexed corpus and a Dagster history."""
    from kopub.pages.indexing import index

    (home / "dagster").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "local" / "dagster.yaml", home / "dagster")
    index(str(source), home)
    return home


@dataclass(frozen=True)
class Usage:
    """The resources of a process: its peak memory in MiB, and its open files."""

    peak_mib: float
    open_files: int

    @classmethod
    def now(cls) -> "Usage":
        return cls(1e6 * peak() / 2**20, len(os.listdir("/dev/fd")))


@dataclass
class Faults:
    """Rows that a store lacks, has twice, or has with another page's content."""

    lost: int = 0
    doubled: int = 0
    wrong: int = 0

    def __str__(self) -> str:
        return f"{self.lost} lost, {self.doubled} doubled, {self.wrong} wrong"

    def __iadd__(self, other: "Faults") -> "Faults":
        self.lost, self.doubled, self.wrong = (
            self.lost + other.lost,
            self.doubled + other.doubled,
            self.wrong + other.wrong,
        )
        return self

    def count(self, wanted: Sequence[str], found: Sequence[str]) -> None:
        owed, given = Counter(wanted), Counter(found)
        self.lost += (owed - given).total()
        self.doubled += (given - owed).total()


def states(settings: Settings) -> dict[str, Counter[str]]:
    """Return the number of rows of every table of pages, by state."""
    found: dict[str, Counter[str]] = {}
    for table in TABLES.of_pages:
        found[table.name] = Counter()
        for shard in settings.corpus.manifest.keys:
            found[table.name].update(settings.store.read(table.name, shard, ["state"])["state"].to_pylist())
    return found


def faults(settings: Settings) -> Faults:
    """Check every page against the source.

    Each must be in each table once, in the right state, with the text of its bytes.
    """
    found = Faults()
    for shard in settings.corpus.manifest.keys:
        source = {row.page_id: hashlib.sha256(row.data or b"").hexdigest() for row in settings.corpus.rows(shard)}
        for table in TABLES.of_pages:
            found.count(list(source), settings.store.read(table.name, shard, ["page_id"])["page_id"].to_pylist())
        pages = settings.store.read(TABLES.pages.name, shard, ["page_id", "sha256"]).to_pylist()
        found.wrong += sum(page["sha256"] != source.get(page["page_id"]) for page in pages)
        for table in (TABLES.readings, TABLES.texts):
            for row in settings.store.read(table.name, shard).to_pylist():
                page_id, digest = row["page_id"], source.get(row["page_id"])
                said = (row["markdown" if table is TABLES.readings else "text"] or "").split()
                regions = REGIONS - _every(UNREAD, page_id)
                lost = _every(BROKEN, page_id) or _every(NO_LAYOUT, page_id)
                found.wrong += said != ([] if lost else [digest] * regions) or (row["state"] in MADE) == lost
    return found
