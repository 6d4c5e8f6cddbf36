"""UniMER-Test: pictures of formulas, one formula each."""

from itertools import zip_longest
from pathlib import Path

from resources.errors import SourceError
from resources.evaluation.benchmark import Adapter, Benchmark, Formula, GivenRegion, Picture
from resources.evaluation.benchmarks import tables_and_formulas as region_scores
from resources.evaluation.benchmarks.folders import SampleCollector, parquet_rows, pictures, with_suffix
from resources.layout.regions import Task

_FIRST = 200
"""Rows of the Parquet files that others report; the text files are taken whole."""
_PARTS = {"spe": "simple", "cpe": "complex", "sce": "screen", "hwe": "handwritten"}
_REGIONS = (GivenRegion("display_formula", Task.FORMULA),)


def load(folder: Path) -> Benchmark:
    gathered = SampleCollector()
    texts = [path for path in with_suffix(folder, ".txt") if path.stem.lower() in _PARTS]
    for path in texts:
        _load_part(path, gathered)
    if not texts:
        if not with_suffix(folder, ".parquet"):
            raise SourceError(f"{folder} has neither spe.txt, cpe.txt, sce.txt, hwe.txt nor .parquet files of UniMER")
        for row in parquet_rows(folder, "test", ("text",)):
            if row.number >= _FIRST:
                break
            _add(gathered, f"row_{row.number}", row.picture, str(row.values.get("text") or ""), {})
    return Benchmark(ADAPTER.name, "1", ADAPTER.licence, ADAPTER.source, gathered.sorted(), gathered.left_out)


def _load_part(path: Path, gathered: SampleCollector) -> None:
    """Add the formulas of a text file, line i for picture i of its folder."""
    name = path.stem.lower()
    lines = path.read_text("utf-8", errors="replace").splitlines()
    found = pictures(path.with_suffix("")) if path.with_suffix("").is_dir() else []
    for number, (line, picture) in enumerate(zip_longest(lines, found)):
        if line is None:
            gathered.leave_out(f"{name}/{picture.name}", "it is a picture without gold")
        else:
            _add(gathered, f"{name}_{number}", Picture(picture) if picture else None, line, {"part": _PARTS[name]})


def _add(gathered: SampleCollector, id: str, picture: Picture | None, latex: str, slices: dict[str, str]) -> None:
    if not latex.strip():
        gathered.leave_out(id, "its gold is empty")
    else:
        gathered.add(id, picture, Formula(latex.strip()), slices=slices, regions=_REGIONS)


ADAPTER = Adapter(
    "unimer",
    "UniMER-Test: pictures of printed, screen and handwritten formulas",
    "the .parquet files of the test split (the first 200 rows), or spe.txt, spe/, cpe.txt, cpe/, ... of the test set",
    "https://huggingface.co/datasets/deepcopy/UniMER (UniMERNet, arXiv 2404.15254)",
    "Apache-2.0",
    load,
    region_scores.score_formula,
    region_scores.FORMULA_METRICS,
    ("formula_edit",),
)
