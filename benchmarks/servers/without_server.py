"""Compare a reader without a server and the same one on a server.

    python -m benchmarks.servers.without_server --model FOLDER --profile profiles/h200.yaml --random-weights
        --flag=--load-format=dummy --pages samples/corpus --count 300 --few 24 --batches 8 32

Each page has eight regions of the mean size (`--crop`) and answers of `--tokens` tokens. The reader without a server
reads `--few` pages for each batch size, after two for warm-up; the server reads `--count`, in the same run on one GPU.
`--random-weights` writes weights of real size beside the model's configuration, because a server can make them up, but
transformers cannot.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.servers.recognition import (
    HEAD,
    Work,
    measured,
    ours,
    pages_by_grid,
    recognizer_of,
    server_arguments,
    server_fields,
    unique_pages,
)
from kopub.recognition.vlm.in_process import TransformersRecognizer
from kopub.vllm.server import VLLMServer


def with_weights(folder: Path) -> Path:
    """Return a copy of a model's folder with random weights in bfloat16."""
    import torch
    from transformers import AutoConfig, AutoModelForImageTextToText

    made = Path(tempfile.mkdtemp(prefix="random-weights-"))
    config = AutoConfig.from_pretrained(folder)
    with torch.device("cuda"):
        model = AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16)
    model.save_pretrained(made)
    for file in folder.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            shutil.copy(file, made)
    return made


def in_process(model: Path, work: Work, warm: Work, tokens: int, batch: int) -> float:
    """Return the regions that a reader without a server reads a second."""
    reader = TransformersRecognizer(
        reader="glm_ocr",
        repo=str(model),
        device="cuda",
        batch_size=batch,
        pages_at_once=max(2, batch // 4),
        reading={"tries": 1, "sampling": {"ignore_eos": True, "max_tokens": tokens}},
    )
    try:
        list(reader.read(warm))
        began = time.perf_counter()
        answers = [text for reading in reader.read(work) for text in reading.regions]
        took = time.perf_counter() - began
    finally:
        reader.release()
    assert all(text.finish_reason == "length" for text in answers), "an answer failed or ended early"
    return len(answers) / took


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    server_arguments(parser)
    parser.add_argument("--in-flight", type=int, default=768)
    parser.add_argument("--few", type=int, default=24, help="pages for the reader without a server")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 32], help="its sizes of batch")
    parser.add_argument("--random-weights", action="store_true")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    by_grid = pages_by_grid(arguments)
    model = with_weights(Path(arguments.model)) if arguments.random_weights else Path(arguments.model)
    rates = {}
    for batch in arguments.batches:
        work = unique_pages(by_grid, arguments.few, f"batches of {batch}")
        rates[batch] = in_process(model, work, unique_pages(by_grid, 2, "warm"), arguments.tokens, batch)
        print(f"without a server, batches of {batch}: {rates[batch]:.1f} regions/s", flush=True)
    server = VLLMServer(**server_fields(arguments))
    reader = recognizer_of("glm_ocr", server, arguments.tokens, arguments.in_flight, arguments.processes)
    with reader.server.lease() as endpoint:
        ours(unique_pages(by_grid, 40, "warm-up"), reader, endpoint, "warm-up")
        print(HEAD)
        work = unique_pages(by_grid, arguments.count, "pages")
        served = measured(lambda: ours(work, reader, endpoint, "with a server"), endpoint).steady[0]
    for batch, rate in rates.items():
        print(f"with a server {served / rate:.1f} times as fast as without one in batches of {batch}")


if __name__ == "__main__":
    main()
