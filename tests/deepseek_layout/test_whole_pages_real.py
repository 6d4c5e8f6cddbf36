"""Whole pages through real vLLM on the CPU: request form, tokens, guard, end of context.

A tiny model writes random text without boxes, so every page ends with a reason.
"""

from pathlib import Path

import pytest

from kopub.pages.page import Page
from kopub.recognition.deepseek_layout.detector import DeepSeekOcrLayout
from kopub.recognition.vlm.client.deepseek import TiledImage, tiled_image
from kopub.recognition.vlm.client.region_images import pack_pixels
from kopub.recognition.vlm.deepseek_ocr import MARKDOWN, SAMPLING
from kopub.states import State
from tests.recognition.test_deepseek_ocr_real import asked, pairs, server_of
from tests.support.checkpoints.tiny_deepseek import EOS, save_deepseek_ocr
from tests.support.servers.vllm_cpu import needs_vllm
from tests.support.sources.grounded_pages import drawn_page


def picture(page: Page) -> TiledImage:
    return tiled_image(pack_pixels(page.image))


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(900)
def test_pages_are_asked_for_as_the_real_model_s_classes_take_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")  # the test's own requests
    server = server_of(save_deepseek_ocr(tmp_path / "deepseek-ocr"))
    page = drawn_page()
    with server.lease() as endpoint:
        detector = DeepSeekOcrLayout(server=server, processes=1, sampling={"max_tokens": 24})
        (layout,) = detector.detect([page])
        figures = detector.take_figures()
        assert layout.state in (State.PARTIAL, State.FAILED)
        assert layout.reason
        assert not any(EOS in (region.text or "") for region in layout.regions)
        # An A4 page and its two parts, of four and two tiles; with another token count the server would be refused.
        assert figures["requests"] == 3
        assert figures["image_tokens"] == 903 + 693 + 483
        assert figures.get("answers_refused", 0) == 0

        # The guard is set as the engine sets it, with the tokens of a table's cells as exceptions.
        answer = asked(endpoint, picture(page), **{**SAMPLING, "max_tokens": 200}, return_token_ids=True)
        assert answer["usage"]["prompt_tokens"] == 903 + len("<\nFree OCR.")
        guard = {**SAMPLING["vllm_xargs"], "ngram_size": 2, "window_size": 200}
        never_twice = asked(endpoint, picture(page), ignore_eos=True, return_token_ids=True, vllm_xargs=guard)
        assert max(pairs(never_twice).values()) == 1

        # An answer may take all that the context leaves, and is then cut off.
        assert len(MARKDOWN) < 64
        full = DeepSeekOcrLayout(server=server, processes=1, sampling={"ignore_eos": True}, halves_share=0.0)
        (cut,) = full.detect([page])
        assert full.take_figures()["answer_tokens"] == 8192 - 903 - 64
        assert cut.state in (State.PARTIAL, State.FAILED)


@pytest.mark.slow
@pytest.mark.vllm
@needs_vllm
@pytest.mark.timeout(900)
def test_the_second_generation_takes_pages_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPUB_RUNTIME", str(tmp_path))
    server = server_of(save_deepseek_ocr(tmp_path / "deepseek-ocr-2", ocr2=True))
    with server.lease():
        detector = DeepSeekOcrLayout(server=server, processes=1, sampling={"max_tokens": 24}, ocr2=True)
        (layout,) = detector.detect([drawn_page()])
        figures = detector.take_figures()
    assert layout.state in (State.PARTIAL, State.FAILED)
    assert layout.reason
    # A4 has six tiles of 768, of 144 tokens each, and its parts have four and two.
    assert figures["requests"] == 3
    assert figures["image_tokens"] == 1121 + 833 + 545
    assert figures.get("answers_refused", 0) == 0
