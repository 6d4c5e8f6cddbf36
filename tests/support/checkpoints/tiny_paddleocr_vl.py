"""Checkpoints of PaddleOCR-VL in the Hub's layout: a tiny one with weights for tests.

    python -m tests.support.checkpoints.tiny_paddleocr_vl FOLDER

writes one of the real size without weights, for `--load-format dummy`.
"""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.checkpoints.tiny_vlm import byte_tokenizer, printable, token_id, write_only

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

IMAGE = "<|IMAGE_PLACEHOLDER|>"
_SPECIALS = (
    "<unk>", "<s>", "</s>", "<|begin_of_sentence|>", "<|end_of_sentence|>", IMAGE, "<|IMAGE_START|>", "<|IMAGE_END|>",
)  # fmt: skip
OTSL = ("<fcel>", "<ecel>", "<lcel>", "<ucel>", "<xcel>", "<nl>")
"""Added tokens that are not special, so an answer keeps them."""
_TEMPLATE = r"""<|begin_of_sentence|>
{%- for message in messages %}User: {% for part in message.content %}
{%- if part.type in ("image", "image_url") %}<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{% endif %}
{%- endfor %}
{%- for part in message.content %}
{%- if part.type == "text" %}{{ part.text }}{% endif %}
{%- endfor %}{{ "\n" }}
{%- endfor %}
{%- if add_generation_prompt %}Assistant:
{% endif %}"""
_TINY: dict[str, dict[str, Any]] = {
    "text": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 32_768,
    },
    # 16 learned positions, from which those of every image are interpolated.
    "vision": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 56,
    },
}
_REAL: dict[str, dict[str, Any]] = {
    "text": {
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 131_072,
    },
    "vision": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "image_size": 384,
    },
}
_REAL_VOCABULARY = 103_424


def save_paddleocr_vl(folder: Path) -> Path:
    """Save a PaddleOCR-VL in bf16 (2 + 2 layers of width 64) with image-dependent answers."""
    import torch
    from transformers import PaddleOCRVLForConditionalGeneration

    tokenizer = _save_tokenizer(folder)
    torch.manual_seed(0)
    model = PaddleOCRVLForConditionalGeneration(_config(tokenizer, _TINY))
    end = token_id(tokenizer, "</s>")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                std = 1.0 if "embed_tokens" in name or "linear_2" in name else 0.25
                torch.nn.init.normal_(parameter, std=std)
        write_only(
            model.lm_head.weight, [*(token_id(tokenizer, token) for token in (*printable(tokenizer), *OTSL)), end]
        )
        model.lm_head.weight[end] *= 1.5
    model.bfloat16().save_pretrained(folder)
    _save_processor(folder, end, token_id(tokenizer, "<unk>"))
    return folder


def save_real_size(folder: Path) -> Path:
    """Save configuration, tokenizer and processor of the real size, without weights."""
    tokenizer = _save_tokenizer(folder, _REAL_VOCABULARY)
    _config(tokenizer, _REAL).save_pretrained(folder)
    _save_processor(folder, token_id(tokenizer, "</s>"), token_id(tokenizer, "<unk>"))
    return folder


def _config(tokenizer: "PreTrainedTokenizerFast", sizes: dict[str, dict[str, Any]]) -> Any:
    from transformers import PaddleOCRVLConfig

    head = sizes["text"]["head_dim"] // 2
    return PaddleOCRVLConfig(
        architectures=["PaddleOCRVLForConditionalGeneration"],
        dtype="bfloat16",
        tie_word_embeddings=False,
        image_token_id=token_id(tokenizer, IMAGE),
        video_token_id=token_id(tokenizer, "<|end_of_sentence|>"),
        vision_start_token_id=token_id(tokenizer, "<|IMAGE_START|>"),
        vision_end_token_id=token_id(tokenizer, "<|IMAGE_END|>"),
        text_config={
            **sizes["text"],
            "vocab_size": len(tokenizer),
            "use_bias": False,
            "tie_word_embeddings": False,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 500_000.0,
                "mrope_section": [head // 4, head * 3 // 8, head * 3 // 8],
            },
            "pad_token_id": token_id(tokenizer, "<unk>"),
            "bos_token_id": token_id(tokenizer, "<s>"),
            "eos_token_id": token_id(tokenizer, "</s>"),
        },
        vision_config={**sizes["vision"], "patch_size": 14, "spatial_merge_size": 2},
    )


def _save_tokenizer(folder: Path, size: int = 0) -> "PreTrainedTokenizerFast":
    """Save a tokenizer of bytes, syllables and the model's own tokens, padded to `size`."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    tokenizer = byte_tokenizer(_SPECIALS, size - len(OTSL))
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in OTSL])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        pad_token="<unk>",
        cls_token="<|begin_of_sentence|>",
        extra_special_tokens={"image_token": IMAGE},
        clean_up_tokenization_spaces=False,
        model_max_length=32_768,
        processor_class="PaddleOCRVLProcessor",
        chat_template=_TEMPLATE,
    )
    folder.mkdir(parents=True, exist_ok=True)
    fast.save_pretrained(folder)
    return fast


def _save_processor(folder: Path, end: int, pad: int) -> None:
    picture = {
        "image_processor_type": "PaddleOCRVLImageProcessor",
        "processor_class": "PaddleOCRVLProcessor",
        "min_pixels": 112_896,
        "max_pixels": 1_003_520,
        "patch_size": 14,
        "merge_size": 2,
        "temporal_patch_size": 1,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "resample": 3,
    }
    files = {
        "preprocessor_config.json": picture,
        "processor_config.json": {"processor_class": "PaddleOCRVLProcessor"},
        "generation_config.json": {"do_sample": False, "eos_token_id": end, "pad_token_id": pad},
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value), "utf-8")


if __name__ == "__main__":
    save_real_size(Path(sys.argv[1]))
