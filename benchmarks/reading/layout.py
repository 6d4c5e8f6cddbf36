"""Measure layout: post-processing anywhere; the model and pages/s on a CUDA GPU.

    python -m benchmarks.reading.layout                        # full-size random weights, pages from samples/
    python -m benchmarks.reading.layout --weights FOLDER       # a real checkpoint

Pages/s are from encoded bytes, and every timed page is unique. Random weights take as long as real ones, apart from the
number of boxes.
"""

import argparse
import io
import os
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from kopub.layout.pp_doclayout.postprocess import make_rules, postprocess
from kopub.layout.regions import LABELS
from kopub.pages.page import decode
from tests.support.scalar_postprocess import ScalarSettings, scalar_postprocess

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kopub.layout.pp_doclayout.detector import PPDocLayout

WIDTH, HEIGHT = 2480, 3508
Row = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="checkpoint folder (default: random, full size)")
    parser.add_argument("--pages", type=Path, default=Path("samples/corpus"), help="folder of Arrow files with pages")
    parser.add_argument("--count", type=int, default=512, help="unique pages to make of them")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--dtype", default="float16", choices=["float16", "bfloat16"])
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="that decode, where decoding is alone")
    arguments = parser.parse_args()

    print(f"{'what':58} result")
    show(postprocessing())
    pages = unique_pages(arguments.pages, arguments.count)
    show(host_alone(pages, arguments.threads))
    if not gpu():
        print("no CUDA GPU here: the model and the pipeline are not measured")
        return
    with TemporaryDirectory() as folder:
        weights = arguments.weights or random_weights(Path(folder))
        show(model_alone(weights, arguments.batch, arguments.dtype))
        show(pipeline(weights, pages, arguments.batch, arguments.dtype))


def show(rows: Sequence[Row]) -> None:
    for what, result in rows:
        print(f"{what:58} {result}", flush=True)


def gpu() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def postprocessing() -> list[Row]:
    """Compare vectorised and scalar code by median CPU time, for 120 boxes over the threshold."""
    rules = make_rules(
        threshold=0.3,
        thresholds={},
        nms_same=0.6,
        nms_different=0.98,
        containment=ScalarSettings().containment,
        unclip={},
    )
    rng = np.random.default_rng(0)
    slow, fast = [], []
    for _ in range(10):
        scores, boxes, votes = page_of_boxes(rng, 120)
        plain = scores.tolist(), boxes.tolist(), votes.tolist()
        slow.append(cpu_seconds(lambda plain=plain: scalar_postprocess(*plain, WIDTH, HEIGHT, ScalarSettings()), 1))
        fast.append(cpu_seconds(lambda s=scores, b=boxes, v=votes: postprocess(s, b, v, WIDTH, HEIGHT, rules), 20))
    scalar, vector = statistics.median(slow), statistics.median(fast)
    return [
        ("post-processing, 120 boxes, scalar", f"{scalar * 1e3:.1f} ms a page"),
        ("post-processing, 120 boxes, vectorised", f"{vector * 1e3:.2f} ms a page, {scalar / vector:.0f} times faster"),
    ]


def page_of_boxes(rng: np.random.Generator, count: int) -> "tuple[NDArray[Any], NDArray[Any], NDArray[Any]]":
    """Return scores (300, 25), boxes (300, 4) and votes (300,) of a page of text."""
    scores = rng.uniform(0, 0.05, (300, len(LABELS))).astype(np.float32)
    scores[np.arange(count), rng.integers(0, len(LABELS), count)] = rng.uniform(0.35, 0.99, count)
    sizes = np.column_stack([rng.uniform(0.05, 0.4, 300), rng.uniform(0.01, 0.08, 300)])
    boxes = np.column_stack([rng.uniform(0.1, 0.9, (300, 2)), sizes]).astype(np.float32)
    return scores, boxes, rng.permutation(300).astype(np.float32)


def cpu_seconds(work: Callable[[], object], repeat: int) -> float:
    work()
    started = time.process_time()
    for _ in range(repeat):
        work()
    return (time.process_time() - started) / repeat


def random_weights(folder: Path) -> Path:
    """Save the full-size network with random weights.

    Its classes are shifted until about 40 boxes a page pass.
    """
    import torch
    from transformers import PPDocLayoutV3Config, PPDocLayoutV3ForObjectDetection

    from tests.support.checkpoints.tiny_checkpoints import lively

    config = PPDocLayoutV3Config(
        id2label=dict(enumerate(LABELS)), label2id={label: i for i, label in enumerate(LABELS)}
    )
    network: Any = lively(PPDocLayoutV3ForObjectDetection(config), gain=1.0)
    network.cuda()
    pixels = torch.rand(2, 3, 800, 800, device="cuda")
    with torch.inference_mode():
        logits = network(pixels).logits.flatten(1).sort(1, descending=True).values
        shift = np.log(0.3 / 0.7) - float(logits[:, 40].mean())
    with torch.no_grad():
        network.model.decoder.class_embed.bias += shift
    network.cpu().save_pretrained(folder)
    return folder


