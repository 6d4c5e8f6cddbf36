"""OCRBench and Nanonets-KIE: questions whose answers must be in the text.

The platform reads pages but does not answer questions, so the scores are neither accuracies of answers nor ANLS.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rapidfuzz import fuzz

from kopub.errors import SourceError, quoted
from kopub.evaluation.benchmark import (
    Adapter,
    Answers,
    Benchmark,
    Sample,
    SamplePicture,
    SampleQuestion,
    SampleReading,
    SampleScore,
    Tools,
)
from kopub.evaluation.benchmarks.folders import (
    SampleCollector,
    by_name,
    parquet_rows,
    pictures,
    read_json,
    with_suffix,
)
from kopub.evaluation.characters import composed, similarity, single_blanks, without_blanks


def score(sample: Sample, reading: SampleReading, tools: Tools) -> list[SampleScore]:
    """Score a sample whose gold is `Answers`."""
    assert isinstance(sample.gold, Answers)
    alike: list[float] = []
    missed: list[str] = []
    page = single_blanks(reading.text).lower()
    for question in sample.gold.questions:
        if contains(question, reading.text):
            alike.append(1.0)
            continue
        missed.append(f"{question.id}: {quoted(question.answers[0])} is not in the text")
        # An answer is compared with the most similar part of the text; a similarity of one half or less says nothing.
        best = 0.0
        for answer in question.answers:
            wanted = composed(answer).strip().lower()
            window = fuzz.partial_ratio_alignment(wanted, page)
            if window is not None and wanted and page:
                best = max(best, similarity(wanted, page[window.dest_start : window.dest_end]))
        alike.append(best if best > 0.5 else 0.0)
    count = len(alike)
    return [
        SampleScore(sample.id, "answer_recall", (count - len(missed)) / count, count, notes=tuple(missed)),
        SampleScore(sample.id, "answer_similarity", sum(alike) / count, count),
    ]


def contains(question: SampleQuestion, text: str) -> bool:
    """Return whether an answer is part of the text, in lower case, by OCRBench's rule.

    A run of blanks counts as one. `dense` answers (OCRBench's handwritten formulas) are compared case-sensitively and
    without any blanks.
    """
    if question.dense:
        page = without_blanks(text)
        return any(without_blanks(answer) in page for answer in question.answers)
    page = single_blanks(text).lower()
    return any(single_blanks(answer).lower() in page for answer in question.answers)


_DENSE = "HME100k"
"""The set of handwritten formulas, which OCRBench compares case-sensitively and without blanks."""


def load_ocrbench(folder: Path) -> Benchmark:
    path = next((path for path in with_suffix(folder, ".json") if path.stem.lower().startswith("ocrbench")), None)
    gathered = SampleCollector()
    if path is not None:
        records = read_json(path)
        if not isinstance(records, list):
            raise SourceError("{path} is no list of questions", path)
        files = pictures(folder)
        by_place = {composed("/".join(file.parts[-2:])): file for file in files} | by_name(files)
        named: list[Path] = []
        for at, record in enumerate(records):
            if not isinstance(record, dict):
                gathered.leave_out(f"question {at}", "it is no JSON object")
                continue
            place = composed(str(record.get("image_path") or ""))
            picture = by_place.get("/".join(Path(place).parts[-2:])) or by_place.get(Path(place).name)
            if picture is not None:
                named.append(picture)
            _add(gathered, f"question_{at}", SamplePicture(picture) if picture else None, record)
        gathered.leave_out_pictures(files, named)
    elif with_suffix(folder, ".parquet"):
        for row in parquet_rows(folder, "test", ("dataset", "question", "question_type", "answer")):
            values = row.values
            record = {
                "dataset_name": values.get("dataset"),
                "question": values.get("question"),
                "answers": values.get("answer"),
                "type": values.get("question_type"),
            }
            _add(gathered, f"row_{row.number}", row.picture, record)
    else:
        raise SourceError("{folder} has neither OCRBench.json nor .parquet files of it", folder)
    return gathered.benchmark(OCRBENCH, "v1")


def _add(gathered: SampleCollector, id: str, picture: SamplePicture | None, record: Mapping[str, Any]) -> None:
    value = record.get("answers")
    listed = value if isinstance(value, list) else [value]
    # A blank answer would be found in every text.
    answers = tuple(str(answer) for answer in listed if answer is not None and str(answer).strip())
    if not answers:
        gathered.leave_out(id, "it has no answer")
        return
    source = str(record.get("dataset_name") or "")
    question = SampleQuestion(id, str(record.get("question") or ""), answers, dense=source == _DENSE)
    slices = {"type": str(record.get("type") or ""), "source": source}
    gathered.add(id, picture, Answers((question,)), slices=slices)


def load_kie(folder: Path) -> Benchmark:
    if not with_suffix(folder, ".parquet"):
        raise SourceError("{folder} has no .parquet files of Nanonets' set", folder)
    gathered = SampleCollector()
    for row in parquet_rows(folder, "test", ("annotations",)):
        id = f"row_{row.number}"
        try:
            annotations = row.values.get("annotations")
            if isinstance(annotations, str):
                annotations = json.loads(annotations)
            if not isinstance(annotations, dict):
                raise ValueError("annotations is no object of fields")
            texts = {str(name): str(value).strip() for name, value in annotations.items() if value is not None}
            fields = {name: text for name, text in texts.items() if text}
        except ValueError as error:
            gathered.leave_out(id, f"its gold cannot be read: {error}")
            continue
        questions = tuple(SampleQuestion(f"{id}.{name}", name, (value,)) for name, value in fields.items())
        if questions:
            gathered.add(id, row.picture, Answers(questions))
        else:
            gathered.leave_out(id, "all its fields are empty")
    return gathered.benchmark(KIE)


OCRBENCH = Adapter(
    "ocrbench",
    "OCRBench v1: 1,000 questions about pictures with text, by whether the answer was read",
    "OCRBench.json and the pictures in folders of their sets, or the .parquet files of the test split",
    "https://huggingface.co/datasets/echo840/OCRBench (Yuliang-Liu/MultimodalOCR)",
    "MIT; the pictures by the terms of their sets",
    load_ocrbench,
    score,
    ("answer_recall",),
)
KIE = replace(
    OCRBENCH,
    name="nanonets_kie",
    says="Nanonets-KIE: the fields of 147 business documents, by whether their values were read",
    expects="the .parquet files of the test split with the columns image and annotations",
    source="https://huggingface.co/datasets/nanonets/key_information_extraction",
    licence="not stated by its authors: ask them before you publish pictures of it",
    load=load_kie,
)
