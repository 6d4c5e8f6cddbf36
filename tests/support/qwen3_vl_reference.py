"""Vectors as the authors of Qwen3-VL-Embedding make them, with transformers alone: one by one, in float32.

`python qwen3_vl_reference.py CHECKPOINT INPUTS OUTPUT`: INPUTS is a JSON list of {instruction, text or image (a path)},
OUTPUT a .npy of raw vectors, before any normalisation. Runs in the environment of vLLM.
"""

import json
import math
import sys
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import Qwen3VLModel, Qwen3VLProcessor

FACTOR, LEAST, MOST = 32, 4 * 32 * 32, 1800 * 32 * 32


def resized(image: Image.Image) -> Image.Image:
    """What the authors' qwen_vl_utils does before the processor sees a picture."""
    width, height = image.size
    w, h = (max(FACTOR, round(side / FACTOR) * FACTOR) for side in (width, height))
    if w * h > MOST:
        beta = math.sqrt(width * height / MOST)
        w, h = (math.floor(side / beta / FACTOR) * FACTOR for side in (width, height))
    elif w * h < LEAST:
        beta = math.sqrt(LEAST / (width * height))
        w, h = (math.ceil(side * beta / FACTOR) * FACTOR for side in (width, height))
    return image.resize((w, h))


def main(checkpoint: str, inputs: str, output: str) -> None:
    torch.set_num_threads(1)
    processor: Any = Qwen3VLProcessor.from_pretrained(checkpoint)
    model = Qwen3VLModel.from_pretrained(checkpoint, dtype=torch.float32).eval()
    vectors = []
    with open(inputs, encoding="utf-8") as file:
        items = json.load(file)
    for item in items:
        content = [{"type": "image"}] if "image" in item else [{"type": "text", "text": item["text"]}]
        conversation = [
            {"role": "system", "content": [{"type": "text", "text": item["instruction"]}]},
            {"role": "user", "content": content},
        ]
        prompt = processor.apply_chat_template([conversation], add_generation_prompt=True, tokenize=False)
        images = [resized(Image.open(item["image"]).convert("RGB"))] if "image" in item else None
        made = processor(text=prompt, images=images, do_resize=False, padding=True, return_tensors="pt")
        with torch.no_grad():
            model.rope_deltas = None
            vectors.append(model(**made).last_hidden_state[0, -1].numpy())
    np.save(output, np.stack(vectors))


if __name__ == "__main__":
    main(*sys.argv[1:])