def stock(weights: Path) -> Any:
    from transformers import PPDocLayoutV3ForObjectDetection

    network: Any = PPDocLayoutV3ForObjectDetection.from_pretrained(weights)
    return network.eval().cuda()


def stock_alone(weights: Path, pixels: Any, dtype: str) -> Row:
    import torch

    precision = getattr(torch, dtype)
    network, scaled = stock(weights).to(precision), (pixels.permute(0, 3, 1, 2).float() / 255).to(precision)
    return f"model, {len(pixels)} pages, stock, {dtype} eager", gpu_time(lambda: network(scaled))


def model_alone(weights: Path, batch: int, dtype: str) -> list[Row]:
    """Return milliseconds a batch for pages already on the GPU, medians of 10."""
    import torch

    from kopub.layout.pp_doclayout.model import LayoutModel
    from kopub.layout.pp_doclayout.network import load

    pixels = torch.randint(0, 256, (batch, 800, 800, 3), dtype=torch.uint8, device="cuda")
    rows = [stock_alone(weights, pixels, "float32"), stock_alone(weights, pixels, dtype)]
    for compiled in (False, True):
        torch.cuda.empty_cache()
        model = LayoutModel(
            load(str(weights), ""), device="cuda", dtype=dtype, compiled=compiled, batch_size=batch, polygons=False
        )
        # cuDNN caches its choice of algorithms by thread, so a new thread has none from the stock model.
        with ThreadPoolExecutor(1) as thread:
            started = time.perf_counter()
            thread.submit(gpu_time, partial(model.run, pixels), 1).result()
            first = time.perf_counter() - started
            result = thread.submit(gpu_time, partial(model.run, pixels)).result()
        name = f"model, {batch} pages, ours, {dtype} {'compiled' if compiled else 'eager'}"
        rows.append((name, f"{result}, first call {first:.0f} s, fallbacks: {', '.join(model.fallbacks) or '-'}"))
    return rows


def gpu_time(work: Callable[[], object], repeat: int = 13) -> str:
    """Return the median GPU time, without the first three calls, and peak memory."""
    import torch

    times = []
    torch.cuda.reset_peak_memory_stats()
    with torch.inference_mode():
        for _ in range(repeat):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            work()
            end.record()
            torch.cuda.synchronize()
            times.append(start.elapsed_time(end))
    peak = torch.cuda.max_memory_allocated() / 1e9
    return f"{statistics.median(times[3:] or times):.1f} ms, memory peak {peak:.1f} GB"


def unique_pages(folder: Path, count: int) -> list[bytes]:
    """Return PNG pages of 2480x3508, each with its own patch of noise."""
    import cv2

    originals = [cv2.resize(decode(data), (WIDTH, HEIGHT)) for data in stored(folder)]

    def made(i: int) -> bytes:
        page = originals[i % len(originals)].copy()
        rng = np.random.default_rng(i)
        y, x = rng.integers(0, HEIGHT - 100), rng.integers(0, WIDTH - 100)
        page[y : y + 100, x : x + 100] = rng.integers(0, 256, (100, 100, 3))
        return cv2.imencode(".png", page, [cv2.IMWRITE_PNG_COMPRESSION, 6])[1].tobytes()

    with ThreadPoolExecutor() as pool:
        return list(pool.map(made, range(count)))


def stored(folder: Path) -> list[bytes]:
    """Return the encoded pages in a folder of Arrow files written by `datasets`."""
    import pyarrow as pa

    files = sorted(folder.glob("*.arrow"))
    if not files:
        raise SystemExit(f"no Arrow file in {folder}; name a folder of pages with --pages")
    return [page["bytes"] for file in files for page in pa.ipc.open_stream(file).read_all()["image"].to_pylist()]


def pipeline(weights: Path, pages: Sequence[bytes], batch: int, dtype: str) -> list[Row]:
    """Measure the steps from encoded bytes to regions, the plain way and the resource's."""
    from kopub.layout.pp_doclayout.detector import PPDocLayout

    rows = [("plain: Pillow, processor, float32 eager, scalar", plain_way(weights, pages[:48]))]
    settings = {"repo": str(weights), "dtype": dtype, "batch_size": batch}
    eager = PPDocLayout.model_validate({**settings, "compile": False})
    rows += resource_way("resource, PNG, eager", eager, pages[:batch], pages[batch:])
    detector = PPDocLayout.model_validate(settings)
    rows += resource_way("resource, PNG, compiled", detector, pages[:batch], pages[batch:])
    jpegs = [as_jpeg(page) for page in pages[: 4 * batch]]
    rows += resource_way("resource, JPEG by OpenCV", detector, jpegs[:batch], jpegs[batch:])
    detector = detector.model_copy(update={"gpu_jpeg": True})
    rows += resource_way("resource, JPEG by nvJPEG", detector, jpegs[:batch], jpegs[batch:])
    return rows


