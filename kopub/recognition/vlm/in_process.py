"""The recognizers' models in this process by transformers, with equal prompts, pictures and answers."""

import asyncio
import base64
import json
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from io import BytesIO
from typing import Any, ClassVar, Literal, Self

from PIL import Image
from pydantic import Field, PrivateAttr, ValidationError, model_validator

from kopub.engine import ProfileOnly, missing_modules, releases, require_installed
from kopub.errors import EngineError, first_line
from kopub.fingerprints import CodeVersion
from kopub.layout.regions import Region
from kopub.pages.page import Page
from kopub.recognition.base import Recognizer
from kopub.recognition.regions import PageReading
from kopub.recognition.vlm.client.reader import ReadingJob, VlmReader
from kopub.recognition.vlm.glm_ocr import GlmOcrRecognizer
from kopub.recognition.vlm.paddleocr_vl import PaddleOcrVlRecognizer
from kopub.recognition.vlm.recognizer import VlmRecognizer
from kopub.vllm.client.requests import OversizedRequest
from kopub.vllm.server import VLLMServer

_READERS: Mapping[str, type[VlmRecognizer]] = {"glm_ocr": GlmOcrRecognizer, "paddleocr_vl": PaddleOcrVlRecognizer}
_OPTIONS = ("temperature", "top_p", "top_k", "repetition_penalty", "seed", "ignore_eos", "skip_special_tokens")
"""Fields of a request that transformers has an option for."""
_GATHER_SECONDS = 0.02
"""Seconds that a batch waits for more requests; those of one page arrive within milliseconds."""


