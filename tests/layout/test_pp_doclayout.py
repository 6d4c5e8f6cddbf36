import gc
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kopub.errors import ConfigError, EngineError
from kopub.layout.pp_doclayout.detector import PPDocLayout
from kopub.layout.pp_doclayout.page_regions import prepare
from kopub.layout.regions import LABELS, Layout, Region, Task
from kopub.pages.page import Page
from kopub.states import State
from tests.support.installed import imported

torch = imported("torch")
imported("transformers.models.pp_doclayout_v3")

import cv2  # noqa: E402

from kopub.layout.pp_doclayout import detector, page_regions  # noqa: E402
from kopub.layout.pp_doclayout import model as pp_model  # noqa: E402
from kopub.layout.pp_doclayout import network as pp_network  # noqa: E402
from kopub.layout.pp_doclayout.replicas import Replicas  # noqa: E402
from kopub.parallel import SWITCH_INTERVAL  # noqa: E402
from tests.support.checkpoints.tiny_checkpoints import save_pp_doclayout, tiny_pp_doclayout  # noqa: E402
from tests.support.drawn_pages import drawing, png, some_pages  # noqa: E402
from tests.support.layouts import assert_alike, by_id  # noqa: E402
from tests.support.waiting import SOON  # noqa: E402

if TYPE_CHECKING:
    from kopub.layout.pp_doclayout.network import RawOutputs

FP16 = ((3, 1.3), (11, 1.3), (30, 1.3), (31, 1.3))
BF16 = ((9, 1.0), (12, 1.0), (9, 1.15), (14, 1.15), (39, 1.15))
"""(seed, gain) of checkpoints that put no box at the edge of a threshold on the pages below, where the last bit
would decide. bf16 rounds eight times coarser and needs calmer weights."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_pp_doclayout(tmp_path_factory.mktemp("weights"))


@pytest.fixture
def make(folder: Path) -> Callable[..., PPDocLayout]:
    """Return a factory; by default resources use the CPU, fp32, eager mode and this process."""

    def made(**changed: Any) -> PPDocLayout:
        plain = {"device": "cpu", "dtype": "float32", "compile": False, "batch_size": 4, "decode_threads": 2}
        plain["own_process"] = False
        return PPDocLayout(**{"repo": str(folder), **plain, **changed})

    return made


def detect(resource: PPDocLayout, pages: list[Page]) -> dict[str, Layout]:
    layouts = list(resource.detect(pages))
    assert sorted(layout.page_id for layout in layouts) == sorted(page.page_id for page in pages)
    return {layout.page_id: layout for layout in layouts}


def spoil(monkeypatch: pytest.MonkeyPatch, change: "Callable[[RawOutputs], RawOutputs]") -> None:
    forward = pp_network.forward
    monkeypatch.setattr(pp_model, "forward", lambda *a, **k: change(forward(*a, **k)))


# --- the network against transformers ---------------------------------------------------------------------------------


def inputs(count: int) -> Any:
    return torch.from_numpy(
        np.stack([pixels for page in some_pages(count) if (pixels := prepare(page, False).pixels) is not None])
    )


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "steady"), [(0, False), (1, False), (2, False), (0, True)])
def test_network_gives_what_the_stock_forward_gives(seed: int, steady: bool) -> None:
    network, pixels = tiny_pp_doclayout(seed, steady=steady), inputs(2)
    with torch.inference_mode():
        stock = network(pixels.permute(0, 3, 1, 2).float() / 255)
        for change in (lambda network: None, pp_network.fuse, pp_network.fuse_relu):
            change(network)
            ours = pp_network.forward(network, pixels, polygons=True)
            masks = torch.einsum("bqp,bphw->bqhw", ours.mask_queries, ours.mask_features)
            torch.testing.assert_close(ours.boxes, stock.pred_boxes, atol=1e-4, rtol=0)
            torch.testing.assert_close(ours.scores, stock.logits.sigmoid(), atol=1e-4, rtol=0)
            torch.testing.assert_close(masks, stock.out_masks, atol=1e-3, rtol=1e-3)
            assert ours.votes.argsort(1).equal(reference_order(stock.order_logits))


def reference_order(order_logits: Any) -> Any:
    scores = order_logits.sigmoid()
    votes = scores.triu(1).sum(1) + (1 - scores.transpose(1, 2)).tril(-1).sum(1)
    return votes.argsort(1)


def test_mask_branch_is_left_out_without_polygons(monkeypatch: pytest.MonkeyPatch) -> None:
    network, calls = tiny_pp_doclayout(), []
    network.model.mask_query_head.register_forward_hook(lambda *a: calls.append(1))
    with torch.inference_mode():
        raw = pp_network.forward(network, inputs(1), polygons=False)
    assert raw.mask_queries is None
    assert len(calls) == 1, "the encoder's proposals need the head once, the decoder not at all"


@pytest.mark.slow
def test_same_regions_as_the_post_processing_of_transformers(
    make: Callable[..., PPDocLayout], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compare in fp32, with the processor's own resize, without the rules that transformers lacks."""
    reference = borrowed_processor(monkeypatch)
    off = {"nms_same": 1.0, "nms_different": 1.0, "containment": dict.fromkeys(LABELS, "union")}
    regions = 0
    for seed in range(4):
        repo = save_pp_doclayout(tmp_path / str(seed), tiny_pp_doclayout(seed, steady=True))
        page = drawing(seed, 1400, 1000)
        layout = detect(make(repo=str(repo), **off), [Page("p", png(page[..., ::-1]))])["p"]
        pixels = torch.from_numpy(page.copy()).permute(2, 0, 1)[None].float()
        # torchvision's resize of the processor: bicubic without antialias, rounded to levels again.
        small = torch.nn.functional.interpolate(pixels, (800, 800), mode="bicubic").round().clamp(0, 255)
        with torch.inference_mode():
            outputs = pp_network.load(str(repo), "")(small / 255)
        expected = reference.post_process_object_detection(outputs, 0.3, [page.shape[:2]])[0]
        best = best_of_each_query(expected)
        boxes = np.clip(expected["boxes"].numpy()[best], 0, [1000, 1400, 1000, 1400])
        labels = [LABELS[label] for label in expected["labels"][best].tolist()]
        assert [region.label for region in layout.regions] == labels
        assert np.abs(np.array([region.bbox for region in layout.regions]) - boxes).max() < 1
        scores = np.array([region.score for region in layout.regions])
        assert np.abs(scores - expected["scores"].numpy()[best]).max() < 1e-2
        regions += len(layout.regions)
    assert regions > 20