def as_jpeg(page: bytes) -> bytes:
    import cv2

    return cv2.imencode(".jpg", decode(page))[1].tobytes()


def plain_way(weights: Path, pages: Sequence[bytes]) -> str:
    import torch
    from PIL import Image
    from transformers.models.pp_doclayout_v3.image_processing_pp_doclayout_v3 import PPDocLayoutV3ImageProcessor

    network, processor = stock(weights), PPDocLayoutV3ImageProcessor()
    started = time.perf_counter()
    for i in range(0, len(pages), 8):
        images = [Image.open(io.BytesIO(page)).convert("RGB") for page in pages[i : i + 8]]
        with torch.inference_mode():
            outputs = network(**processor(images=images, return_tensors="pt").to("cuda"))
        scores, boxes = outputs.logits.sigmoid().cpu().tolist(), outputs.pred_boxes.cpu().tolist()
        ranks = processor._get_order_seqs(outputs.order_logits).cpu().tolist()
        for page, image in enumerate(images):
            scalar_postprocess(scores[page], boxes[page], ranks[page], *image.size, ScalarSettings())
    return f"{len(pages) / (time.perf_counter() - started):.1f} pages/s"


def host_alone(pages: Sequence[bytes], threads: int) -> list[Row]:
    """Measure only decoding and resizing, by use of freed memory and OpenCV's threads.

    By default glibc gives freed memory back; the resource keeps it, and turns off OpenCV's threads.
    """
    import cv2

    from kopub.processes import keep_blocks

    size = statistics.mean(len(page) for page in pages) / 1e6
    rows = [("pages", f"{len(pages)} unique PNG of {WIDTH}x{HEIGHT}, {size:.1f} MB each")]
    prepared(pages[: 2 * threads], threads)
    rows.append(("decode and resize alone, freed memory given back", prepared(pages, threads)))
    keep_blocks()
    prepared(pages[: 2 * threads], threads)
    rows.append(("decode and resize alone, freed memory kept", prepared(pages, threads)))
    cv2.setNumThreads(1)
    rows.append(("the same, without threads of OpenCV's", prepared(pages, threads)))
    return rows


def prepared(pages: Sequence[bytes], threads: int) -> str:
    from kopub.layout.pp_doclayout.page_regions import prepare
    from kopub.pages.page import Page
    from kopub.parallel import bounded_map

    inputs = (Page(str(i), page) for i, page in enumerate(pages))
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    for _ in bounded_map(lambda page: prepare(page, False), inputs, threads):
        pass
    rate, after = len(pages) / (time.perf_counter() - started), resource.getrusage(resource.RUSAGE_SELF)
    user, system, faults = (
        (getattr(after, name) - getattr(before, name)) / len(pages) for name in ("ru_utime", "ru_stime", "ru_minflt")
    )
    each = f"{user * 1e3:.1f} ms of user and {system * 1e3:.1f} of system time, {faults:.0f} page faults each"
    return f"{rate:.0f} pages/s on {threads} threads, {each}"


def resource_way(name: str, detector: "PPDocLayout", warm: Sequence[bytes], pages: Sequence[bytes]) -> list[Row]:
    """Measure pages/s once the model runs.

    Loading, compiling, tuning and the first batch have their own row.
    """
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start_up, _ = detected(detector, warm)
    seconds, regions = detected(detector, pages)
    report = detector.report()
    each = {stage: float(report[f"seconds_{stage}"]) / len(pages) for stage in ("decode", "copy", "model", "post")}
    limits = {
        "decode": (os.cpu_count() or 1) / each["decode"],
        "GPU": 1 / (each["copy"] + each["model"]),
        "post": 1 / each["post"],
    }
    slowest = min(limits, key=lambda stage: limits[stage])
    stages = ", ".join(f"{stage} {value * 1e3:.2f}" for stage, value in each.items())
    rate = f"{len(pages) / seconds:.0f} pages/s over {len(pages)} pages"
    return [
        (name, f"{rate}, {regions / len(pages):.0f} regions a page, fallbacks: {report['fallbacks'] or '-'}"),
        ("  before that: load, compile, tune, first batch", f"{start_up:.1f} s for {len(warm)} pages"),
        ("  ms a page (decode: of one thread)", f"{stages}; peak {report['gpu_memory_peak_gb']} GB"),
        ("  limiting stage", f"{slowest} at {limits[slowest]:.0f} pages/s"),
    ]


def detected(detector: "PPDocLayout", pages: Sequence[bytes]) -> tuple[float, int]:
    """Return the seconds taken and the number of regions found."""
    from kopub.pages.page import Page

    started = time.perf_counter()
    regions = sum(len(layout.regions) for layout in detector.detect(Page(str(i), p) for i, p in enumerate(pages)))
    return time.perf_counter() - started, regions


if __name__ == "__main__":
    main()
