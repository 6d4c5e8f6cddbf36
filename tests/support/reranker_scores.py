"""Score pairs with transformers: `python reranker_scores.py CHECKPOINT INPUTS.json OUTPUT.npy`.

As in the authors' own code, a score is the likelihood of yes against no as the answer's first token, in float32.
"""

import json
import sys
from typing import Any


def main(checkpoint: str, inputs: str, output: str) -> None:
    import numpy as np
    import torch
    from PIL import Image
    from transformers import Qwen3VLForConditionalGeneration, Qwen3VLProcessor

    processor: Any = Qwen3VLProcessor.from_pretrained(checkpoint)
    model: Any = Qwen3VLForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    words = processor.tokenizer.convert_tokens_to_ids(["yes", "no"])
    scores = []
    with open(inputs, encoding="utf-8") as file:
        items = json.load(file)
    for item in items:
        parts = [
            {"type": "text", "text": f"<Instruct>: {item['instruction']}"},
            {"type": "text", "text": "<Query>:"},
            {"type": "text", "text": item["question"]},
            {"type": "text", "text": "\n<Document>:"},
        ]
        parts += [{"type": "image"}] if "image" in item else []
        parts += [{"type": "text", "text": item["text"]}] if "text" in item else []
        conversation = [
            {"role": "system", "content": [{"type": "text", "text": item["system"]}]},
            {"role": "user", "content": parts},
        ]
        prompt = processor.apply_chat_template([conversation], add_generation_prompt=True, tokenize=False)
        images = [Image.open(item["image"]).convert("RGB")] if "image" in item else None
        made = processor(text=prompt, images=images, do_resize=False, return_tensors="pt")
        with torch.no_grad():
            model.model.rope_deltas = None
            yes, no = model(**made).logits[0, -1, words].tolist()
        scores.append(1 / (1 + np.exp(no - yes)))
    np.save(output, np.array(scores))


if __name__ == "__main__":
    main(*sys.argv[1:])
