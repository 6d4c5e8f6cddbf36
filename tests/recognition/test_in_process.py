"""Reading in process with transformers gives a real vLLM's words from one tiny checkpoint."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from kopub.config.settings import Settings
from kopub.errors import ConfigError, EngineError
from kopub.layout.regions import Region, Task
from kopub.pages.page import Page
from kopub.recognition.regions import RegionText
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.recognition.vlm.in_process import TransformersRecognizer
from kopub.recognition.vlm.paddleocr_vl import PaddleOcrVlRecognizer
from kopub.recognition.vlm.recognizer import VlmRecognizer
from kopub.vllm.server import VLLMServer
from tests.support.checkpoints.tiny_paddleocr_vl import save_paddleocr_vl
from tests.support.checkpoints.tiny_vlm import save_glm_ocr
from tests.support.installed import needs
from tests.support.servers.vllm_cpu import cpu_server, needs_vllm

pytestmark = [pytest.mark.slow, needs("torch", "transformers")]
READING = {"tries": 1, "sampling": {"max_tokens": 5}}


def work() -> list[tuple[Page, list[Region]]]:
    image = np.full((240, 460, 3), 255, np.uint8)
    for line in range(3):
        cv2.putText(
            image, f"line {line} of {37 * line}", (20, 50 + 70 * line), cv2.FONT_HERSHEY_SIMPLEX, 1, (0, 0, 0), 2
        )
    page = Page("p", cv2.imencode(".png", image)[1].tobytes())
    boxes = [(10.0, 20.0 + 70 * line, 200.0 + 100 * line, 70.0 + 70 * line) for line in range(3)]
    return [(page, [Region(index, "text", Task.TEXT, 0.9, box) for index, box in enumerate(boxes)])]


def texts(reader: Any) -> list[RegionText]:
    (reading,) = reader.read(work())
    return list(reading.regions)


def here(name: Any, checkpoint: Path, **changes: Any) -> TransformersRecognizer:
    return TransformersRecognizer(
        reader=name, repo=str(checkpoint), device="cpu", max_image_tokens=1280, reading=READING, **changes
    )


def test_a_batch_reads_what_single_regions_read(tmp_path: Path) -> None:
    checkpoint = save_glm_ocr(tmp_path)
    together, one_by_one = here("glm_ocr", checkpoint, batch_size=3), here("glm_ocr", checkpoint, batch_size=1)
    assert together.recipe() == one_by_one.recipe()
    found = texts(together)
    assert [text.content for text in found] == [text.content for text in texts(one_by_one)]
    assert any(text.content for text in found)
    assert together.report()["requests"] == 3
    for reader in (together, one_by_one):
        reader.release()


@pytest.mark.timeout(120)
def test_a_reader_that_was_stopped_halfway_reads_on(tmp_path: Path) -> None:
    reader = here("glm_ocr", save_glm_ocr(tmp_path), batch_size=1)
    ((page, regions),) = work()
    stopped = reader.read((Page(f"p{number}", page.data), regions) for number in range(4))
    next(stopped)
    stopped.close()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert len(texts(reader)) == len(regions)
    reader.release()


@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "save", "served", "signs"),
    [
        ("glm_ocr", save_glm_ocr, GlmOcrRecognizer, None),
        # Later tokens of its tiny checkpoint are near ties, which the server's kernels may break differently.
        ("paddleocr_vl", save_paddleocr_vl, PaddleOcrVlRecognizer, 1),
    ],
)
def test_it_reads_what_a_server_reads(
    name: str,
    save: Callable[[Path], Path],
    served: type[VlmRecognizer],
    signs: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path / "runtime"))
    checkpoint = save(tmp_path / name)
    local = here(name, checkpoint, dtype="float32")
    found = texts(local)
    local.release()
    server = VLLMServer(**cpu_server(checkpoint, idle_seconds=2, max_image_tokens=1280, dtype="float32"))
    told = texts(served(server=server, processes=1, **READING))
    assert any(text.content for text in told)
    for ours, theirs in zip(found, told, strict=True):
        assert (ours.content[:signs], ours.state, ours.finish_reason, ours.scale) == (
            theirs.content[:signs], theirs.state, theirs.finish_reason, theirs.scale
        )  # fmt: skip


def test_a_profile_names_it_and_its_reader_s_keys_are_checked(tmp_path: Path) -> None:
    cpu = {"layout": {"engine": "cpu"}, "embedding": {"engine": "hashed"}}
    section = {"engine": "transformers", "model": "glm_ocr", "reader": "glm_ocr", "reading": {"line_height": 28}}
    reader = Settings.of(tmp_path, {**cpu, "recognition": section}).recognition
    assert isinstance(reader, TransformersRecognizer)
    assert reader.served.line_height == 28
    assert reader.repo == "zai-org/GLM-OCR"
    with pytest.raises(ConfigError, match="reading"):
        Settings.of(tmp_path, {**cpu, "recognition": {**section, "reading": {"line_height": 4}}})


@pytest.mark.parametrize("config", ["{}", '{"model_type": "glm_ocr", "text_config": 5}'])
def test_a_checkpoint_that_is_none_is_told_in_one_line(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(EngineError, match="cannot be loaded by transformers"):
        texts(here("glm_ocr", tmp_path))


def test_weights_that_were_cut_off_are_told_in_one_line(tmp_path: Path) -> None:
    weights = save_glm_ocr(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(EngineError, match=r"cannot be loaded by transformers: .*try `kopub pull`"):
        texts(here("glm_ocr", weights.parent))


def test_weights_that_lack_a_tensor_are_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = save_glm_ocr(tmp_path) / "model.safetensors"
    tensors = load_file(weights)
    del tensors["model.visual.blocks.0.mlp.gate_proj.bias"]
    save_file(tensors, weights, metadata={"format": "pt"})
    with pytest.raises(EngineError, match=r"not a whole checkpoint: 1 tensors such as .*gate_proj\.bias are missing"):
        texts(here("glm_ocr", weights.parent))


@pytest.mark.parametrize("index", ['{"metadata": {}}', '{"weight_map": {}}', "[]"])
def test_an_index_of_weights_that_is_none_is_told_in_one_line(tmp_path: Path, index: str) -> None:
    weights = save_glm_ocr(tmp_path) / "model.safetensors"
    weights.rename(weights.with_name("model-00001-of-00001.safetensors"))
    weights.with_name("model.safetensors.index.json").write_text(index)
    with pytest.raises(EngineError, match="cannot be loaded by transformers"):
        texts(here("glm_ocr", weights.parent))