class TransformersRecognizer(Recognizer):
    """Reads regions with GLM-OCR or PaddleOCR-VL here, on CUDA, Apple's GPU or a CPU.

    The model runs in this process, in batches. It is for machines on which vLLM does not run, and is the plain way with
    which a server is compared. Prompts, pictures, the retry plan and the cleaning of answers are those of the reader
    that uses a server.
    """

    code_version: ClassVar[CodeVersion] = CodeVersion("recognition.transformers", {1: "the first release"})
    speed_only: ClassVar[frozenset[str]] = frozenset({"device", "batch_size", "pages_at_once"})
    typical_seconds: ClassVar[float] = 5.0
    limits: ClassVar[tuple[str, ...]] = GlmOcrRecognizer.limits

    reader: Literal["glm_ocr", "paddleocr_vl"] = Field(description="Reader whose model it is; not deepseek_ocr.")
    repo: ProfileOnly[str] = Field(description="Hub repository or folder of a checkpoint.")
    revision: ProfileOnly[str] = Field(default="", description="Commit of the Hub repository; a folder has none.")
    device: str = Field(default="auto", description="cuda, mps or cpu; auto takes the first that is available.")
    dtype: str = Field(
        default="auto", description="Type of weights and activations; auto is bfloat16, and float32 on a CPU."
    )
    batch_size: int = Field(default=8, ge=1, description="Regions that are read at once.")
    pages_at_once: int = Field(default=4, ge=1, description="Pages whose regions fill the batches.")
    max_model_len: int = Field(default=16_384, ge=1, description="Tokens of a prompt with its picture and answer.")
    max_image_tokens: int = Field(default=6144, ge=1, description="Tokens of the largest picture.")
    reading: dict[str, Any] = Field(
        default={},
        description="Further keys of that reader's own section: prompts, sampling, scripts, tries, line_height.",
    )

    _model: "LocalModel | None" = PrivateAttr(default=None)
    _figures: dict[str, float] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            self.served  # noqa: B018
        except ValidationError as error:
            raise ValueError(f"reading: {error.errors()[0]['msg']}") from None
        return self

    @cached_property
    def served(self) -> VlmRecognizer:
        """The same reader, configured as it would be with a server."""
        server = VLLMServer(
            model=self.repo,
            revision=self.revision or None,
            mode="external",
            urls=["http://in-process"],
            version=f"transformers {releases('transformers')['transformers']}",
            dtype=self.dtype,
            max_model_len=self.max_model_len,
            max_num_batched_tokens=self.max_model_len,
            max_image_tokens=min(self.max_image_tokens, self.max_model_len),
        )
        return _READERS[self.reader](server=server, **self.reading)

    def recipe(self) -> dict[str, Any]:
        """Add the recipe of the reader with a server: versions, pictures and prompts."""
        return {**super().recipe(), "as": self.served.recipe()}

    def weights(self) -> dict[str, str]:
        return {**self.served.weights(), **releases("torch", "transformers")}

    @property
    def expected_scripts(self) -> frozenset[str]:
        return self.served.expected_scripts

    @property
    def gpu_memory(self) -> int:
        memory = self.served.model_memory
        if memory is None or not self.device.startswith("cuda"):
            return 0
        return memory.weights + self.batch_size * self.max_image_tokens * memory.step_token // 4

    def not_installed(self) -> list[str]:
        return missing_modules("torch", "transformers", "PIL")

    def read(self, pages: Iterable[tuple[Page, Sequence[Region]]]) -> Iterator[PageReading]:
        require_installed([self])
        self._figures = {}
        if self._model is None:
            self._model = LocalModel(self.repo, self.revision or None, self.device, self.dtype, self.batch_size)
        client = LocalClient(self._model, self.max_model_len)
        reader, loop = VlmReader(self.served.request_settings()), asyncio.new_event_loop()
        under_way: set[asyncio.Task[tuple[PageReading, Any]]] = set()
        try:
            for page, regions in pages:
                prepared = reader.prepare(ReadingJob(page.page_id, bytes(page.data), tuple(regions)))
                under_way.add(loop.create_task(reader.finish(prepared, client)))  # pyright: ignore[reportArgumentType]
                if len(under_way) >= self.pages_at_once:
                    yield from self._finished(loop, under_way)
            while under_way:
                yield from self._finished(loop, under_way)
        finally:
            for task in under_way:
                task.cancel()
            if under_way:
                loop.run_until_complete(asyncio.wait(under_way))
            reader.close()
            loop.close()

    def _finished(
        self, loop: asyncio.AbstractEventLoop, under_way: set[asyncio.Task[tuple[PageReading, Any]]]
    ) -> Iterator[PageReading]:
        """Wait for the next pages to finish, and remove them from those in progress."""
        done, _ = loop.run_until_complete(asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED))
        under_way -= done
        for task in done:
            reading, figures = task.result()
            for name, value in figures.items():
                self._figures[name] = self._figures.get(name, 0.0) + value
            yield reading

    def report(self) -> dict[str, float | str]:
        return dict(self._figures)

    def release(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None


@dataclass(slots=True)
class LocalRequest:
    """A region to read: picture, prompt, room for tokens, and sampling."""

    picture: Image.Image
    prompt: str
    room: int
    options: dict[str, Any]
    answer: Future[dict[str, Any]] = field(default_factory=Future)


class LocalClient:
    """A stand-in for the model server client that a `VlmReader` needs."""

    def __init__(self, model: "LocalModel", context: int) -> None:
        self._model, self._context = model, context

    async def model(self) -> str:
        """Return the model name used in requests."""
        return self._model.name

    async def post(
        self, path: str, body: bytes, read: Callable[[Any], Any], flow: Hashable, cost: float
    ) -> tuple[Any, float]:
        """Return the model's answer, converted by `read`, and its seconds. Raises `OversizedRequest`."""
        started = time.perf_counter()
        fields = json.loads(body)
        image, text = fields["messages"][0]["content"]
        picture = Image.open(BytesIO(base64.b64decode(image["image_url"]["url"].partition(",")[2]))).convert("RGB")
        options = {name: fields[name] for name in _OPTIONS if name in fields}
        request = LocalRequest(picture, text["text"], fields["max_tokens"], options)
        if len(request.prompt) + cost > self._context:
            raise OversizedRequest(f"a picture of {cost:.0f} tokens and its prompt exceed {self._context}")
        self._model.requests.put(request)
        return read(await asyncio.wrap_future(request.answer)), time.perf_counter() - started

    def take_retries(self) -> int:
        """Return 0, because nothing is sent twice."""
        return 0


class LocalModel:
    """A vision-language model of transformers, with the thread that answers batches of requests."""

    def __init__(self, name: str, revision: str | None, device: str, dtype: str, batch_size: int) -> None:
        import torch
        from transformers import AutoImageProcessor, AutoModelForImageTextToText, AutoTokenizer

        self.name, self._batch_size = name, batch_size
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        wanted = torch.float32 if device == "cpu" else torch.bfloat16
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(name, revision=revision, padding_side="left")
            # The complete chat processor would need torchvision, for videos.
            self._pictures: Any = AutoImageProcessor.from_pretrained(name, revision=revision)
            # The annotations of transformers do not include output_loading_info.
            from_pretrained: Any = AutoModelForImageTextToText.from_pretrained
            model, report = from_pretrained(
                name,
                revision=revision,
                dtype=wanted if dtype == "auto" else getattr(torch, dtype),
                output_loading_info=True,
            )
            self._model: Any = model.to(device).eval()
        except Exception as error:  # transformers fails on damaged files in many ways
            what = first_line(f"{type(error).__name__}: {error}")
            form = "{name} cannot be loaded by transformers: {error}; try `kopub pull`"
            raise EngineError(form, name, what) from error
        # transformers would put random numbers in their place.
        if lacking := sorted(report["missing_keys"]):
            form = "{name} is not a whole checkpoint: {count} tensors such as {tensor} are missing; download it again"
            raise EngineError(form, name, len(lacking), lacking[0])
        self._device, self._image_token = device, self._model.config.image_token_id
        self._takes_types = "mm_token_type_ids" in signature(self._model.forward).parameters
        self.requests: queue.Queue[LocalRequest | None] = queue.Queue()
        """The requests to be answered; None ends the thread."""
        self._thread = threading.Thread(target=self._work, name="transformers", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread after its batch, and free the model's memory."""
        self.requests.put(None)
        self._thread.join()
        self._model = None
        if self._device.startswith("cuda"):
            import torch

            torch.cuda.empty_cache()

    def _work(self) -> None:
        """Answer batches of requests with equal options until `close`."""
        pending: list[LocalRequest] = []
        ended = False
        while not ended:
            # The first request of a batch is waited for, and then those that come with it.
            deadline = time.monotonic() if pending else None
            while len(pending) < self._batch_size:
                wait = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    request = self.requests.get(timeout=wait)
                except queue.Empty:
                    break
                if request is None:
                    ended = True
                    break
                pending.append(request)
                deadline = deadline or time.monotonic() + _GATHER_SECONDS
            batch: list[LocalRequest] = []
            others: list[LocalRequest] = []
            for request in pending:
                is_alike = request.options == pending[0].options and len(batch) < self._batch_size
                (batch if is_alike else others).append(request)
            pending = others
            # The pages of a reader that was stopped want no answer any more.
            if wanted := [request for request in batch if request.answer.set_running_or_notify_cancel()]:
                self._answer(wanted)

    def _answer(self, batch: list[LocalRequest]) -> None:
        """Answer a batch, or its halves if memory does not suffice."""
        import torch

        try:
            answers = self._generate(batch)
        except torch.OutOfMemoryError as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(OversizedRequest(first_line(error)))
                return
            torch.cuda.empty_cache()
            for half in (batch[: len(batch) // 2], batch[len(batch) // 2 :]):
                self._answer(half)
        except Exception as error:
            for request in batch:
                form = "{name} failed: {kind}: {error}"
                request.answer.set_exception(EngineError(form, self.name, type(error).__name__, first_line(error)))
        else:
            for request, answer in zip(batch, answers, strict=True):
                request.answer.set_result(answer)

    def _generate(self, batch: Sequence[LocalRequest]) -> list[dict[str, Any]]:
        """Return the answers to a batch in the form in which a server sends them."""
        import torch

        options, inputs = dict(batch[0].options), self._inputs(batch)
        room = max(request.room for request in batch)
        skip_special = options.pop("skip_special_tokens", True)
        if (seed := options.pop("seed", None)) is not None:
            torch.manual_seed(seed)
        if options.pop("ignore_eos", False):
            options["min_new_tokens"] = room
        if not options.pop("temperature", 0.0):
            options.pop("top_p", None)
            options |= {"do_sample": False}
        else:
            options |= {"do_sample": True, "temperature": batch[0].options["temperature"]}
        with torch.inference_mode():
            rows = self._model.generate(**inputs, max_new_tokens=room, **options)[:, inputs["input_ids"].shape[1] :]
        prompts = inputs["attention_mask"].sum(dim=1).tolist()
        end = self._model.generation_config.eos_token_id
        ends = {end} if isinstance(end, int) else set(end or ())
        answers: list[dict[str, Any]] = []
        for request, row, prompt in zip(batch, rows.tolist(), prompts, strict=True):
            # A row goes on behind its end token, or beyond its room, for as long as another of the batch.
            length = next((at for at, token in enumerate(row) if token in ends), len(row))
            stopped = length < min(request.room, len(row))
            tokens = row[: min(length, request.room)]
            text = self._tokenizer.decode(tokens, skip_special_tokens=skip_special)
            choice = {"message": {"content": text}, "finish_reason": "stop" if stopped else "length"}
            usage = {"prompt_tokens": prompt, "completion_tokens": len(tokens) + stopped}
            answers.append({"choices": [choice], "usage": usage})
        return answers

    def _inputs(self, batch: Sequence[LocalRequest]) -> dict[str, Any]:
        """Return the model's inputs: padded prompts with a token per patch, and the pictures."""
        mark = self._tokenizer.convert_ids_to_tokens(self._image_token)
        pictures = self._pictures(images=[request.picture for request in batch], return_tensors="pt")
        patches = pictures["image_grid_thw"].prod(dim=1) // self._pictures.merge_size**2
        texts = []
        for request, tokens in zip(batch, patches.tolist(), strict=True):
            chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": request.prompt}]}]
            text = self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
            texts.append(text.replace(mark, mark * tokens, 1))
        words = self._tokenizer(texts, padding=True, add_special_tokens=False, return_tensors="pt")
        inputs = {name: words[name].to(self._device) for name in ("input_ids", "attention_mask")}
        if self._takes_types:
            inputs["mm_token_type_ids"] = (inputs["input_ids"] == self._image_token).int()
        inputs["image_grid_thw"] = pictures["image_grid_thw"].to(self._device)
        return {**inputs, "pixel_values": pictures["pixel_values"].to(self._device, self._model.dtype)}
