"""Tiny random checkpoints of GLM-OCR and Qwen3-VL in the Hub's layout, under 4 MB.

Greedy answers of the GLM-OCR one are printable ASCII and Hangul text that depends on the image, and most reach an end
token.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_HANGUL = "가나다라마바사아자차카타파하은는이을를의에도서로고한국어문표제목년월일수금액합계"
_GLM_SPECIALS = (
    "<|endoftext|>", "[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|begin_of_image|>",
    "<|end_of_image|>", "<|begin_of_video|>", "<|end_of_video|>", "<|image|>", "<|video|>", "<think>", "</think>",
)  # fmt: skip
_QWEN_SPECIALS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
)  # fmt: skip

# `{%-` also strips the line break before it, so a line that must end is followed by a plain `{%` or a text.
_GLM_TEMPLATE = """[gMASK]<sop>
{%- for message in messages %}<|{{ message.role }}|>
{% if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content %}
{%- if part.type in ("image", "image_url") %}<|begin_of_image|><|image|><|end_of_image|>
{%- else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>
{% endif %}"""
_QWEN_TEMPLATE = """{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}
{%- else %}{% for part in message.content %}
{%- if part.type in ("image", "image_url") %}<|vision_start|><|image_pad|><|vision_end|>
{%- else %}{{ part.text }}{% endif %}
{%- endfor %}{% endif %}<|im_end|>
{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def save_glm_ocr(folder: Path) -> Path:
    """Save a GLM-OCR in bf16 with 2 + 2 layers of width 64."""
    import torch
    from transformers import GlmOcrConfig, GlmOcrForConditionalGeneration

    tokenizer = _save_tokenizer(folder, byte_tokenizer(_GLM_SPECIALS), "Glm46VProcessor", _GLM_TEMPLATE)
    special = {name: token_id(tokenizer, name) for name in _GLM_SPECIALS}
    ends = [special["<|endoftext|>"], special["<|user|>"]]
    width = 64
    config = GlmOcrConfig(
        architectures=["GlmOcrForConditionalGeneration"],
        dtype="bfloat16",
        image_token_id=special["<|image|>"],
        video_token_id=special["<|video|>"],
        image_start_token_id=special["<|begin_of_image|>"],
        image_end_token_id=special["<|end_of_image|>"],
        video_start_token_id=special["<|begin_of_video|>"],
        video_end_token_id=special["<|end_of_video|>"],
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": width,
            "intermediate_size": 3 * width,  # vLLM takes it for the width of the vision merger, transformers 3 * out
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 32_768,
            "num_nextn_predict_layers": 0,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 1.0,
                "mrope_section": [4, 6, 6],
            },
            "pad_token_id": ends[0],
            "eos_token_id": ends,
        },
        vision_config={
            "depth": 2,
            "hidden_size": width,
            "num_heads": 2,
            "intermediate_size": 2 * width,
            "out_hidden_size": width,
        },
    )
    torch.manual_seed(0)
    model = GlmOcrForConditionalGeneration(config)
    writable = [token_id(tokenizer, token) for token in printable(tokenizer)]
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                # Wide enough that each token affects the next, so that an answer does not fall into a loop.
                torch.nn.init.normal_(parameter, std=1.0 if "embed_tokens" in name else 0.25)
        write_only(model.lm_head.weight, [*writable, *ends])
        model.lm_head.weight[ends] *= 1.5  # of some 130 tokens, these two come up often enough to end an answer
    model.bfloat16().save_pretrained(folder)
    _dump(folder, "generation_config.json", {"do_sample": False, "eos_token_id": ends, "pad_token_id": ends[0]})
    _save_processor(folder, "Glm46V", patch=14, shortest=12_544, longest=9_633_792, mean=0.48, std=0.27)
    return folder


