"""PP-OCR as a reader: lines and cells as Tesseract's, and its pinned model."""

import json
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from kopub.engine import missing_modules
from kopub.recognition.ppocr.recognizer import PpOcrRecognizer
from kopub.recognition.tesseract import figure_model

INSTALLED = not missing_modules("rapidocr", "onnxruntime")
READS = """
import json, sys
import kopub
(page,) = kopub.read(sys.argv[1], profile=sys.argv[2]).pages
print(json.dumps([[region.label, region.text] for region in page.regions if region.text]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not INSTALLED, reason="the extra ppocr is not installed")
def test_lines_and_the_cells_of_a_table_are_read(tmp_path: Path):
    page = np.full((1400, 1000), 255, np.uint8)
    for at, line in enumerate(("The budget of the year 2026", "was passed in December.")):
        cv2.putText(page, line, (100, 150 + 60 * at), cv2.FONT_HERSHEY_SIMPLEX, 1.3, 0, 2, cv2.LINE_AA)
    for across in (100, 500, 900):
        cv2.line(page, (across, 400), (across, 640), 0, 3)
    for down in (400, 480, 560, 640):
        cv2.line(page, (100, down), (900, down), 0, 3)
    for row, cells in enumerate((("Town", "Sum"), ("Seoul", "12,345"), ("Busan", "678"))):
        for column, cell in enumerate(cells):
            place = (140 + 400 * column, 455 + 80 * row)
            cv2.putText(page, cell, place, cv2.FONT_HERSHEY_SIMPLEX, 1.2, 0, 2, cv2.LINE_AA)
    cv2.imwrite(str(tmp_path / "page.png"), page)
    profile = tmp_path / "ppocr.yaml"
    profile.write_text(f"extends: cpu\nrecognition: {{engine: ppocr, weights_file: {figure_model.model()}}}\n")
    # Once ONNX Runtime is imported, no process that is forked from this one would end.
    command = [sys.executable, "-c", READS, str(tmp_path / "page.png"), str(profile)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = dict(json.loads(done.stdout))
    assert read["text"] == "The budget of the year 2026\nwas passed in December."
    assert read["table"] == "Town\tSum\nSeoul\t12,345\nBusan\t678"


def test_a_model_of_ones_own_counts_by_its_hash_and_is_named_if_it_is_missing(tmp_path: Path):
    first, second = (tmp_path / name for name in ("a.onnx", "b.onnx"))
    first.write_bytes(b"a model")
    second.write_bytes(b"a model")
    recipes = [PpOcrRecognizer(weights_file=str(path)).recipe() for path in (first, second)]
    assert recipes[0] == recipes[1] != PpOcrRecognizer(weights_file=str(tmp_path / "c.onnx")).recipe()
    assert PpOcrRecognizer(weights_file=str(first)).weights_files() == ()
