"""Documents as the platform's tables hold them, made from a few values."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from PIL import Image

from kopub.boxes import Box
from kopub.documents.document import Document, DocumentPage
from kopub.layout.regions import DEFAULT_TASKS
from kopub.states import State
from kopub.store import schemas
from kopub.store.corpus_tables import TABLES
from kopub.texts.regions import Region

WIDTH, HEIGHT = 1000, 2000


@dataclass(frozen=True)
class Printed:
    """A region: label, text (None if not read), and box in thousandths of the page."""

    label: str
    text: str | None = ""
    box: tuple[int, int, int, int] = (100, 400, 900, 500)


@dataclass(frozen=True)
class PageRow:
    """A page of a corpus; `page_no` is its number in the source, if known."""

    page_id: str
    doc_id: str | None
    page_no: int | None
    regions: Sequence[Printed] = ()
    state: State = State.OK
    reason: str | None = None


def document(*pages: Sequence[Printed], first: int = 1) -> Document:
    """Return a document whose pages were read, numbered from `first`."""
    return Document("d.pdf", "d", 0, tuple(_page(first + at, regions) for at, regions in enumerate(pages)))


def _page(number: int, regions: Sequence[Printed]) -> DocumentPage:
    read = tuple(_region(at, printed) for at, printed in enumerate(regions))
    return DocumentPage(number, f"d_{number}", WIDTH, HEIGHT, State.OK, None, read)


def _region(index: int, printed: Printed) -> Region:
    task, state = DEFAULT_TASKS[printed.label], State.FAILED if printed.text is None else State.OK
    return Region(
        index, printed.label, task, 1.0, _pixels(printed.box), Box(*printed.box), None, printed.text or "", state
    )


def _pixels(box: tuple[int, int, int, int]) -> Box[float]:
    x1, y1, x2, y2 = box
    return Box(x1 * WIDTH / 1000, y1 * HEIGHT / 1000, x2 * WIDTH / 1000, y2 * HEIGHT / 1000)


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (20, 10)).save(file, "JPEG")
    return file.getvalue()


class DocumentTables:
    """A reader of tables of some shards, whose `reads` list each (asset, shard)."""

    def __init__(self, **shards: Sequence[PageRow]) -> None:
        self._tables = {shard: _tables(pages) for shard, pages in shards.items()}
        self.reads: list[tuple[str, str]] = []

    def read(self, asset: str, shard: str, columns: Sequence[str] | None = None) -> pa.Table:
        self.reads.append((asset, shard))
        table = self._tables[shard][asset]
        return table if columns is None else table.select(list(columns))

    def metadata(self, asset: str, shard: str) -> dict[str, str]:
        return {}


def _tables(pages: Sequence[PageRow]) -> dict[str, pa.Table]:
    raw: list[dict[str, Any]] = []
    layouts: list[dict[str, Any]] = []
    readings: list[dict[str, Any]] = []
    for at, page in enumerate(pages):
        ended = {"page_id": page.page_id, "state": page.state, "reason": page.reason, "fingerprint": "f"}
        size = {} if page.state is State.QUARANTINED else {"width": WIDTH, "height": HEIGHT}
        named = {"doc_id": page.doc_id, "page_no": page.page_no, "sha256": page.page_id, "source": "a.arrow"}
        raw.append({**ended, "page_idx": at, **named, **size})
        layouts.append({**ended, "regions": [_layout(index, each) for index, each in enumerate(page.regions)]})
        crops = [
            {"path": f"crops/{page.page_id}_{index}.jpg", "bbox": _pixels(each.box), "label": each.label}
            for index, each in enumerate(page.regions)
            if each.label in ("image", "chart")
        ]
        readings.append({
            **ended,
            "page_idx": at,
            "regions": [_reading(index, each) for index, each in enumerate(page.regions)],
            "image_crops": crops,
            "crop_images": [jpeg() for _ in crops],
        })  # fmt: skip
    return {
        TABLES.pages.name: pa.Table.from_pylist(raw, schemas.RAW_PAGES),
        TABLES.regions.name: pa.Table.from_pylist(layouts, schemas.LAYOUT_REGIONS),
        TABLES.readings.name: pa.Table.from_pylist(readings, schemas.OCR_RESULTS),
    }


def _layout(index: int, printed: Printed) -> dict[str, Any]:
    placed = {"bbox": _pixels(printed.box), "bbox_2d": printed.box}
    return {"index": index, "label": printed.label, "task": DEFAULT_TASKS[printed.label], "score": 1.0, **placed}


def _reading(index: int, printed: Printed) -> dict[str, Any]:
    failed = printed.text is None
    return {
        "index": index,
        "native_label": printed.label,
        "bbox_2d": printed.box,
        "content": printed.text or "",
        "state": State.FAILED if failed else State.OK,
        "reason": "no answer" if failed else None,
        "finish_reason": "stop",
        "attempts": 1,
    }
