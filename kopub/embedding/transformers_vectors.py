"""Vectors of Qwen3-VL-Embedding as its authors make them, with only transformers.

They are made one by one, in float32, on the host. `python transformers_vectors.py CHECKPOINT INPUTS OUTPUT`: INPUTS is
a JSON list of {instruction, text} and of {instruction, image (a path), max_pixels}, which may also have a text; OUTPUT
is a .npy of raw vectors, before any normalisation. It runs in vLLM's environment, as a process of its own, whose end
frees the memory.
"""

import json
import math
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import Qwen3VLModel, Qwen3VLProcessor

_FACTOR, _LEAST = 32, 4 * 32 * 32
"""The number of which sides are multiples, and the fewest pixels of a picture."""


def resized(image: Image.Image, most: int) -> Image.Image:
    """Resize a picture to at most `most` pixels, as the authors' qwen_vl_utils does."""
    width, height = image.size
    w, h = (max(_FACTOR, round(side / _FACTOR) * _FACTOR) for side in (width, height))
    if w * h > most:
        beta = math.sqrt(width * height / most)
        w, h = (math.floor(side / beta / _FACTOR) * _FACTOR for side in (width, height))
    elif w * h < _LEAST:
        beta = math.sqrt(_LEAST / (width * height))
        w, h = (math.ceil(side * beta / _FACTOR) * _FACTOR for side in (width, height))
    return image.resize((w, h))


def main(checkpoint: str, inputs: str, output: str) -> None:
    """Write the vectors of INPUTS to OUTPUT."""
    processor: Any = Qwen3VLProcessor.from_pretrained(checkpoint)
    model: Any = Qwen3VLModel.from_pretrained(checkpoint, dtype=torch.float32).eval()
    vectors = []
    with open(inputs, encoding="utf-8") as file:
        items = json.load(file)
    for item in items:
        content = [{"type": "image"}] if "image" in item else []
        content += [{"type": "text", "text": item["text"]}] if "text" in item else []
        conversation = [
            {"role": "system", "content": [{"type": "text", "text": item["instruction"]}]},
            {"role": "user", "content": content},
        ]
        prompt = processor.apply_chat_template([conversation], add_generation_prompt=True, tokenize=False)
        images = None
        if "image" in item:
            images = [resized(Image.open(item["image"]).convert("RGB"), item["max_pixels"])]
        batch = processor(text=prompt, images=images, do_resize=False, padding=True, return_tensors="pt")
        with torch.no_grad():
            model.rope_deltas = None
            vectors.append(model(**batch).last_hidden_state[0, -1].numpy())
    np.save(output, np.stack(vectors))


if __name__ == "__main__":
    main(*sys.argv[1:])
