"""The parts of a benchmark: samples, known answers, readings, scores, and adapters.

An adapter (`kopub/evaluation/benchmarks/`) loads a `Benchmark` from a folder. Its samples are indexed as a corpus
and read by the assets; the tables give a `SampleReading` of each; `kopub/evaluation/scoring.py` compares the two.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from kopub.evaluation.cdm import Cdm
from kopub.evaluation.tables import BoundedTeds
from kopub.fingerprints import fingerprint
from kopub.layout.regions import Task
from kopub.pages.documents.text_layer import RenderedImage
from kopub.pages.page import DPI
from kopub.states import LOST, State, phrase
from kopub.texts.regions import Region

if TYPE_CHECKING:
    from kopub.pages.documents.pdf import Pdfs


@dataclass(frozen=True, slots=True)
class PageText:
    """The known text of a page.

    `markdown` says that it has markup; without `ordered`, its reading order is unknown.
    """

    text: str
    markdown: bool = False
    ordered: bool = True


@dataclass(frozen=True, slots=True)
class Element:
    """One block of a page.

    `category` is the benchmark's own. `bbox` is (x1, y1, x2, y2) as shares of width and height, each 0 to 1. `order` is
    its place in the reading order, or None if it has none. Tables have `html`, formulas (and some tables) `latex`, all
    others `text`. `ignored` elements are neither scored nor counted as wrong.
    """

    id: str
    category: str
    bbox: tuple[float, float, float, float]
    order: int | None = None
    text: str = ""
    html: str = ""
    latex: str = ""
    ignored: bool = False


@dataclass(frozen=True, slots=True)
class ElementList:
    """The blocks of a page.

    `width` and `height` are those of the picture that the boxes were drawn on, in pixels.
    """

    elements: tuple[Element, ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class TableHtml:
    """A table as HTML, `<html><body><table>...`."""

    html: str


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula as LaTeX without delimiters."""

    latex: str


@dataclass(frozen=True, slots=True)
class LineText:
    """The text of one line."""

    text: str


@dataclass(frozen=True, slots=True)
class SampleQuestion:
    """A question about a page, with all answers that count as right.

    `dense` answers are compared without blanks and case-sensitively, as OCRBench does for formulas.
    """

    id: str
    question: str
    answers: tuple[str, ...]
    dense: bool = False