def best_of_each_query(found: dict[str, Any]) -> list[int]:
    """Return each query's best row in reading order; NMS always removes the others."""
    rows: dict[int, int] = {}
    for row, (order, score) in enumerate(zip(found["order_seq"].tolist(), found["scores"].tolist(), strict=True)):
        if order not in rows or score > float(found["scores"][rows[order]]):
            rows[order] = row
    return list(rows.values())


def borrowed_processor(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the post-processing of transformers' processor, which needs torchvision only for its import."""
    import importlib.util
    import sys
    from types import ModuleType

    if importlib.util.find_spec("torchvision") is None:
        for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
        sys.modules["torchvision.transforms.v2"].functional = SimpleNamespace()  # type: ignore[attr-defined]
    module = importlib.import_module("transformers.models.pp_doclayout_v3.image_processing_pp_doclayout_v3")
    names = [
        "post_process_object_detection",
        "_get_order_seqs",
        "_extract_polygon_points_by_masks",
        "_mask2polygon",
        "extract_custom_vertices",
    ]
    methods = {name: vars(module.PPDocLayoutV3ImageProcessor)[name] for name in names}
    return type("Borrowed", (), {**methods, "size": {"height": 800, "width": 800}})()


# --- precision --------------------------------------------------------------------------------------------------------


def iou(a: Region, b: Region) -> float:
    across = min(a.bbox[2], b.bbox[2]) - max(a.bbox[0], b.bbox[0])
    down = min(a.bbox[3], b.bbox[3]) - max(a.bbox[1], b.bbox[1])
    shared = max(0.0, across) * max(0.0, down)
    areas = [(r.bbox[2] - r.bbox[0]) * (r.bbox[3] - r.bbox[1]) for r in (a, b)]
    return shared / (sum(areas) - shared)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "checkpoints"), [("float16", FP16), ("bfloat16", BF16)])
def test_half_precision_finds_the_same_regions(
    make: Callable[..., PPDocLayout], tmp_path: Path, dtype: str, checkpoints: tuple[tuple[int, float], ...]
) -> None:
    pages, matched, total = some_pages(6), 0, 0
    every = dict.fromkeys(LABELS, "union")
    for seed, gain in checkpoints:
        repo = save_pp_doclayout(tmp_path / f"{seed}-{gain}", tiny_pp_doclayout(seed, gain, steady=True))
        exact = detect(make(repo=str(repo), containment=every), pages)
        half = detect(make(repo=str(repo), containment=every, dtype=dtype), pages)
        for page_id, layout in exact.items():
            total += len(layout.regions)
            others = half[page_id].regions
            matched += sum(any(r.label == o.label and iou(r, o) > 0.95 for o in others) for r in layout.regions)
    assert total >= 50
    assert matched / total >= 0.99


def test_outputs_reach_the_host_in_fp32_whatever_the_precision(folder: Path) -> None:
    for dtype in ("float16", "bfloat16"):
        model = pp_model.LayoutModel(
            pp_network.load(str(folder), ""), device="cpu", dtype=dtype, compiled=False, batch_size=1, polygons=False
        )
        outputs = model.submit([drawing(0, 800, 800)]).result()
        assert {outputs.scores.dtype, outputs.boxes.dtype, outputs.votes.dtype} == {np.dtype(np.float32)}
        # If boxes were cast after the last step and not before it, they would lie on a grid of 2 to 6 page pixels.
        assert not np.array_equal(outputs.boxes, torch.from_numpy(outputs.boxes).to(torch.float16).float().numpy())


def test_the_reference_of_a_self_test_finds_the_same_regions(make: Callable[..., PPDocLayout]) -> None:
    page = some_pages(1)[0]
    resource = make(polygons=True)
    own, expected = detect(resource, [page])[page.page_id], resource.reference(page)
    assert len(own.regions) == len(expected.regions) > 0
    for region, other in zip(own.regions, expected.regions, strict=True):
        assert region.label == other.label
        assert region.bbox == pytest.approx(other.bbox, abs=0.1)
    broken = resource.reference(Page("text", b"hello"))
    assert broken.state is State.QUARANTINED


# --- what a page becomes ----------------------------------------------------------------------------------------------


