"""The recognizer of PP-OCRv5 for Korean, by RapidOCR and ONNX Runtime."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from kopub.engine import ProfileOnly, missing_modules, releases
from kopub.fingerprints import CodeVersion, file_sha256
from kopub.recognition.print_recognizer import PrintRecognizer
from kopub.states import phrase, with_remedy
from kopub.weights.files import WeightsFile

if TYPE_CHECKING:
    from kopub.recognition.ppocr.reader import LineReader

KOREAN = WeightsFile(
    "https://www.modelscope.cn/models/RapidAI/RapidOCR/resolve/v3.10.0/onnx/PP-OCRv5/rec/korean_PP-OCRv5_rec_mobile.onnx",
    "cd6e2ea50f6943ca7271eb8c56a877a5a90720b7047fe9c41a2e541a25773c9b",
)
"""The recognition model for Korean and English, as RapidOCR 3.10 pins it in its `default_models.yaml` (Apache-2.0)."""


class PpOcrRecognizer(PrintRecognizer):
    """Reads regions line by line with PP-OCR; tables become `<table>` HTML, pictures are kept."""

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "recognition.ppocr",
        {
            1: "the first release",
            2: "lines beside each other that are not level are read one by one",
            3: "words of a label are no columns, a dash alone in a cell is one, and odd figures are doubted",
            4: "columns that may be one are doubted, and the words of a label in a short table are none",
            5: "unsure units that their column has nowhere else are doubted",
        },
    )
    # The hash of the file counts, not its place.
    speed_only: ClassVar[frozenset[str]] = PrintRecognizer.speed_only | {"weights_file"}
    limits: ClassVar[tuple[str, ...]] = (
        "Formulas are plain text as PP-OCR read it, not LaTeX; `$$` marks where one stands.",
        "How well PP-OCRv5 reads Korean is known by its authors' figures alone.",
    )

    weights_file: ProfileOnly[str] = Field(
        default="",
        description="Another recognition model of PP-OCR, an ONNX file that names its characters; empty means the "
        "pinned Korean one, which `kopub pull` fetches.",
    )

    def weights(self) -> dict[str, str]:
        model = self._model
        return {**releases("rapidocr", "onnxruntime"), "model": file_sha256(model) if model.is_file() else "missing"}

    def weights_files(self) -> Sequence[WeightsFile]:
        return () if self.weights_file else (KOREAN,)

    def lacks(self) -> list[str]:
        if missing := missing_modules("rapidocr", "onnxruntime"):
            return [with_remedy(phrase("not installed: {names}", ", ".join(missing)), "pip install 'kopub[ppocr]'")]
        if self.weights_file:
            finding, remedy = "there is no file {file}", "correct recognition.weights_file"
            return [] if self._model.is_file() else [with_remedy(phrase(finding, self.weights_file), remedy)]
        finding = phrase("{file} is not here, or not whole", self._model.name)
        return [] if KOREAN.is_whole else [with_remedy(finding, "type `kopub pull`")]

    def open_reader(self) -> "LineReader":
        from kopub.recognition.ppocr.reader import LineReader

        return LineReader(self._model)

    @property
    def _model(self) -> Path:
        return Path(self.weights_file).expanduser() if self.weights_file else KOREAN.path
