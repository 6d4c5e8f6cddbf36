"""The recognizer of PP-OCRv5 for Korean, by RapidOCR and ONNX Runtime."""

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from kopub.engine import ProfileOnly, missing_modules, releases
from kopub.errors import EngineError
from kopub.fingerprints import CodeVersion, file_sha256
from kopub.layout.regions import Region
from kopub.pages.page import Page, room_for
from kopub.parallel import bounded_map, of_two_cores
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading
from kopub.weights.files import WeightsFile

KOREAN = WeightsFile(
    "https://www.modelscope.cn/models/RapidAI/RapidOCR/resolve/v3.10.0/onnx/PP-OCRv5/rec/korean_PP-OCRv5_rec_mobile.onnx",
    "cd6e2ea50f6943ca7271eb8c56a877a5a90720b7047fe9c41a2e541a25773c9b",
)
"""The recognition model for Korean and English, as RapidOCR 3.10 pins it in its `default_models.yaml` (Apache-2.0)."""


class PpOcrRecognizer(Recognizer):
    """Reads regions line by line with PP-OCR; tables become `<table>` HTML, pictures are kept."""

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.ppocr", {1: "the first release"})
    typical_seconds: ClassVar[float] = 0.03
    typical_seconds_per_megabyte: ClassVar[float] = 0.84
    # The hash of the file counts, not its place.
    speed_only: ClassVar[frozenset[str]] = frozenset({"threads", "page_seconds", "weights_file"})
    limits: ClassVar[tuple[str, ...]] = (
        "Formulas are plain text as PP-OCR read it, not LaTeX; `$$` marks where one stands.",
        "How well PP-OCRv5 reads Korean is known by its authors' figures alone.",
    )

    weights_file: ProfileOnly[str] = Field(
        default="",
        description="Another recognition model of PP-OCR, an ONNX file that names its characters; empty means the "
        "pinned Korean one, which `kopub pull` fetches.",
    )
    threads: int = Field(default=0, ge=0, description="Pages read at once; 0 means one per core.")
    page_seconds: float = Field(
        default=120.0,
        gt=0,
        description="Seconds of processor time that the reading of a page may take; its other regions fail, and the "
        "next run reads it again.",
    )

    def weights(self) -> dict[str, str]:
        model = self._model
        return {**releases("rapidocr", "onnxruntime"), "model": file_sha256(model) if model.is_file() else "missing"}

    def weights_files(self) -> Sequence[WeightsFile]:
        return () if self.weights_file else (KOREAN,)

    def expected_seconds(self, megabytes: float) -> float:
        return super().expected_seconds(megabytes) * of_two_cores(self.threads)

    def lacks(self) -> list[str]:
        if missing := missing_modules("rapidocr", "onnxruntime"):
            return [f"{' and '.join(missing)} not installed: pip install 'kopub[ppocr]'"]
        if self.weights_file:
            is_file = self._model.is_file()
            return [] if is_file else [f"there is no file {self.weights_file}: correct recognition.weights_file"]
        return [] if KOREAN.is_whole else [f"{self._model.name} is not here, or not whole: type `kopub pull`"]

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        if problems := self.lacks():
            raise EngineError(problems[0])
        from kopub.recognition.ppocr.reader import LineReader
        from kopub.recognition.tesseract.pages import read_page

        local = threading.local()

        def work(item: tuple[Page, Sequence[Region]]) -> PageReading:
            if not hasattr(local, "reader"):
                local.reader = LineReader(self._model)
            with room_for(item[0].data):
                local.reader.limit(self.page_seconds)
                return read_page(local.reader, *item)

        yield from bounded_map(work, pages, self.threads)

    @property
    def _model(self) -> Path:
        return Path(self.weights_file).expanduser() if self.weights_file else KOREAN.path
