"""The `vllm` command, in which both generations of DeepSeek-OCR are tiny.

The sizes of the two vision towers are in vLLM's code, not in a configuration, and real ones take ten seconds per image
on a CPU. Here they have one layer of width 64, and the weights make the model write printable text that depends on the
image. Processes that vLLM spawns import this file too.
"""

import zlib
from functools import partial
from typing import Any

import torch
import vllm.model_executor.models.deepseek_ocr as deepseek
import vllm.model_executor.models.deepseek_ocr2 as deepseek2
from transformers import CLIPVisionConfig
from vllm.entrypoints.cli.main import main
from vllm.model_executor.model_loader.dummy_loader import (
    DummyModelLoader,
)
from vllm.model_executor.models.deepencoder import ImageEncoderViT
from vllm.model_executor.models.deepencoder2 import Qwen2Decoder2Encoder
from vllm.tokenizers import cached_tokenizer_from_config

_WIDTH = 64


def _sam(**fields: Any) -> Any:
    norm = partial(torch.nn.LayerNorm, eps=1e-6)
    return ImageEncoderViT(
        depth=1, embed_dim=_WIDTH, num_heads=2, norm_layer=norm, use_rel_pos=True, window_size=14,
        last_conv_output=_WIDTH,
    )  # fmt: skip


def _clip(**fields: Any) -> CLIPVisionConfig:
    small = {"hidden_size": _WIDTH, "intermediate_size": _WIDTH, "num_attention_heads": 2, "num_hidden_layers": 1}
    return CLIPVisionConfig(**{**fields, **small})


def _qwen2() -> Any:
    return Qwen2Decoder2Encoder(
        decoder_layer=1, hidden_dimension=_WIDTH, num_attention_heads=2, num_key_value_heads=2, intermediate_size=_WIDTH
    )


def _fill(loader: Any, model: torch.nn.Module, model_config: Any) -> None:
    tokenizer = cached_tokenizer_from_config(model_config)
    special = set(tokenizer.all_special_ids) | set(tokenizer.get_added_vocab().values())
    texts = {number: tokenizer.decode([number]) for number in range(len(tokenizer)) if number not in special}
    writable = [number for number, text in texts.items() if text.isprintable() and "\ufffd" not in text]
    for name, parameter in model.named_parameters():
        seeded = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        if parameter.dim() > 1 or "image_newline" in name or "view_seperator" in name:
            wide = 1.0 if "embed_tokens" in name else 0.25
            parameter.data.copy_(torch.randn(parameter.shape, generator=seeded) * wide)
        else:
            parameter.data.fill_(0.0 if name.endswith("bias") else 1.0)
        if "lm_head" in name:
            # Rows of zeros never have the largest product; the larger row of the end token ends answers soon enough.
            keep = torch.zeros(len(parameter), 1)
            keep[writable] = 1.0
            keep[tokenizer.eos_token_id] = 1.5
            parameter.data.mul_(keep)


deepseek.build_sam_vit_b = _sam
deepseek.CLIPVisionConfig = _clip
deepseek2.ImageEncoderViT = _sam
deepseek2.build_qwen2_decoder_as_encoder = _qwen2
DummyModelLoader.load_weights = _fill

if __name__ == "__main__":
    main()
