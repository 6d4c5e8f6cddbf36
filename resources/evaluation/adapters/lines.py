"""IAM lines: pictures of handwritten lines, one line each."""

from pathlib import Path

from resources.errors import SourceError
from resources.evaluation.adapter import Adapter
from resources.evaluation.adapters.folders import Gathered, parquet_rows, with_suffix
from resources.evaluation.benchmark import Benchmark, GivenRegion
from resources.evaluation.gold import Line
from resources.evaluation.sample_scores import texts as text_scores
from resources.layout.regions import Task

_FIRST = 200
_REGIONS = (GivenRegion("text", Task.TEXT),)


def load(folder: Path) -> Benchmark:
    if not with_suffix(folder, ".parquet"):
        raise SourceError(f"{folder} has no .parquet files of lines")
    gathered = Gathered()
    for row in parquet_rows(folder, "test", ("text",)):
        if row.number >= _FIRST:
            break
        text = str(row.values.get("text") or "")
        if text.strip():
            gathered.add(f"row_{row.number}", row.picture, Line(text), regions=_REGIONS)
        else:
            gathered.leave_out(f"row_{row.number}", "its gold is empty")
    return Benchmark(ADAPTER.name, "1", ADAPTER.licence, ADAPTER.source, gathered.sorted(), gathered.left_out)


ADAPTER = Adapter(
    "iam_lines",
    "IAM: the first 200 handwritten English lines of the test set",
    "the .parquet files of the test split with the columns image and text",
    "https://huggingface.co/datasets/Teklia/IAM-line (University of Bern)",
    "for research only, not for commercial use",
    load,
    text_scores.score_line,
    text_scores.LINE_METRICS,
    ("cer",),
)
