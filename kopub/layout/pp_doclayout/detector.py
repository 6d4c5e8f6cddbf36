"""PP-DocLayoutV3 as the layout engine of the GPU profiles."""

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from kopub.engine import ProfileOnly, missing_modules, releases, require_installed
from kopub.errors import ConfigError, EngineError
from kopub.fingerprints import CodeVersion, file_sha256
from kopub.gpu import all_gpus, named_gpus
from kopub.layout.base import SPECK, SPECK_FIELD, LayoutDetector
from kopub.layout.pp_doclayout.devices import batch_error, import_packages, named_devices
from kopub.layout.pp_doclayout.page_regions import (
    NO_REGION,
    Findings,
    LayoutRules,
    ModelInput,
    find_regions,
    prepare,
)
from kopub.layout.pp_doclayout.postprocess import BoxRules, Containment, make_rules
from kopub.layout.pp_doclayout.process import ModelProcess, ModelStart
from kopub.layout.regions import Layout, check_labels, tasks_by_label
from kopub.pages.page import Page
from kopub.parallel import BackgroundTask, bounded_map, tuned_for_decoding
from kopub.processes import give_back
from kopub.states import Reason, State

if TYPE_CHECKING:
    from kopub.layout.pp_doclayout.replicas import Replicas

BATCHES_AHEAD = 32
"""Most batches of decoded pages that wait for the model: with 32 pages of 1.9 MB each, 2 GB. So 16 cores can decode for
three seconds while the model is loaded, which then starts with a full queue."""


class _RunningBatch(NamedTuple):
    """A batch submitted to the model, with its future findings."""

    pages: list[ModelInput]
    findings: Future[list[Findings]]


