"""What was read, as the official scripts of benchmarks take it: one markdown file a sample."""

from collections.abc import Mapping
from pathlib import Path

from resources.errors import SourceError
from resources.evaluation.benchmark import Benchmark, Reading, Sample
from resources.evaluation.gold import Facts
from resources.files import replace_bytes
from resources.pages.ids import problem_with
from resources.printable import quoted


def write_predictions(folder: Path, benchmark: Benchmark, readings: Mapping[str, Reading]) -> int:
    """Write `folder`/<stem>.md for each sample, and return how many.

    The stem is that of the picture, as OmniDocBench has it; of facts it is `<pdf>_pg<page>_repeat1`, as olmOCR-bench
    has it. A sample that was not read has an empty file: the scripts leave a missing one out of their means. Raises
    `SourceError` for two samples of one name and a name that is none, `StoreError`.
    """
    names: dict[str, str] = {}
    for sample in benchmark.samples:
        name = _stem(sample)
        if (problem := problem_with(name)) is not None:
            raise SourceError(f"the prediction of {quoted(sample.id)} cannot be written: its name {problem}")
        if other := names.get(name):
            raise SourceError(f"{quoted(other)} and {quoted(sample.id)} would both be {name}.md: rename a picture")
        names[name] = sample.id
    for name, sample_id in names.items():
        reading = readings.get(sample_id)
        replace_bytes(folder / f"{name}.md", (reading.markdown if reading else "").encode())
    return len(names)


def _stem(sample: Sample) -> str:
    picture = sample.picture
    if picture is None or picture.load is not None:
        return sample.id
    if isinstance(sample.gold, Facts):
        return f"{picture.path.stem}_pg{picture.page or 1}_repeat1"
    return picture.path.stem if picture.page is None else f"{picture.path.stem}_{picture.page}"
