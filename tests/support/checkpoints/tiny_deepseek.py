"""A tiny DeepSeek-OCR, or DeepSeek-OCR-2, for a real vLLM on the CPU: configuration and tokenizer, no weights.

Its weights are made where it is served, by `tiny_deepseek_serve`.
"""

import json
from pathlib import Path

from tests.support.checkpoints.tiny_vlm import byte_tokenizer

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
SPECIALS = (
    BOS, EOS, "<｜▁pad▁｜>", "<image>", "<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>", "<|grounding|>", "<td>", "</td>",
)  # fmt: skip
"""As those of the model, which are special too: not written unless a request says so."""
WIDTH = 64


def save_deepseek_ocr(folder: Path, ocr2: bool = False) -> Path:
    """Two dense layers of width 64; the two towers, whose size is no part of a configuration, have one each.

    The second generation's projector sees one tower alone, which has looked at the other's features.
    """
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(SPECIALS),
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
            "input_dim": WIDTH if ocr2 else 2 * WIDTH,
            "n_embed": WIDTH,
        },
        "vision_config": {"model_type": "vision", "image_size": 1024},
        "language_config": {
            **ids,
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            "torch_dtype": "bfloat16",
            "vocab_size": len(tokenizer),
            "hidden_size": WIDTH,
            "intermediate_size": 2 * WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 2,
            "max_position_embeddings": 8192,
            "n_routed_experts": 2,
            "first_k_dense_replace": 2,
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