@dataclass(frozen=True, slots=True)
class Answers:
    """Questions about one picture."""

    questions: tuple[SampleQuestion, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """One test of a page in the form of olmOCR-bench, with validated fields."""

    id: str
    type: str
    group: str
    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FactList:
    """The tests that the text read from one page must pass."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class TableList:
    """The tables of a page as HTML, from the top."""

    tables: tuple[str, ...]


Gold = PageText | ElementList | TableList | TableHtml | Formula | LineText | Answers | FactList

_KINDS: dict[str, type] = {
    "PageText": PageText,
    "PageElements": ElementList,
    "PageTables": TableList,
    "TableHtml": TableHtml,
    "Formula": Formula,
    "Line": LineText,
    "Answers": Answers,
    "Facts": FactList,
}
"""The kinds of gold, by their names in files."""
_NAMES = {kind: name for name, kind in _KINDS.items()}


def gold_to_json(gold: Gold) -> str:
    """Return one line of JSON, the same for equal gold, that `gold_from_json` reads back."""
    return json.dumps({"kind": _NAMES[type(gold)], **asdict(gold)}, ensure_ascii=False, sort_keys=True)


def gold_from_json(line: str) -> Gold:
    """Return the gold that `gold_to_json` wrote."""
    values = json.loads(line)
    return _build(_KINDS[values.pop("kind")], values)


def _build(kind: Any, value: Any) -> Any:
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        return kind(**{member.name: _build(hints[member.name], value[member.name]) for member in fields(kind)})
    if get_origin(kind) is tuple:
        part = get_args(kind)[0]
        return tuple(_build(part, item) for item in value)
    return value


WHOLE: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)
"""The box of a region that is the whole picture."""


@dataclass(frozen=True, slots=True)
class SamplePicture:
    """The place of a sample's image; nothing is opened before `read`.

    `path` is the file that contains it: an image, a PDF of which it is the `page` (from 1), or a table (Arrow, Parquet)
    from which `load` reads the bytes. `with_layer` keeps the text layer of the PDF's page.
    """

    path: Path
    page: int | None = None
    load: Callable[[], bytes] | None = field(default=None, compare=False)
    with_layer: bool = False

    def read(self) -> bytes:
        """Return the encoded image.

        It is the stored image, or the page of the PDF drawn as a PNG. Raises `OSError` for a file that cannot be read,
        and `UndecodableImage` for a PDF that cannot be drawn.
        """
        return self.made().data

    def made(self) -> RenderedImage:
        """Return the image with its text layer, if that is kept. Raises as `read` does."""
        if self.load is not None:
            return RenderedImage(self.load())
        if self.page is None:
            return RenderedImage(self.path.read_bytes())
        return _renderer().make(self.path, self.page - 1, DPI, with_text=self.with_layer)


@cache
def _renderer() -> "Pdfs":
    """Return the process's renderer, which keeps the last PDF open for the next page."""
    # What is scored needs no reader of documents.
    from kopub.pages.documents.pdf import Pdfs

    return Pdfs()


def close_pictures() -> None:
    """Close the open PDF, if any, because PDFium complains about it when a process ends."""
    _renderer.cache_clear()


@dataclass(frozen=True, slots=True)
class GivenRegion:
    """A region that the benchmark gives, so that no layout is detected.

    `bbox` is (x1, y1, x2, y2) as shares of width and height, each 0 to 1.
    """

    label: str
    task: Task
    bbox: tuple[float, float, float, float] = WHOLE


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture with its known answer.

    `id` is unique in the benchmark, and a page id in the corpus made from it. `document` is shared by the pages of one
    document, because intervals are over documents. `slices` are the parts of the benchmark that contain the sample,
    such as {"language": "korean"}. `regions` are given boxes; if None, the layout detector finds them.
    """

    id: str
    document: str
    picture: SamplePicture | None
    slices: Mapping[str, str]
    gold: Gold
    regions: tuple[GivenRegion, ...] | None = None

    @property
    def mark(self) -> str:
        """The fingerprint of the known answer; scores against different answers are not compared."""
        return fingerprint(gold_to_json(self.gold))


@dataclass(frozen=True, slots=True)
class SkippedSample:
    """A file or row of the folder that is not a sample, with the reason."""

    what: str
    reason: str

    def __str__(self) -> str:
        return phrase("{file}: {reason}", self.what, self.reason)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The samples of a folder by their ids, and what was left out.

    `name` is the adapter's. `version` is that of the data. `licence` and `source` (who made it, where to get it) must
    be named in a publication of the scores.
    """

    name: str
    version: str
    licence: str
    source: str
    samples: Sequence[Sample]
    left_out: Sequence[SkippedSample] = ()


@dataclass(frozen=True, slots=True)
class SampleReading:
    """The reading of one sample, from the tables of the platform.

    `state` is that of the page in `ocr_results`, or in the first earlier table that lost the page, or None if there is
    no row for the sample. `markdown` is from `ocr_results`, `text` from `parsed_texts`; `regions` are layout and
    readings joined, in reading order.
    """

    state: State | None
    reason: str | None = None
    markdown: str = ""
    text: str = ""
    regions: Sequence[Region] = ()

    @property
    def lost(self) -> bool:
        """True if the sample has the worst score: it failed, was quarantined or is missing."""
        return self.state is None or self.state in LOST

    @property
    def why_lost(self) -> str:
        """The state of a lost sample, with the reason."""
        return f"{self.state or 'missing'}: {self.reason or 'no reason is given'}"


MISSING = SampleReading(None, "there is no row of it")
"""The reading of a sample that is in no table."""


@dataclass(frozen=True, slots=True)
class SampleScore:
    """One metric of one sample, or of the whole benchmark if `sample` is None.

    `value` is None if it could not be computed; `skipped_reason` then says why. `size` is the number of units that the
    value is a share of (characters, nodes, facts), and is the weight of the sample in a pooled mean. `lost` marks a
    worst value given because there is no reading. `notes` tell people what was wrong, one line each.
    """

    sample: str | None
    metric: str
    value: float | None
    size: float = 1.0
    skipped_reason: str | None = None
    lost: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools that scorers run outside this process."""

    teds: BoundedTeds
    cdm: Cdm | None = None


OWN_PAGES = "yours"
"""The licence of a benchmark that users make from their own pages; tables contain this word."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """A kind of benchmark: its description, its loader and its scorers.

    `says` is one sentence for a list of benchmarks; `expects` is what a folder must contain, `source` where to get it
    and `licence` on which terms. `load` raises `SourceError` for a folder that is not such a benchmark. `score` gives
    every metric that the sample has by its gold, whatever was read. `whole` scores all samples at once. `headline`
    lists the metrics, at most two, that gates look at. `packages` are modules of the extra `eval` that scores need.
    """

    name: str
    says: str
    expects: str
    source: str
    licence: str
    load: Callable[[Path], Benchmark]
    score: Callable[[Sample, SampleReading, Tools], list[SampleScore]]
    headline: tuple[str, ...]
    whole: Callable[[Sequence[tuple[Sample, SampleReading]], Sequence[SampleScore]], list[SampleScore]] = (
        lambda read, scores: []
    )
    packages: tuple[str, ...] = ()