def test_regions_carry_order_task_label_and_float_boxes(make: Callable[..., PPDocLayout]) -> None:
    resource = make(tasks={"paragraph_title": "abandon"}, polygons=True)
    layouts = detect(resource, some_pages(6))
    for layout in layouts.values():
        assert layout.state is State.OK
        assert [region.index for region in layout.regions] == list(range(len(layout.regions)))
        for region in layout.regions:
            x1, y1, x2, y2 = region.bbox
            assert 0 <= x1 < x2 <= 640
            assert 0 <= y1 < y2 <= 900
            assert region.polygon is None or all(x1 <= x <= x2 and y1 <= y <= y2 for x, y in region.polygon)
            assert (region.task is Task.ABANDON) == (region.label == "paragraph_title")
    regions = [region for layout in layouts.values() for region in layout.regions]
    assert any(region.polygon for region in regions)
    assert any(value != int(value) for region in regions for value in region.bbox)
    report = resource.report()
    assert report["pages_ok"] == 6
    assert sum(float(n) for name, n in report.items() if name.startswith("label_")) == len(regions)
    assert {"seconds_decode", "seconds_copy", "seconds_model", "seconds_post", "pages_per_second"} <= set(report)


def test_batches_do_not_change_results(make: Callable[..., PPDocLayout]) -> None:
    pages = some_pages(7)
    alone, together = detect(make(batch_size=1), pages), detect(make(batch_size=5), pages)
    for page_id, layout in alone.items():
        other = together[page_id]
        assert [r.label for r in layout.regions] == [r.label for r in other.regions]
        for region, twin in zip(layout.regions, other.regions, strict=True):
            assert region.bbox == pytest.approx(twin.bbox, abs=0.1)


def test_pages_are_taken_lazily(make: Callable[..., PPDocLayout]) -> None:
    taken = []

    def endless() -> Iterator[Page]:
        data = png(drawing(0))
        while True:
            taken.append(1)
            yield Page(f"p{len(taken)}", data)

    stream = make(batch_size=2).detect(endless())
    next(iter(stream))
    stream.close()  # type: ignore[attr-defined]
    in_flight, under_way = 2 * 2 + 2, 3 * 2
    assert len(taken) <= detector.BATCHES_AHEAD * 2 + in_flight + under_way


