"""KDoc-OCRBench-V2: tests of Korean public-sector pages, in olmOCR's form with a label for each PDF."""

from dataclasses import replace
from pathlib import Path

from resources.evaluation.benchmark import Benchmark
from resources.evaluation.benchmarks.facts import OLMOCR, load_tests
from resources.evaluation.benchmarks.folders import SampleCollector, read_lines

_LABELS = "categories.jsonl"


def load(folder: Path) -> Benchmark:
    """Load the tests, with the kind of document (Statistics, Reports, Manuals, Notices) as a slice.

    As its authors have no `baseline` tests, none are added.
    """
    lines = SampleCollector()
    labels = {
        Path(str(record.get("pdf"))).name: str(record["category"])
        for path in folder.rglob(_LABELS)
        for _, record in read_lines(path, lines)
        if record.get("category")
    }

    def slices(pdf: str) -> dict[str, str]:
        label = labels.get(Path(pdf).name)
        return {"kind": label} if label else {}

    found = load_tests(folder, KDOC, "2", hanja=True, labels=_LABELS, slices=slices)
    return replace(found, left_out=[*found.left_out, *lines.left_out])


KDOC = replace(
    OLMOCR,
    name="kdoc_ocrbench",
    says="KDoc-OCRBench-V2: 56,197 tests of 849 pages of the Korean public sector",
    expects="text_present.jsonl, tables.jsonl, header_footer_tests.jsonl, categories.jsonl and pdfs/",
    source="https://huggingface.co/datasets/ONTHEIT/KDoc-OCRBench-V2 (ONTHEIT)",
    licence="CC-BY-4.0",
    load=load,
)