class PPDocLayout(LayoutDetector):
    """Layout by PP-DocLayoutV3 (transformers), in batches on a GPU.

    Threads decode the next pages meanwhile.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion(
        "layout.pp_doclayout",
        {
            1: "the first release",
            2: "a page with nothing but specks is blank, not failed",
            3: "a blank page that is dark all over has a reason, and is doubted",
        },
    )
    typical_seconds: ClassVar[float] = 0.006
    # `weights` identifies the files themselves: the same file in another folder gives the same regions.
    speed_only: ClassVar[frozenset[str]] = frozenset(
        {"repo", "revision", "device", "compile", "batch_size", "decode_threads", "keep_loaded", "own_process"}
    )

    spans_shards: ClassVar[bool] = True

    repo: ProfileOnly[str] = Field(
        description="Hub repository, or a local folder with config.json and model.safetensors."
    )
    revision: ProfileOnly[str] = Field(
        default="", description="Commit of the Hub repository, 40 hex digits; empty for a folder."
    )
    device: str = Field(
        default="cuda",
        description="Where the model runs: cuda, cuda:1, cpu; several with commas, as in cuda:0,cuda:1; all is each "
        "GPU that CUDA_VISIBLE_DEVICES leaves visible, with a replica of the model on every one.",
    )
    dtype: Literal["float16", "bfloat16", "float32"] = Field(
        default="float16", description="Precision of the features; boxes and scores are always float32."
    )
    compile: bool = Field(default=True, description="torch.compile: 90 s at the first start, 13 s later, then faster.")
    batch_size: int = Field(
        default=16,
        ge=1,
        description="Pages in one pass of the model; up to 32 times as many wait for it decoded, at 1.9 MB each.",
    )
    decode_threads: int = Field(default=0, ge=0, description="Threads that decode pages; 0 is one for each core.")
    gpu_jpeg: bool = Field(
        default=False, description="Decode JPEG pages by nvJPEG (needs torchvision): faster below about 12 cores."
    )
    keep_loaded: bool = Field(
        default=False,
        description="Keep the model in memory after a step, for the next one of the same process. A model server that "
        "is started then finds less free memory.",
    )
    own_process: bool = Field(
        default=True,
        description="Run the model in a process of its own, which loads it while the run does other work, and gives "
        "all memory back at its end. With `polygons` or `gpu_jpeg`, which need the GPU here, it runs here.",
    )
    polygons: bool = Field(
        default=False, description="Also compute the outline of each region; readers see nothing outside of it."
    )
    threshold: float = Field(default=0.3, gt=0, lt=1, description="Lowest score of a region.")
    speck: float = Field(default=SPECK, ge=0, lt=0.1, description=SPECK_FIELD)
    thresholds: dict[str, float] = Field(default={}, description="Lowest score by label, instead of `threshold`.")
    nms_same: float = Field(
        default=0.6, gt=0, le=1, description="IoU from which one of two boxes of a label is dropped."
    )
    nms_different: float = Field(default=0.98, gt=0, le=1, description="The same for two boxes of different labels.")
    overlap: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Shared area of two boxes, as a share of the smaller one, above which that is dropped, whatever "
        "their labels; a picture and a box of another label both stay, and an inline formula is dropped above one "
        "half. null: no such rule.",
    )
    containment: dict[str, str] = Field(
        default={"image": "union", "seal": "union", "reference": "small"},
        description="Which of two nested boxes is dropped, by label: large (the inner one; the default of a label "
        "that is not named), small (the outer one), union (none). With image: union, text within pictures is read.",
    )
    unclip: dict[str, list[float]] = Field(default={}, description="Factors [width, height] to grow boxes of a label.")
    tasks: dict[str, str] = Field(default={}, description="Labels whose task differs from the usual one.")

    _model: "Replicas | ModelProcess | None" = PrivateAttr(default=None)
    _loading: "BackgroundTask[Replicas | ModelProcess] | None" = PrivateAttr(default=None)
    _counts: Counter[str] = PrivateAttr(default_factory=Counter)
    _seconds: dict[str, float] = PrivateAttr(default_factory=lambda: defaultdict(float))
    _reported: dict[str, float] = PrivateAttr(default_factory=dict)

    @field_validator("thresholds", "containment", "unclip", "tasks")
    @classmethod
    def _labels_that_exist(cls, by_label: dict[str, object], info: ValidationInfo) -> dict[str, object]:
        check_labels(f"layout.{info.field_name}", by_label)
        return by_label

    @model_validator(mode="after")
    def _usable(self) -> "PPDocLayout":
        tasks_by_label(self.tasks)
        self._rules()
        is_commit = len(self.revision) == 40 and set(self.revision) <= set("0123456789abcdef")
        if not self.device.strip(" ,"):
            raise ConfigError("layout.device is empty; use cuda, cuda:1, all or cpu")
        if not is_commit and not Path(self.repo).is_dir():
            form = "layout.repo {repo!r} is no folder, so layout.revision must pin it: a commit of 40 hex digits"
            raise ConfigError(form, self.repo)
        return self

    @property
    def gpus(self) -> int:
        try:
            return len({name for name in named_devices(self.device) if name.startswith("cuda")})
        except EngineError:
            return 0  # loading the model reports that no GPU is visible

    @property
    def cards(self) -> tuple[str, ...]:
        if not self.gpus:
            return ()
        try:
            if self.device.strip() == "all":
                return all_gpus()
            devices = map(str.strip, self.device.split(","))
            indexes = {int(device.partition(":")[2] or 0) for device in devices if device.startswith("cuda")}
            return named_gpus(sorted(indexes))
        except (ValueError, EngineError):
            return ()  # torch reports the error when the model is loaded

    @property
    def gpu_memory(self) -> int:
        """Bytes of GPU memory that the model takes.

        It is 1 GB with the CUDA context, plus what a batch took on an H200: 6 GB for 64 pages.
        """
        return int(1e9 + 80e6 * self.batch_size) if self.gpus else 0

    @property
    def start_seconds(self) -> float:
        """Seconds that loading takes on an H200, including the import of PyTorch.

        At the first start, compiling takes 60 to 75 s more.
        """
        return 0.0 if self._model is not None else 17.0

    def not_installed(self) -> list[str]:
        return missing_modules("torch", "transformers", *(("torchvision",) if self.gpu_jpeg else ()))

    def weights(self) -> dict[str, str]:
        folder, libraries = Path(self.repo), releases("torch", "opencv-python-headless")
        if folder.is_dir():
            return {file.name: file_sha256(file) for file in sorted(folder.glob("*.safetensors"))} | libraries
        return {self.repo: self.revision} | libraries

    def prepare(self) -> None:
        """Begin to load the model; if it runs in this process, import its packages first.

        The import takes 4 s; beside threads that read or decode pages it would take 8 to 14 s, and hold them up.
        """
        if self._model is None and self._loading is None:
            if not self._apart:
                with suppress(Exception):  # loading the model reports any error
                    import_packages()
            self._loading = BackgroundTask(self._load)

    def detect(self, pages: Iterable[Page]) -> Iterator[Layout]:
        require_installed([self])
        started = time.perf_counter()
        failures: Counter[str | None] = Counter()
        for figures in (self._counts, self._seconds, self._reported, *([self._model.seconds] if self._model else [])):
            figures.clear()
        self.prepare()
        try:
            with tuned_for_decoding():
                for layout in self._stream(pages):
                    self._counts[f"pages_{layout.state}"] += 1
                    if layout.state is State.FAILED:
                        failures[layout.reason] += 1
                    yield layout
        except EngineError:
            # Its process may be broken, so the next shards get a new one.
            if isinstance(self._model, ModelProcess):
                self._model.close()
                self._model = None
            raise
        finally:
            self._seconds["total"] += time.perf_counter() - started
        if failures and not (self._counts[f"pages_{State.OK}"] or self._counts[f"pages_{State.BLANK}"]):
            reason, count = failures.most_common(1)[0]
            # A single page without regions may just be unusual; several mean that the model finds nothing.
            if failures.total() > 1 or not isinstance(reason, Reason) or reason.form != NO_REGION:
                form = (
                    "layout came out for none of {pages} pages ({times} times: {reason}); check the weights, "
                    "layout.dtype and layout.threshold"
                )
                raise EngineError(form, failures.total(), count, reason)

    def reference(self, page: Page) -> Layout:
        """Return the layout from transformers' own forward pass, in float32 on the host."""
        from kopub.layout.pp_doclayout.model import reference

        prepared = prepare(page, gpu_jpeg=False)
        if prepared.pixels is None:
            return Layout(page.page_id, prepared.state, prepared.reason)
        outputs = reference(self.repo, self.revision, prepared.pixels)
        return find_regions([prepared], outputs, self._page_rules())[0].layout

    def take_figures(self) -> dict[str, float]:
        """Return counts and seconds of the pages since the last call.

        Counts are by label and rule, and seconds by stage. `seconds_decode` sums over all threads; the other stages run
        one at a time. A batch's figures are assigned to the first page that comes out after it.
        """
        figures: dict[str, float] = {}
        before, self._reported = self._reported, self._sums()
        for name, value in self._reported.items():
            if new := value - before.get(name, 0.0):
                figures[name] = new
        return figures

    def report(self) -> dict[str, float | str]:
        """Return the figures not yet taken, fallbacks and peak memory.

        At the end of a `detect` they include pages per second. `seconds_total`, and so pages per second, also includes
        the time that the caller takes for each page.
        """
        model, total = self._model, self._seconds.get("total", 0.0)
        pages = sum(self._counts[f"pages_{state}"] for state in State)
        figures: dict[str, float | str] = {}
        for name, value in sorted(self._sums().items()):
            if new := value - self._reported.get(name, 0.0):
                figures[name] = round(new, 3)
        if total:
            figures |= {"seconds_total": round(total, 3), "pages_per_second": round(pages / total, 2)}
        figures["gpu_memory_peak_gb"] = round(model.memory_peak / 1e9, 2) if model else 0.0
        figures["fallbacks"] = ", ".join(model.fallbacks) if model else ""
        return figures

    def release(self) -> None:
        """Free the model's memory unless `keep_loaded` is set; the next `detect` reloads it."""
        if self.keep_loaded:
            return
        if self._loading is not None:
            # Nobody needed this model after all, so no step and no Ctrl-C waits until it is loaded.
            loading, self._loading = self._loading, None

            def close() -> None:
                with suppress(Exception):  # a model that could not be loaded holds nothing
                    loading.result().close()

            loading.when_done(close)
        if self._model is not None:
            self._model.close()
            self._model = None
            give_back()

    def _sums(self) -> dict[str, float]:
        """Return the counts and seconds of the present `detect`, which only grow."""
        sums = {name: float(count) for name, count in self._counts.items()}
        for stage, value in {**self._seconds, **(self._model.seconds if self._model else {})}.items():
            if stage != "total":
                sums[f"seconds_{stage}"] = value
        return sums

    @property
    def _apart(self) -> bool:
        return self.own_process and not (self.polygons or self.gpu_jpeg)

    def _loaded(self) -> "Replicas | ModelProcess":
        if self._model is None:
            loading, self._loading = self._loading, None
            self._model = self._load() if loading is None else loading.result()
        return self._model

    def _load(self) -> "Replicas | ModelProcess":
        options = {
            "dtype": self.dtype,
            "compiled": self.compile,
            "batch_size": self.batch_size,
            "polygons": self.polygons,
        }
        if self._apart:
            return ModelProcess(ModelStart(self.repo, self.revision, self.device, self._page_rules(), options))
        from kopub.layout.pp_doclayout.network import load
        from kopub.layout.pp_doclayout.replicas import Replicas

        devices = named_devices(self.device)
        return Replicas(load(self.repo, self.revision), devices, self._page_rules(), **options)

    def _page_rules(self) -> LayoutRules:
        tasks = tasks_by_label(self.tasks)
        return LayoutRules(self._rules(), tasks, frozenset(self.tasks), self.threshold, self.dtype, self.speck)

    def _rules(self) -> BoxRules:
        try:
            return make_rules(
                threshold=self.threshold,
                thresholds=self.thresholds,
                nms_same=self.nms_same,
                nms_different=self.nms_different,
                containment={label: Containment(mode) for label, mode in self.containment.items()},
                unclip={label: (width, height) for label, (width, height) in self.unclip.items()},
                overlap=self.overlap,
            )
        except ValueError as error:
            raise ConfigError("layout.containment or layout.unclip: {reason}", error) from None

    def _stream(self, pages: Iterable[Page]) -> Iterator[Layout]:
        """Decode on threads while the model is loaded, then feed it batches.

        The model and the rules run on other threads.
        """
        waiting: deque[ModelInput] = deque()
        running: deque[_RunningBatch] = deque()
        most = BATCHES_AHEAD * self.batch_size
        # No decoded pages are taken while the caller works on a batch, so the threads get a batch's work in advance.
        decoded = bounded_map(lambda page: prepare(page, self.gpu_jpeg), pages, self.decode_threads, self.batch_size)
        with closing(decoded):
            for page in decoded:
                if page.pixels is None:
                    self._seconds["decode"] += page.seconds
                    yield Layout(page.page_id, page.state, page.reason)
                    continue
                waiting.append(page)
                is_loading = self._model is None and self._loading is not None and not self._loading.done
                if is_loading and len(waiting) < most:
                    continue
                self._submit(waiting, running)
                while running and (running[0].findings.done() or len(waiting) >= most):
                    oldest = running.popleft()
                    self._submit(waiting, running)
                    yield from self._finish(oldest)
            self._loaded()
            while waiting or running:
                self._submit(waiting, running, last=True)
                yield from self._finish(running.popleft())

    def _submit(self, waiting: deque[ModelInput], running: deque[_RunningBatch], last: bool = False) -> None:
        """Submit whole batches to the model or, for the `last` pages, a partial one."""
        model = self._loaded()
        while len(running) < model.under_way and len(waiting) >= (1 if last else model.batch_size):
            # The model's thread may halve its batch size meanwhile; this batch is then larger, which it allows.
            batch = [waiting.popleft() for _ in range(min(len(waiting), model.batch_size))]
            pixels = [page.pixels for page in batch if page.pixels is not None]
            running.append(_RunningBatch(batch, model.submit(batch, pixels)))

    def _finish(self, batch: _RunningBatch) -> Iterator[Layout]:
        try:
            findings = batch.findings.result()
        except RuntimeError as error:
            raise batch_error(error) from error
        for page, (layout, counts) in zip(batch.pages, findings, strict=True):
            self._counts.update(counts)
            self._seconds["decode"] += page.seconds
            yield layout