def test_pages_are_decoded_while_the_model_runs(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, ahead = [], threading.Event()

    def counting(page: Page, gpu_jpeg: bool) -> Any:
        decoded.append(page.page_id)
        # Two pages are the first batch, and the one thread decodes one more ahead of demand.
        if len(decoded) > 3:
            ahead.set()
        return prepare(page, gpu_jpeg)

    def waiting(raw: "RawOutputs") -> "RawOutputs":
        assert ahead.wait(SOON), "decoding waited for the model"
        return raw

    monkeypatch.setattr(detector, "prepare", counting)
    spoil(monkeypatch, waiting)
    detect(make(batch_size=2, decode_threads=1), some_pages(6))


def test_threads_that_decode_have_the_interpreter_soon_and_no_further_threads_of_opencv(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    def process() -> tuple[int, float]:
        return cv2.getNumThreads(), sys.getswitchinterval()

    before, seen = process(), []
    monkeypatch.setattr(detector, "prepare", lambda *a: (seen.append(process()), prepare(*a))[1])
    cv2.setNumThreads(3)
    sys.setswitchinterval(0.004)
    try:
        detect(make(), some_pages(3))
        assert seen == [(1, pytest.approx(SWITCH_INTERVAL))] * 3
        assert process() == (3, pytest.approx(0.004))
    finally:
        cv2.setNumThreads(before[0])
        sys.setswitchinterval(before[1])


def test_page_that_cannot_be_decoded_is_quarantined_and_the_others_come_out(make: Callable[..., PPDocLayout]) -> None:
    broken = Page("broken", png(drawing(9))[:3000])
    layouts = detect(make(), [*some_pages(3), broken, Page("text", b"hello")])
    assert [layouts[f"p{i}"].state for i in range(3)] == [State.OK] * 3
    assert layouts["broken"].state is layouts["text"].state is State.QUARANTINED
    assert layouts["broken"].reason


def test_page_without_ink_or_with_dust_alone_is_blank_and_with_ink_failed(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    white = np.full((900, 640, 3), 255, np.uint8)
    inked = white.copy()
    inked[100:200, 100:500] = 0
    dusty = white.copy()
    for x, y in ((90, 60), (300, 410), (500, 800)):
        dusty[y : y + 3, x : x + 2] = 0
    pages = [Page("white", png(white)), Page("inked", png(inked)), Page("dusty", png(dusty))]
    pages.append(Page("black", png(np.zeros_like(white))))
    spoil(monkeypatch, lambda raw: raw._replace(scores=torch.zeros_like(raw.scores)))
    layouts = detect(make(), pages)
    assert layouts["white"].state is layouts["dusty"].state is layouts["black"].state is State.BLANK
    assert layouts["white"].reason is layouts["dusty"].reason is None
    assert "dark all over" in (layouts["black"].reason or "")
    assert layouts["inked"].state is State.FAILED
    assert "ink" in (layouts["inked"].reason or "")


# --- faults -----------------------------------------------------------------------------------------------------------


def test_no_region_on_any_page_stops_the_run(make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, lambda raw: raw._replace(scores=torch.zeros_like(raw.scores)))
    with pytest.raises(EngineError, match=r"none of 5 pages.*no region was found"):
        list(make().detect(some_pages(5)))
    assert [layout.state for layout in make().detect(some_pages(1))] == [State.FAILED], "one odd page is no verdict"


@pytest.mark.parametrize("field", ["scores", "boxes", "votes"])
def test_nan_fails_its_page_and_stops_a_run_of_nothing_else(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    def spoil_first(raw: "RawOutputs") -> "RawOutputs":
        values = getattr(raw, field).clone()
        values[0] = torch.nan
        return raw._replace(**{field: values})

    spoil(monkeypatch, spoil_first)
    states = sorted(layout.state for layout in make().detect(some_pages(4)))
    assert states == [State.FAILED, State.OK, State.OK, State.OK]
    with pytest.raises(EngineError, match="not finite in float32"):
        list(make(batch_size=1).detect(some_pages(2)))


def test_postprocessing_that_raises_fails_one_page(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = page_regions.postprocess

    def odd(scores: Any, boxes: Any, votes: Any, width: int, height: int, rules: Any) -> Any:
        if width == 333:
            raise ZeroDivisionError("odd page")
        return original(scores, boxes, votes, width, height, rules)

    monkeypatch.setattr(page_regions, "postprocess", odd)
    layouts = detect(make(), [*some_pages(3), Page("odd", png(drawing(1, 900, 333)))])
    assert layouts["odd"].state is State.FAILED
    assert "ZeroDivisionError: odd page" in (layouts["odd"].reason or "")
    assert [layouts[f"p{i}"].state for i in range(3)] == [State.OK] * 3


@pytest.mark.parametrize(("status", "fallbacks"), [(0, []), (304, ["pages not pinned"])])
def test_memory_that_a_gpu_cannot_read_directly_is_told(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, status: int, fallbacks: list[str]
) -> None:
    asked = []

    class Cudart:
        def cudaHostRegister(self, address: int, size: int, flags: int) -> int:
            asked.append((address, size, flags))
            return status

    replicas = make()._load()
    assert isinstance(replicas, Replicas)
    memory = np.zeros((2, 1, 800, 800, 3), np.uint8)
    replicas.pin(memory)
    assert asked == [], "there is no GPU"
    monkeypatch.setattr(replicas, "_devices", ("cuda",))
    monkeypatch.setattr(torch.cuda, "cudart", Cudart)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        replicas.pin(memory)
    assert asked == [(memory.ctypes.data, memory.nbytes, 1)]
    assert replicas.fallbacks == fallbacks
    assert [f"CUDA error {status}" in str(each.message) for each in warned] == [True] * len(fallbacks)
    replicas.close()


def test_out_of_memory_halves_the_batch_and_goes_on(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, sizes = pp_network.forward, []

    def small_gpu(network: Any, pixels: Any, polygons: bool) -> "RawOutputs":
        sizes.append(len(pixels))
        if len(pixels) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB")
        return forward(network, pixels, polygons)

    submitted: list[int] = []
    submit = pp_model.LayoutModel.submit
    monkeypatch.setattr(pp_model, "forward", small_gpu)
    expected = detect(make(batch_size=2), some_pages(30))
    monkeypatch.setattr(
        pp_model.LayoutModel, "submit", lambda m, pages: (submitted.append(len(pages)), submit(m, pages))[1]
    )
    resource = make(batch_size=8, polygons=True)
    with pytest.warns(RuntimeWarning, match="batch halved to 2"):
        layouts = detect(resource, some_pages(30))
    assert max(submitted) == 8, "batches stay small in host memory too"
    assert {layout.state for layout in layouts.values()} == {State.OK}
    assert [len(layouts[i].regions) for i in layouts] == [len(expected[i].regions) for i in layouts]
    assert resource.report()["fallbacks"] == "batch halved to 4, batch halved to 2"
    assert sizes.count(8) == sizes.count(4) == 1


def test_out_of_memory_with_one_page_stops_the_run(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(*_: Any, **__: Any) -> "RawOutputs":
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(pp_model, "forward", no_memory)
    with pytest.raises(EngineError, match="does not fit into GPU memory"):
        list(make(batch_size=1).detect(some_pages(1)))


@pytest.mark.parametrize("fits", [True, False])
def test_tuning_keeps_to_its_memory_and_leaves_no_trace(
    folder: Path, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    forward, limits, benchmarked = pp_network.forward, [], []

    def limited(*arguments: Any, **options: Any) -> "RawOutputs":
        benchmarked.append(torch.backends.cudnn.benchmark)
        if limits[-1] < 1 and not fits:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(*arguments, **options)

    monkeypatch.setattr(pp_model, "forward", limited)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=40e9))
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: limits.append(share))
    model = pp_model.LayoutModel(
        pp_network.load(str(folder), ""), device="cpu", dtype="float32", compiled=False, batch_size=2, polygons=False
    )
    monkeypatch.setattr(model, "_tuned", False)
    pages = [drawing(i, 800, 800) for i in range(4)]
    assert len(model.submit(pages).result().scores) == 4
    assert limits == [0.25, 1.0], "once, for the first batch"
    assert benchmarked == ([True, False] if fits else [True, False, False])
    assert torch.backends.cudnn.benchmark is False
    assert model.fallbacks == []


class UntunedModel:
    """CPU models that tune in their first pass, as models on a GPU do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fits: int = 100) -> None:
        self.passes: list[tuple[bool, int, bool]] = []  # (tuned, pages, not empty)
        self._changed = threading.Condition()
        forward, made = pp_network.forward, pp_model.LayoutModel.__init__

        def untuned(model: Any, *arguments: Any, **options: Any) -> None:
            made(model, *arguments, **options)
            model._tuned = False

        def noted(network: Any, pixels: Any, polygons: bool) -> "RawOutputs":
            if len(pixels) > fits:
                raise torch.OutOfMemoryError("CUDA out of memory")
            with self._changed:
                self.passes.append((torch.backends.cudnn.benchmark, len(pixels), bool(pixels.any())))
                self._changed.notify_all()
            return forward(network, pixels, polygons)

        monkeypatch.setattr(pp_model.LayoutModel, "__init__", untuned)
        monkeypatch.setattr(pp_model, "forward", noted)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=40e9))
        monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", lambda share, device: None)

    def wait_for(self, passes: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.passes) >= passes, 10), f"passes so far: {self.passes}"


@pytest.mark.parametrize("devices", [1, 2])
def test_every_device_is_tuned_before_the_first_page(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, devices: int
) -> None:
    models = UntunedModel(monkeypatch)
    resource = make(device=",".join(["cpu"] * devices))
    resource.prepare()
    models.wait_for(devices)
    assert models.passes == [(True, 4, False)] * devices
    detect(resource, some_pages(5))
    # The flag is not compared: tuning is a setting of the process, and the second device may still be tuning.
    assert sorted((pages, printed) for _, pages, printed in models.passes[devices:]) == [(1, True), (4, True)]
    assert resource.report()["seconds_model"]


def test_a_first_pass_that_does_not_fit_halves_the_batch_once(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    models, resource = UntunedModel(monkeypatch, fits=2), make()

    def prepared_and_used() -> None:
        resource.prepare()
        models.wait_for(1)
        detect(resource, some_pages(3))

    with pytest.warns(RuntimeWarning, match="batch halved to 2"):
        prepared_and_used()
    assert [passed[1:] for passed in models.passes] == [(2, False), (2, False), (2, True), (1, True)]
    assert resource.report()["fallbacks"] == "batch halved to 2"


class RecordedGraph:
    """A double of `CudaGraph` that runs what it recorded and notes its batch sizes."""

    def __init__(self, run: Any, pixels: Any) -> None:
        self.run, self.batch, self.seen = run, len(pixels), []
        run(pixels)

    def __call__(self, pixels: Any) -> "RawOutputs":
        self.seen.append(len(pixels))
        return self.run(pixels)


def recorded(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, graph: Any
) -> tuple[dict[str, list[str]], str]:
    """Return what a model that records its pass finds on six pages, and its fallbacks."""
    made = pp_model.LayoutModel.__init__

    def recording(model: Any, *arguments: Any, **options: Any) -> None:
        made(model, *arguments, **options)
        model._records = True

    monkeypatch.setattr(pp_model.LayoutModel, "__init__", recording)
    monkeypatch.setattr(pp_model, "CudaGraph", graph)
    resource = make()
    return labels(detect(resource, some_pages(6))), str(resource.report()["fallbacks"])


def labels(layouts: dict[str, Layout]) -> dict[str, list[str]]:
    """Return each page's labels only; the last bit of a box depends on the batch size."""
    return {page_id: [region.label for region in layout.regions] for page_id, layout in layouts.items()}


def test_a_recorded_pass_takes_every_batch_in_its_one_shape(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs: list[RecordedGraph] = []
    expected = labels(detect(make(), some_pages(6)))
    found, fallbacks = recorded(make, monkeypatch, lambda *a: (graphs.append(RecordedGraph(*a)), graphs[-1])[1])
    assert found == expected
    assert [(graph.batch, graph.seen) for graph in graphs] == [(4, [4, 4])]
    assert fallbacks == ""


def test_a_pass_that_cannot_be_recorded_runs_without(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(run: Any, pixels: Any) -> Any:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore of it")

    expected = labels(detect(make(), some_pages(6)))
    with pytest.warns(RuntimeWarning, match="no CUDA graph, which is slower: CUDA error: operation not permitted"):
        found, fallbacks = recorded(make, monkeypatch, refused)
    assert (found, fallbacks) == (expected, "no CUDA graph")


def test_a_batch_that_no_longer_fits_is_run_without_its_graph(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(RecordedGraph):
        def __call__(self, pixels: Any) -> "RawOutputs":
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB")

    expected = labels(detect(make(), some_pages(6)))
    with pytest.warns(RuntimeWarning, match="batch halved to 2"):
        found, fallbacks = recorded(make, monkeypatch, Full)
    assert (found, fallbacks) == (expected, "batch halved to 2")


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="there is no CUDA GPU: on a machine with one, make setup GPU=1"
)
def test_a_graph_gives_what_the_network_gives_on_a_gpu(folder: Path) -> None:
    options = {"device": "cuda", "dtype": "float16", "compiled": False, "batch_size": 4, "polygons": True}
    plain, graphed = (pp_model.LayoutModel(pp_network.load(str(folder), ""), **options) for _ in range(2))
    graphed.first_pass().result()
    assert graphed.fallbacks == [], "it was recorded"
    batches = [[drawing(4 * number + i, 800, 800) for i in range(count)] for number, count in enumerate((4, 4, 3))]
    # All batches run first, so that outputs which a later pass overwrites would be wrong.
    found = [graphed.submit(batch).result() for batch in batches]
    for batch, outputs in zip(batches, found, strict=True):
        expected = plain.submit(batch).result()
        assert np.allclose(outputs.scores, expected.scores, atol=1e-3)
        assert np.allclose(outputs.boxes, expected.boxes, atol=1e-3)
        chosen = np.arange(3)
        for page in range(len(batch)):
            assert np.allclose(outputs.masks(page, chosen), expected.masks(page, chosen), atol=0.05)


def test_nothing_is_tuned_on_the_host(make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []
    spoil(monkeypatch, lambda raw: (passes.append(len(raw.scores)), raw)[1])
    resource = make(batch_size=2)
    resource.prepare()
    detect(resource, some_pages(2))
    assert passes == [2]


def test_compile_failure_falls_back_to_eager_with_one_warning(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken_compiler(function: Any, **_: Any) -> Any:
        def fails_at_the_first_call(*_: Any, **__: Any) -> Any:
            raise RuntimeError("no C compiler was found")

        return fails_at_the_first_call

    monkeypatch.setattr(torch, "compile", broken_compiler)
    resource = make(compile=True)
    with pytest.warns(RuntimeWarning, match=r"not compiled.*no C compiler") as caught:
        layouts = detect(resource, some_pages(9))
    assert len([warning for warning in caught if "compiled" in str(warning.message)]) == 1
    assert {layout.state for layout in layouts.values()} == {State.OK}
    assert resource.report()["fallbacks"] == "not compiled"


def test_compiled_network_sees_one_batch_shape(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = []

    def recording(function: Any, *, dynamic: bool) -> Any:
        assert dynamic is False
        return lambda pixels: (shapes.append(tuple(pixels.shape)), function(pixels))[1]

    monkeypatch.setattr(torch, "compile", recording)
    layouts = detect(make(compile=True), some_pages(6))
    assert {layout.state for layout in layouts.values()} == {State.OK}
    assert shapes == [(4, 800, 800, 3)] * 2


def test_model_error_stops_the_run_with_its_reason(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    def illegal(*_: Any, **__: Any) -> "RawOutputs":
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")

    monkeypatch.setattr(pp_model, "forward", illegal)
    with pytest.raises(EngineError, match="layout model stopped: RuntimeError: CUDA error: an illegal memory access"):
        list(make().detect(some_pages(2)))


def test_a_model_is_loaded_once_before_its_first_page(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = pp_network.load

    def noted(repo: str, revision: str) -> Any:
        loaded.append(threading.current_thread().name)
        return load(repo, revision)

    monkeypatch.setattr(pp_network, "load", noted)
    resource = make()
    resource.prepare()
    resource.prepare()
    assert len(detect(resource, some_pages(1))) == 1
    assert len(loaded) == 1
    assert loaded != [threading.current_thread().name]


def test_packages_are_imported_before_other_threads_compete(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[threading.Thread] = []
    monkeypatch.setattr(detector, "import_packages", lambda: imported.append(threading.current_thread()))
    resource = make()
    resource.prepare()
    resource.prepare()
    assert imported == [threading.current_thread()]
    resource.release()


def test_what_is_imported_is_not_gone_through_for_garbage(make: Callable[..., PPDocLayout]) -> None:
    gc.unfreeze()
    detect(make(), some_pages(1))
    assert gc.get_freeze_count() > 100_000
    assert gc.isenabled()


def test_a_model_that_cannot_be_loaded_early_is_told_at_its_use(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def broken() -> None:
        raise OSError("libtorch_cuda.so: cannot open shared object file")

    monkeypatch.setattr(detector, "import_packages", broken)
    resource = make(repo=str(tmp_path))
    resource.prepare()
    with pytest.raises(EngineError, match="no PP-DocLayoutV3 weights in"):
        detect(resource, some_pages(1))


class SlowLoad:
    """A model loader that waits for `go_on`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        self._load = pp_network.load
        monkeypatch.setattr(pp_network, "load", self._waiting)

    def _waiting(self, repo: str, revision: str) -> Any:
        assert self.go_on.wait(SOON), "nobody let loading go on"
        return self._load(repo, revision)


@pytest.mark.parametrize("prepared", [False, True])
def test_pages_are_decoded_while_the_model_is_loaded_and_no_more_than_may_wait(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, prepared: bool
) -> None:
    batch = 2
    # Pages that may wait plus those that one thread holds; the last waiting page is not replaced yet.
    most = detector.BATCHES_AHEAD * batch + (2 + batch) - 1
    loading, taken, decoded, all_decoded = SlowLoad(monkeypatch), [], [], threading.Event()

    def counting(page: Page, gpu_jpeg: bool) -> Any:
        made = prepare(page, gpu_jpeg)
        decoded.append(page.page_id)
        if len(decoded) == most:
            all_decoded.set()
        return made

    def pages() -> Iterator[Page]:
        data = png(drawing(0, 120, 90))
        for i in range(most + 10):
            taken.append(i)
            yield Page(f"p{i}", data)

    monkeypatch.setattr(detector, "prepare", counting)
    resource = make(batch_size=batch, decode_threads=1)
    if prepared:
        resource.prepare()
    layouts: list[Layout] = []
    thread = threading.Thread(target=lambda: layouts.extend(resource.detect(pages())))
    thread.start()
    try:
        assert all_decoded.wait(SOON), f"{len(decoded)} pages were decoded"
        thread.join(0.1)
        assert len(taken) == most
        assert not layouts
    finally:
        loading.go_on.set()
        thread.join()
    assert [layout.page_id for layout in layouts] == [f"p{i}" for i in range(most + 10)]


def test_a_caller_that_stops_does_not_wait_for_the_model(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, resource = SlowLoad(monkeypatch), make()
    stream = resource.detect([Page("text", b"hello"), *some_pages(2)])
    assert next(iter(stream)).state is State.QUARANTINED
    stream.close()  # type: ignore[attr-defined]
    assert not loading.go_on.is_set()
    loading.go_on.set()
    resource.release()
    assert len(detect(resource, some_pages(1))) == 1


def test_two_models_are_not_read_at_the_same_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step may end while its model still loads, and the next step loads another."""
    from transformers import PPDocLayoutV3ForObjectDetection

    read, alone = PPDocLayoutV3ForObjectDetection.from_pretrained, threading.Lock()

    def noted(*arguments: Any, **options: Any) -> Any:
        assert alone.acquire(blocking=False), "two at once"
        try:
            time.sleep(0.1)
            return read(*arguments, **options)
        finally:
            alone.release()

    monkeypatch.setattr(PPDocLayoutV3ForObjectDetection, "from_pretrained", noted)
    with ThreadPoolExecutor(2) as threads:
        networks = list(threads.map(lambda repo: pp_network.load(repo, ""), [str(folder)] * 2))
    assert len(networks) == 2


def test_missing_weights_are_told_without_a_page_too(make: Callable[..., PPDocLayout], tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"config\.json and model\.safetensors") as caught:
        list(make(repo=str(tmp_path)).detect([]))
    assert "\n" not in str(caught.value)


def test_nobody_waits_for_a_model_that_is_not_needed_after_all(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    loading, closed, close = SlowLoad(monkeypatch), threading.Event(), pp_model.LayoutModel.close
    monkeypatch.setattr(pp_model.LayoutModel, "close", lambda model: (close(model), closed.set()))
    resource = make()
    resource.prepare()
    resource.release()
    assert not closed.is_set()
    loading.go_on.set()
    assert closed.wait(SOON)


def test_missing_weights_say_how_to_get_them(make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    revision = "0" * 40
    with pytest.raises(EngineError, match="example/none at 00000000: HF_HUB_OFFLINE is set") as caught:
        list(make(repo="example/none", revision=revision).detect(some_pages(1)))
    assert "\n" not in str(caught.value)


def test_incomplete_checkpoint_is_refused(make: Callable[..., PPDocLayout], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    repo = save_pp_doclayout(tmp_path)
    tensors = load_file(repo / "model.safetensors")
    del tensors["model.decoder_norm.weight"]
    save_file(tensors, repo / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EngineError, match=r"decoder_norm\.weight"):
        list(make(repo=str(repo)).detect(some_pages(1)))


@pytest.mark.parametrize("backbone", ["5", '{"model_type": "of another release"}'])
def test_a_configuration_that_transformers_does_not_take_is_one_line(
    make: Callable[..., PPDocLayout], tmp_path: Path, backbone: str
) -> None:
    (tmp_path / "config.json").write_text(f'{{"backbone_config": {backbone}}}')
    with pytest.raises(EngineError, match=r"no PP-DocLayoutV3 weights in .* set layout\.repo to a folder") as caught:
        list(make(repo=str(tmp_path)).detect(some_pages(1)))
    assert "\n" not in str(caught.value)


def test_weights_that_were_cut_off_are_one_line(make: Callable[..., PPDocLayout], tmp_path: Path) -> None:
    weights = save_pp_doclayout(tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(EngineError, match=r"no PP-DocLayoutV3 weights in .* set layout\.repo to a folder"):
        list(make(repo=str(weights.parent)).detect(some_pages(1)))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"repo": "PaddlePaddle/PP-DocLayoutV3_safetensors"}, "commit of 40 hex digits"),
        ({"repo": "PaddlePaddle/PP-DocLayoutV3_safetensors", "revision": "main"}, "commit of 40 hex digits"),
        ({"tasks": {"headline": "text"}}, "headline is no label"),
        ({"tasks": {"text": "read"}}, "read is no task"),
        ({"containment": {"text": "medium"}}, "medium"),
        ({"unclip": {"text": [1.0]}}, "unclip"),
    ],
)
def test_impossible_settings_are_one_line(
    make: Callable[..., PPDocLayout], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        make(**fields)
    assert "\n" not in str(caught.value)


def test_recipe_names_the_weights_and_not_the_speed(
    make: Callable[..., PPDocLayout], folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    assert make().recipe() == make(repo=str(copy), batch_size=9, compile=True).recipe()
    assert make().recipe() != make(threshold=0.4).recipe()
    other = save_pp_doclayout(tmp_path / "other", tiny_pp_doclayout(7, steady=True))
    assert make().recipe() != make(repo=str(other)).recipe()


def test_jpeg_that_is_not_plain_stays_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A PNG and a CMYK JPEG never ask for nvJPEG, a plain JPEG does."""
    import io

    from PIL import Image

    asked = []
    monkeypatch.setattr(
        page_regions,
        "_decode_and_shrink_on_gpu",
        lambda data: asked.append(data) or page_regions._decode_and_shrink(data),
    )
    image = drawing(0)
    jpeg = cv2.imencode(".jpg", image)[1].tobytes()
    cmyk = io.BytesIO()
    Image.fromarray(image).convert("CMYK").save(cmyk, "JPEG")
    for data in (png(image), cmyk.getvalue(), jpeg):
        assert replace(prepare(Page("p", data), gpu_jpeg=True), seconds=0.0).state is State.OK
    assert asked == [jpeg]


# --- several devices, and giving them back ----------------------------------------------------------------------------


def test_two_replicas_find_what_one_finds(make: Callable[..., PPDocLayout]) -> None:
    pages = [*some_pages(5), Page("broken", b"no image")]
    one, two = (make(batch_size=1, decode_threads=1, device=device) for device in ("cpu", "cpu, cpu"))
    expected, found = list(one.detect(pages)), list(two.detect(pages))
    assert_alike(by_id(found), by_id(expected))
    read = [layout.page_id for layout in found if layout.state is State.OK]
    assert read == [f"p{i}" for i in range(5)], "pages come out in the order in which they were decoded"
    counted = ("pages_ok", "pages_quarantined", "label_", "dropped_")
    reports = [
        {name: value for name, value in each.report().items() if name.startswith(counted)} for each in (one, two)
    ]
    assert reports[0] == reports[1]


def test_replicas_work_at_the_same_time(make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def meet(raw: "RawOutputs") -> "RawOutputs":
        both.wait(SOON)
        return raw

    spoil(monkeypatch, meet)
    layouts = detect(make(batch_size=1, device="cpu,cpu"), some_pages(4))
    assert {layout.state for layout in layouts.values()} == {State.OK}


def test_a_fallback_names_its_device(make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    forward, failed = pp_network.forward, threading.Event()

    def once_without_memory(network: Any, pixels: Any, polygons: bool) -> "RawOutputs":
        if len(pixels) == 2 and not failed.is_set():
            failed.set()
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB")
        return forward(network, pixels, polygons)

    monkeypatch.setattr(pp_model, "forward", once_without_memory)
    resource = make(batch_size=2, device="cpu,cpu")
    with pytest.warns(RuntimeWarning, match="batch halved to 1"):
        layouts = detect(resource, some_pages(6))
    assert {layout.state for layout in layouts.values()} == {State.OK}
    assert resource.report()["fallbacks"] == "cpu: batch halved to 1"


@pytest.mark.parametrize(
    ("device", "visible", "gpus"),
    [("cpu", 2, 0), ("cuda", 2, 1), ("cuda:1", 2, 1), ("cuda:0,cuda:1", 4, 2), ("all", 4, 4), ("all", 0, 0)],
)
def test_gpus_are_those_that_the_model_runs_on(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, device: str, visible: int, gpus: int
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    assert make(device=device).gpus == gpus


def test_all_of_no_gpu_is_one_line(make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(EngineError, match="no CUDA GPU is visible here"):
        list(make(device="all").detect(some_pages(1)))
    with pytest.raises(ConfigError, match=r"layout\.device is empty"):
        make(device=" , ")


def test_the_model_is_given_back_and_loaded_again(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    load = pp_network.load
    monkeypatch.setattr(pp_network, "load", lambda repo, revision: (loads.append(repo), load(repo, revision))[1])
    for keep_loaded, expected in ((False, 2), (True, 1)):
        loads.clear()
        resource = make(keep_loaded=keep_loaded)
        resource.release()
        first = detect(resource, some_pages(2))
        resource.release()
        assert detect(resource, some_pages(2)) == first
        assert len(loads) == expected


def test_relu_that_is_refused_when_it_runs_is_taken_apart(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(x: Any, weight: Any, bias: Any, stride: list[int], padding: list[int]) -> Any:
        if len(weight) == 8 and x.shape[-1] == 3:
            return x
        raise pp_network.ReluFusionError("CUDNN_STATUS_NOT_SUPPORTED")

    options = {"device": "cpu", "dtype": "float32", "compiled": False, "batch_size": 2, "polygons": False}
    plain = pp_model.LayoutModel(pp_network.load(str(folder), ""), **options)
    model = pp_model.LayoutModel(network := pp_network.load(str(folder), ""), **options)
    monkeypatch.setattr(pp_network, "conv_relu", refusing)
    pp_network.fuse_relu(network)
    pages = [drawing(i, 800, 800) for i in range(4)]
    with pytest.warns(RuntimeWarning, match="ReLU not fused, which is slower: CUDNN_STATUS_NOT_SUPPORTED"):
        outputs = model.submit(pages).result()
    assert np.allclose(outputs.boxes, plain.submit(pages).result().boxes, atol=1e-5)
    assert model.fallbacks == ["ReLU not fused"]


# --- nested boxes -----------------------------------------------------------------------------------------------------


def laid_out(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, *found: tuple[str, Any], **fields: Any
) -> list[tuple[str, Task]]:
    """Return (label, task) of regions when the model finds (label, box of 0 to 1)."""

    def put(raw: "RawOutputs") -> "RawOutputs":
        scores, boxes = torch.zeros_like(raw.scores), raw.boxes.clone()
        for query, (label, (x1, y1, x2, y2)) in enumerate(found):
            scores[:, query, LABELS.index(label)] = 0.9
            boxes[:, query] = torch.tensor([(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1])
        votes = torch.arange(raw.votes.shape[1]).expand_as(raw.votes).float()
        return raw._replace(scores=scores, boxes=boxes, votes=votes)

    spoil(monkeypatch, put)
    (layout,) = detect(make(**fields), some_pages(1)).values()
    return [(region.label, region.task) for region in layout.regions]


OUTER, INNER = (0.1, 0.1, 0.9, 0.6), (0.2, 0.2, 0.6, 0.4)


@pytest.mark.parametrize("picture", ["image", "seal"])
def test_text_within_a_picture_is_read(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, picture: str
) -> None:
    found = laid_out(make, monkeypatch, (picture, OUTER), ("text", INNER))
    assert [label for label, _ in found] == [picture, "text"]
    assert found[1][1] is Task.TEXT


@pytest.mark.parametrize("outer", ["table", "text", "chart", "display_formula"])
def test_text_within_what_is_read_as_one_is_not_read_twice(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch, outer: str
) -> None:
    assert [label for label, _ in laid_out(make, monkeypatch, (outer, OUTER), ("text", INNER))] == [outer]


def test_references_are_read_where_their_entries_are_not(
    make: Callable[..., PPDocLayout], monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, entry = ("reference", OUTER), ("reference_content", INNER)
    assert laid_out(make, monkeypatch, alone) == [("reference", Task.TEXT)]
    assert laid_out(make, monkeypatch, alone, entry) == [
        ("reference", Task.ABANDON),
        ("reference_content", Task.TEXT),
    ]
    assert laid_out(make, monkeypatch, alone, tasks={"reference": "abandon"}) == [("reference", Task.ABANDON)]