def save_qwen3_vl(folder: Path, reranker: bool = False) -> Path:
    """Save a Qwen3-VL in bf16 (3 + 3 layers of width 128), Qwen3-VL-Embedding's backbone.

    The one of a `reranker` has the words yes and no in its vocabulary, and its tokenizer adds nothing to a prompt.
    """
    import torch
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    made = reranker_tokenizer() if reranker else qwen_tokenizer()
    tokenizer = _save_tokenizer(folder, made, "Qwen3VLProcessor", _QWEN_TEMPLATE)
    special = {name: token_id(tokenizer, name) for name in _QWEN_SPECIALS}
    width = 128
    config = Qwen3VLConfig(
        architectures=["Qwen3VLForConditionalGeneration"],
        dtype="bfloat16",
        image_token_id=special["<|image_pad|>"],
        video_token_id=special["<|video_pad|>"],
        vision_start_token_id=special["<|vision_start|>"],
        vision_end_token_id=special["<|vision_end|>"],
        tie_word_embeddings=True,
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": width,
            "intermediate_size": 2 * width,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "max_position_embeddings": 32_768,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000.0,
                "mrope_interleaved": True,
                "mrope_section": [6, 5, 5],
            },
            "pad_token_id": special["<|endoftext|>"],
        },
        vision_config={
            "depth": 3,
            "hidden_size": 64,
            "num_heads": 2,
            "intermediate_size": 128,
            "out_hidden_size": width,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0, 1],
        },
    )
    torch.manual_seed(0)
    model = Qwen3VLForConditionalGeneration(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.5 if "embed_tokens" in name else 0.1)
        if reranker:
            # Make its answers undecided, because scores that are all close to 0 or 1 would have no order.
            model.lm_head.weight[[token_id(tokenizer, word) for word in ("yes", "no")]] *= 0.2
    model.bfloat16().save_pretrained(folder)
    ends = [special["<|im_end|>"], special["<|endoftext|>"]]
    _dump(folder, "generation_config.json", {"do_sample": False, "eos_token_id": ends, "pad_token_id": ends[1]})
    _save_processor(folder, "Qwen3VL", patch=16, shortest=4096, longest=1_843_200, mean=0.5, std=0.5)
    return folder


def qwen_tokenizer() -> "Tokenizer":
    """Return a small tokenizer of Qwen3-VL-Embedding, which ends prompts with the token that is pooled."""
    from tokenizers import processors

    tokenizer = byte_tokenizer(_QWEN_SPECIALS)
    end = _QWEN_SPECIALS[0]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A $B {end}", special_tokens=[(end, tokenizer.token_to_id(end))]
    )
    return tokenizer


def reranker_tokenizer() -> "Tokenizer":
    tokenizer = byte_tokenizer(_QWEN_SPECIALS)
    tokenizer.add_tokens(["yes", "no"])
    return tokenizer


def byte_tokenizer(specials: tuple[str, ...], size: int = 0) -> "Tokenizer":
    """Return a tokenizer of bytes, some Hangul syllables and special tokens, padded to `size` tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    pieces = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    vocabulary = {byte: number for number, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges: list[tuple[str, str]] = []
    for syllable in dict.fromkeys(_HANGUL):
        first, second, third = pieces.pre_tokenize_str(syllable)[0][0]
        for pair in ((first, second), (first + second, third)):
            if "".join(pair) not in vocabulary:
                vocabulary["".join(pair)] = len(vocabulary)
                merges.append(pair)
    vocabulary |= {f"x{number}x": number for number in range(len(vocabulary), size - len(specials))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pieces
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    return tokenizer


def _save_tokenizer(folder: Path, tokenizer: "Tokenizer", processor: str, template: str) -> "PreTrainedTokenizerFast":
    from transformers import PreTrainedTokenizerFast

    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=32_768,
        processor_class=processor,
        chat_template=template,
    )
    folder.mkdir(parents=True, exist_ok=True)
    fast.save_pretrained(folder)
    return fast


def _save_processor(
    folder: Path, family: str, patch: int, shortest: int, longest: int, mean: float, std: float
) -> None:
    common: dict[str, Any] = {
        "processor_class": f"{family}Processor",
        "size": {"shortest_edge": shortest, "longest_edge": longest},  # areas in pixels, whatever they are called
        "patch_size": patch,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [mean] * 3,
        "image_std": [std] * 3,
    }
    image = "Glm46VImageProcessor" if family == "Glm46V" else "Qwen2VLImageProcessorFast"
    _dump(folder, "preprocessor_config.json", {**common, "image_processor_type": image})
    _dump(folder, "video_preprocessor_config.json", {**common, "video_processor_type": f"{family}VideoProcessor"})


def printable(tokenizer: "PreTrainedTokenizerFast") -> list[str]:
    """Return the tokens that are whole printable characters."""
    tokens = tokenizer.get_vocab().keys() - tokenizer.get_added_vocab().keys()
    texts = {token: str(tokenizer.decode([token_id(tokenizer, token)])) for token in tokens}
    return sorted(token for token, text in texts.items() if text.isprintable() and (text.isascii() or text in _HANGUL))


def write_only(weight: "torch.Tensor", allowed: list[int]) -> None:
    """Zero the other rows, which then never win because some allowed product is positive."""
    import torch

    forbidden = torch.ones(len(weight), dtype=torch.bool)
    forbidden[allowed] = False
    weight[forbidden] = 0


def token_id(tokenizer: "PreTrainedTokenizerFast", token: str) -> int:
    number = tokenizer.convert_tokens_to_ids(token)
    assert isinstance(number, int)
    return number


def _dump(folder: Path, name: str, value: Any) -> None:
    (folder / name).write_text(json.dumps(value), "utf-8")
