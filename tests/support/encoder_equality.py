"""How far GLM-OCR's encoder of the plugin is from vLLM's own, in one process with vLLM, on a CPU or a GPU.

    KOPUB_GLM_OCR_ENCODER=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 \\
        python -m tests.support.encoder_equality FOLDER [LOAD_FORMAT]

Prints, as JSON, the classes in use, the norm of the difference over that of vLLM's result, and whether
image embeddings are put in the same places.
"""

import json
import sys
from typing import Any

GRIDS = ((1, 10, 8), (1, 4, 30), (1, 2, 2), (1, 10, 8))
"""Frames, rows and columns of patches: a picture twice, a line, the least."""


def compared(model: Any) -> dict[str, Any]:
    import torch
    from vllm.model_executor.models.glm_ocr import GlmOcrForConditionalGeneration, GlmOcrVisionTransformer

    visual = model.visual
    torch.manual_seed(0)
    grid = torch.tensor(GRIDS)
    patches = torch.randn(int(grid.prod(-1).sum()), 3 * 2 * 14 * 14).to(visual.device, visual.dtype)
    with torch.inference_mode():
        theirs = GlmOcrVisionTransformer.forward(visual, patches.clone(), grid).float()
        ours = visual.forward(patches.clone(), grid).float()
        ids = torch.randint(0, 100, (40,), device=visual.device)
        places = torch.zeros(40, dtype=torch.bool)
        places[3:9] = places[20:31] = True
        pictures = list(torch.randn(17, visual.out_hidden_size).to(visual.device, visual.dtype).split([6, 11]))
        embeds = [
            kind.embed_input_ids(model, ids, pictures, is_multimodal=places)
            for kind in (GlmOcrForConditionalGeneration, type(model))
        ]
    return {
        "encoder": f"{type(visual).__module__}.{type(visual).__qualname__}",
        "difference": float((ours - theirs).norm() / theirs.norm()),
        "size": float(theirs.norm()),
        "same_embeddings": torch.equal(*embeds),
    }


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
