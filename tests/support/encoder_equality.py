"""Compare an encoder of the plugin with vLLM's own, in vLLM's process.

    KOPUB_GLM_OCR_ENCODER=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 \\
        python -m tests.support.encoder_equality FOLDER [LOAD_FORMAT]

Prints as JSON: the module of the encoder in use, the norm of vLLM's result and that of the difference relative to it,
whether image embeddings are put in the same places, and the milliseconds of one pass of each over the `MANY` images.
"""

import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

GRIDS = ((1, 10, 8), (1, 4, 30), (1, 2, 2), (1, 10, 8))
"""Frames, rows and columns of patches: one image twice, a text line, and the smallest image."""
MANY = ((1, 30, 58),) * 8 + ((1, 6, 108),) * 24
"""Eight regions of the mean size and 24 lines."""
ROUNDS = 5


def compared(model: Any) -> dict[str, Any]:
    import torch
    from vllm.model_executor.models.glm_ocr import GlmOcrForConditionalGeneration

    torch.manual_seed(0)
    is_glm = isinstance(model, GlmOcrForConditionalGeneration)
    encoders = glm_ocr(model) if is_glm else paddleocr_vl(model)
    with torch.inference_mode():
        theirs, ours = (encode(GRIDS) for encode in encoders)
        times = [milliseconds(encode) for encode in encoders] if torch.cuda.is_available() else []
        same = same_embeddings(model, theirs.shape[-1])
    return {
        "encoder": type(model.visual).__module__ if is_glm else type(model).__module__,
        "difference": float((ours - theirs).norm() / theirs.norm()),
        "size": float(theirs.norm()),
        "same_embeddings": same,
        "milliseconds": times,
    }


Encode = Callable[[Sequence[tuple[int, int, int]]], Any]


def glm_ocr(model: Any) -> tuple[Encode, Encode]:
    """Return vLLM's encoder of GLM-OCR and ours."""
    import torch
    from vllm.model_executor.models.glm_ocr import GlmOcrVisionTransformer

    visual = model.visual

    def run(forward: Callable[..., Any]) -> Encode:
        def encode(grids: Sequence[tuple[int, int, int]]) -> Any:
            torch.manual_seed(1)
            grid = torch.tensor(grids)
            patches = torch.randn(int(grid.prod(-1).sum()), 3 * 2 * 14 * 14, **kind_of(visual))
            return forward(visual, patches, grid).float()

        return encode

    return run(GlmOcrVisionTransformer.forward), run(type(visual).forward)


def paddleocr_vl(model: Any) -> tuple[Encode, Encode]:
    """Return vLLM's encoder of PaddleOCR-VL and ours."""
    import torch
    from vllm.model_executor.models.paddleocr_vl import PaddleOCRImagePixelInputs, PaddleOCRVLForConditionalGeneration

    def run(kind: Any) -> Encode:
        def encode(grids: Sequence[tuple[int, int, int]]) -> Any:
            torch.manual_seed(1)
            sizes = torch.tensor(grids)
            pixels = [torch.randn(count, 3, 14, 14, **kind_of(model.visual)) for count in sizes.prod(-1).tolist()]
            pictures = PaddleOCRImagePixelInputs(
                type="pixel_values",
                pixel_values=pixels,  # pyright: ignore[reportArgumentType] pictures of several sizes come as a list
                image_grid_thw=sizes,
            )
            return torch.cat(tuple(kind._process_image_input(model, pictures))).float()

        return encode

    return run(PaddleOCRVLForConditionalGeneration), run(type(model))


def kind_of(visual: Any) -> dict[str, Any]:
    return {"device": visual.device, "dtype": visual.dtype}


def same_embeddings(model: Any, width: int) -> bool:
    """Return whether vLLM's class and ours put image embeddings into the same places."""
    import torch

    weight = next(model.get_language_model().parameters())
    ids = torch.randint(0, 100, (40,), device=weight.device)
    places = torch.zeros(40, dtype=torch.bool)
    places[3:9] = places[20:31] = True
    pictures = list(torch.randn(17, width).to(weight.device, weight.dtype).split([6, 11]))
    theirs = next(kind for kind in type(model).__mro__ if kind.__module__.startswith("vllm."))
    embeds = [kind.embed_input_ids(model, ids, pictures, is_multimodal=places) for kind in (theirs, type(model))]
    return torch.equal(*embeds)


def milliseconds(encode: Encode) -> float:
    """Return the fastest of `ROUNDS` passes on a GPU, including the making of random pixels."""
    import torch

    spent = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        encode(MANY)
        torch.cuda.synchronize()
        spent.append(1000 * (time.perf_counter() - started))
    return round(min(spent), 2)


def main() -> None:
    import torch
    from vllm import LLM  # pyright: ignore[reportAttributeAccessIssue] tests/vllm is found for it

    folder, load_format = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "auto"
    llm = LLM(
        model=folder,
        load_format=load_format,
        dtype="bfloat16" if torch.cuda.is_available() else "float32",
        enforce_eager=True,
        max_model_len=2048,
        max_num_seqs=4,
        max_num_batched_tokens=6144,
        kv_cache_memory_bytes=128 << 20,
        limit_mm_per_prompt={"image": 1, "video": 0},
    )
    sys.stdout.write(json.dumps(llm.apply_model(compared)[0]) + "\n")


if __name__ == "__main__":
    main()
