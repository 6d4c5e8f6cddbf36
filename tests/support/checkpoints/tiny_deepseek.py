"""Configuration and tokenizer of a tiny DeepSeek-OCR or DeepSeek-OCR-2 for vLLM on the CPU.

`tiny_deepseek_serve` makes the weights when it serves the model.

    python -m tests.support.checkpoints.tiny_deepseek FOLDER

writes DeepSeek-OCR of the real size, for `--load-format dummy`.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tests.support.checkpoints.tiny_vlm import byte_tokenizer

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SPECIALS = (
    BOS, EOS, "<｜▁pad▁｜>", "<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>", "<td>", "</td>",
)  # fmt: skip
"""Special tokens, as in the real model: an answer omits them unless a request asks for them."""
WIDTH = 64
_TINY: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "n_routed_experts": 2,
    "first_k_dense_replace": 2,
}
_REAL: dict[str, Any] = {
    "hidden_size": 1280,
    "intermediate_size": 6848,
    "moe_intermediate_size": 896,
    "num_hidden_layers": 12,
    "num_attention_heads": 10,
    "num_key_value_heads": 10,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
}
_REAL_VOCABULARY = 129_280
_REAL_FEATURES = 2048


def save_deepseek_ocr(folder: Path, ocr2: bool = False) -> Path:
    """Save a model with two dense layers of width 64.

    The sizes of its vision towers are not in a configuration; served, they have one layer each. DeepSeek-OCR-2's
    projector gets the features of one tower only, which has read those of the other.
    """
    return _save(folder, _TINY, WIDTH if ocr2 else 2 * WIDTH, 0, ocr2)


def save_real_size(folder: Path) -> Path:
    """Save configuration and tokenizer of the real size, without weights."""
    return _save(folder, _REAL, _REAL_FEATURES, _REAL_VOCABULARY)


def _save(folder: Path, language: dict[str, Any], features: int, vocabulary: int, ocr2: bool = False) -> Path:
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(SPECIALS, vocabulary),
        bos_token=BOS,
        eos_token=EOS,
        pad_token=SPECIALS[2],
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
    )
    tokenizer.save_pretrained(folder)
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = {
        **ids,
        "architectures": ["DeepseekOCR2ForCausalLM" if ocr2 else "DeepseekOCRForCausalLM"],
        "model_type": "deepseek_vl_v2",
        "torch_dtype": "bfloat16",
        "tile_tag": "2D",
        "global_view_pos": "head",
        "candidate_resolutions": [[1024, 1024]],
        "projector_config": {
            "model_type": "mlp_projector",
            "projector_type": "linear",
            "input_dim": features,
            "n_embed": language["hidden_size"],
        },
        "vision_config": {"model_type": "vision", "image_size": 1024},
        "language_config": {
            **ids,
            **language,
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            "torch_dtype": "bfloat16",
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 8192,
            "use_mla": False,
            "kv_lora_rank": None,
            "q_lora_rank": None,
            "qk_nope_head_dim": 0,
            "qk_rope_head_dim": 0,
            "v_head_dim": 0,
        },
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


if __name__ == "__main__":
    save_real_size(Path(sys.argv[1]))
