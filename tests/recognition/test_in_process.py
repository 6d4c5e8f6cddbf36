"""Reading in process with transformers; the files `*_real.py` compare its words with those of a server."""

from pathlib import Path

import pytest

from kopub.config.settings import Settings
from kopub.errors import ConfigError, EngineError
from kopub.pages.page import Page
from kopub.recognition.vlm.in_process import TransformersRecognizer
from tests.support.checkpoints.tiny_vlm import save_glm_ocr
from tests.support.in_process import here, texts, three_lines
from tests.support.installed import needs

pytestmark = [pytest.mark.slow, needs("torch", "transformers")]


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
    ((page, regions),) = three_lines()
    stopped = reader.read((Page(f"p{number}", page.data), regions) for number in range(4))
    next(stopped)
    stopped.close()  # pyright: ignore[reportAttributeAccessIssue] - it is a generator
    assert len(texts(reader)) == len(regions)
    reader.release()


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
