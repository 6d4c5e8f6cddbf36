"""Score formulas with the official CDM: JSON lines `{"gold", "text"}` in, `{"f1"}` or `{"error"}` out.

The official `evaluate` gives 0 for any failure. Here a reading that cannot be drawn scores 0, but gold that cannot be
drawn is an error, because that is the fault of the installation, not of the reader.
"""

import contextlib
import json
import os
import sys
import tempfile

from metrics.cdm_metric import CDM


def main() -> None:
    # Redirect the output of TeX and of the official code, so that it does not mix with the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for number, line in enumerate(sys.stdin):
        pair = json.loads(line)
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
            answer = score(CDM(output_root=folder), plain(pair["gold"]), plain(pair["text"]), str(number))
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def plain(latex: str) -> str:
    """Strip a code fence and dollars around a formula, as the official evaluation does."""
    latex = latex.rpartition("```latex")[2].partition("```")[0]
    return latex.strip().strip("$").strip()


def score(cdm: CDM, gold: str, text: str, name: str) -> "dict[str, object]":
    try:
        cdm._prepare_directories(name)
        cdm._generate_bboxes(gold, text, name)
        wanted, read = (boxes(cdm.output_root, side, name) for side in ("gt", "pred"))
        if not wanted:
            return {"error": "the gold could not be drawn"}
        if not read:
            return {"f1": 0.0}
        pictures = cdm._load_images(name)
        _, inliers = cdm._match_boxes(wanted, read, *pictures)
        return {"f1": float(cdm._calculate_metrics(wanted, read, inliers)[2])}
    except Exception as error:  # the official code fails in many ways
        return {"error": f"{type(error).__name__}: {error}"}


def boxes(folder: str, side: str, name: str) -> "list[dict[str, object]]":
    path = os.path.join(folder, side, "bbox", f"{name}.jsonl")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    return [box for box in found if box["bbox"]]


if __name__ == "__main__":
    main()
