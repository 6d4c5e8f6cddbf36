"""Computes the memory of a card that the parts of a profile take."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kopub.config.profile_files import Card
from kopub.engine import Engine
from kopub.errors import ConfigError
from kopub.states import joined, phrase
from kopub.vllm.served_engine import ModelMemory, ServedEngine
from kopub.vllm.server import VLLMServer
from kopub.vllm.server_fields import ALL_GPUS
from kopub.weights.hub import managed_server

_SHARE = 0.92
"""vLLM's own `gpu_memory_utilization`."""
_CONTEXT = 500_000_000
"""The CUDA context of a server's process, its kernels and its graphs."""
_KEPT = {"fp8": 0.62, "bitsandbytes": 0.42, "awq": 0.42, "gptq": 0.42}
"""Share of the weights' size after quantization, which spares embeddings and encoders. vLLM reports 1.34 GB for
GLM-OCR's 2.2 in FP8; the others are estimated from it."""
_CUDA = re.compile(r"cuda(?::(\d+))?")
"""The name of one GPU in the `device` of an engine."""
_UNITS = {"": 1, "k": 10**3, "K": 2**10, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30, "t": 10**12, "T": 2**40}
"""The units of vLLM's own arguments."""


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """The bytes of a card that one server takes, estimated."""

    weights: int
    cache: int
    activations: int
    cache_is_fixed: bool
    """True if the profile sets its size; otherwise it is the rest of the server's share."""

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.activations + _CONTEXT

    def __str__(self) -> str:
        form = "weights {weights:.1f}, cache {cache:.1f}, activations {activations:.1f}, CUDA {cuda:.1f}"
        return phrase(form, *(size / 1e9 for size in (self.weights, self.cache, self.activations, _CONTEXT)))


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """The memory of one GPU that one part of a profile takes."""

    who: str
    gpu: int
    share: float = 0.0
    bytes: int = 0
    shares_gpu: bool = True
    """False for a server that stops the others while it runs."""
    server: ServerMemory | None = None
    """The parts of a server's memory, if those of its model are known."""

    def of(self, total: int) -> int:
        """Return the bytes that it takes on a GPU with `total` bytes.

        A server's share must be free, and the server may take more.
        """
        return max(int(self.share * total), self.least) + self.bytes

    @property
    def least(self) -> int:
        """The bytes without which a server cannot work."""
        return self.server.total if self.server else 0

    def __str__(self) -> str:
        if self.server is None:
            return phrase("{part} {size:.1f}", self.who, self.bytes / 1e9)
        return phrase("{part} {size:.1f} ({sizes})", self.who, self.server.total / 1e9, str(self.server))


def memory_demands(engines: Mapping[str, Engine], count: int) -> list[MemoryDemand]:
    """Return the demands of servers and engines on each of the `count` GPUs of torch.

    Sections with equal servers share one.
    """
    asks: list[MemoryDemand] = []
    shared: dict[str, list[str]] = defaultdict(list)
    models: dict[str, tuple[VLLMServer, ModelMemory | None]] = {}
    for section, engine in engines.items():
        if (server := managed_server(engine)) is not None:
            key = server.model_dump_json()
            shared[key].append(section)
            models[key] = server, engine.memory if isinstance(engine, ServedEngine) else None
        if engine.gpu_memory:
            # The GPUs of an engine's own model; torch reports a name that it does not know when the model is loaded.
            device = str(getattr(engine, "device", ""))
            matches = (_CUDA.fullmatch(name.strip()) for name in device.split(","))
            gpus = sorted({int(match[1] or 0) for match in matches if match}) or [0]
            if device.strip() == ALL_GPUS:
                gpus = list(range(count))
            asks += [MemoryDemand(section, gpu, bytes=engine.gpu_memory) for gpu in gpus]
    for key, (server, model) in models.items():
        sections = " and ".join(shared[key])
        share = server.gpu_memory_utilization or _SHARE
        gpus = list(range(count)) if server.gpus == ALL_GPUS else server.gpus
        width = server.tensor_parallel
        groups = [gpus[start : start + width] for start in range(0, len(gpus) - width + 1, width)]
        parts = None
        if model is not None:
            # The cache holds at least one longest request.
            files = list(server.folder.glob("*.safetensors")) if server.folder.is_dir() else []
            weights = sum(file.stat().st_size for file in files) or model.weights
            kept = int(weights * _KEPT.get(server.quantization or "", 1.0) / server.tensor_parallel)
            fixed = server.kv_cache_memory
            cache = _bytes(fixed) if fixed else _cache_of_one(server, model)
            activations = server.max_num_batched_tokens * model.step_token + model.picture
            parts = ServerMemory(kept, cache, activations, bool(fixed))
        # A CPU build has no GPU; groups are assigned to replicas in turn.
        for replica in range((server.replicas or server.replicas_per_gpu * len(groups)) if groups else 0):
            for gpu in groups[replica % len(groups)]:
                asks.append(MemoryDemand(f"{sections} server", gpu, share, shares_gpu=server.share_gpu, server=parts))
    return asks


def demands_at_once(asks: Sequence[MemoryDemand], total: int) -> list[MemoryDemand]:
    """Return the simultaneous demands on a GPU of `total` bytes when it is fullest."""
    alone: dict[str, list[MemoryDemand]] = defaultdict(list)
    servers: list[MemoryDemand] = []
    engines: list[MemoryDemand] = []
    for ask in asks:
        if not ask.shares_gpu:
            alone[ask.who].append(ask)
        elif ask.share:
            servers.append(ask)
        else:
            engines.append(ask)
    choices = [servers, *alone.values()]
    return [*max(choices, key=lambda some: sum(ask.of(total) for ask in some)), *engines]


def memory_sums(engines: Mapping[str, Engine], card: Card) -> tuple[str, bool]:
    """Return what each part of a profile takes of its card, and whether it fits.

    It is that of the fullest card, and empty if no part takes any.
    """
    total = int(card.memory_gb * 1e9)

    def most_of(asks: Sequence[MemoryDemand]) -> int:
        return sum(ask.of(total) for ask in demands_at_once(asks, total))

    by_gpu = _by_gpu(ask for ask in memory_demands(engines, 1) if ask.server or ask.bytes)
    if not by_gpu:
        return "", True
    asks = max(by_gpu.values(), key=most_of)
    counts = Counter(map(str, asks)).items()
    parts = joined(phrase("{times} x {part}", times, who) if times > 1 else who for who, times in counts)
    most = most_of(asks)
    form = "at most {most:.1f} of {size:g} GB at once, by arithmetic: {parts}"
    return phrase(form, most / 1e9, card.memory_gb, parts), most <= total


def _by_gpu(asks: Iterable[MemoryDemand]) -> dict[int, list[MemoryDemand]]:
    of_gpu: dict[int, list[MemoryDemand]] = defaultdict(list)
    for ask in asks:
        of_gpu[ask.gpu].append(ask)
    return of_gpu


def require_fit(engines: Mapping[str, Engine], card: Card) -> None:
    """Raise `ConfigError` with the sums if a profile can never work on its card."""
    total = int(card.memory_gb * 2**30)
    for asks in _by_gpu(memory_demands(engines, 1)).values():
        cramped: list[MemoryDemand] = []
        for ask in asks:
            # A server's share needs room for one request's cache.
            if ask.server is not None and not ask.server.cache_is_fixed and ask.least > ask.share * total:
                cramped.append(ask)
        together = cramped or demands_at_once(asks, total)
        need = sum(ask.least + ask.bytes for ask in together)
        if cramped or need > total:
            sums = joined(str(ask) for ask in together if ask.server or ask.bytes)
            form = (
                "it does not fit on {gpu}, {size:g} GB: {need:.1f} GB are needed ({sums}); choose another reader or "
                "card (`kopub profiles`), or 8-bit weights (`server.quantization: fp8`), which nobody has tried"
            )
            raise ConfigError(form, card.gpu, card.memory_gb, need / 1e9, sums)


def require_cache(engines: Mapping[str, Engine]) -> None:
    """Raise `ConfigError` for a server whose fixed cache does not hold one longest request.

    vLLM would refuse to start.
    """
    for section, engine in engines.items():
        server, model = managed_server(engine), engine.memory if isinstance(engine, ServedEngine) else None
        if server is None or model is None or not server.kv_cache_memory:
            continue
        need, size = _cache_of_one(server, model), _bytes(server.kv_cache_memory)
        if 0 < size < need:
            form = (
                "{section}.server.kv_cache_memory is {cache}, and one request of max_model_len ({tokens} tokens) "
                "takes {need}M: raise it, or lower max_model_len"
            )
            raise ConfigError(form, section, server.kv_cache_memory, server.max_model_len, math.ceil(need / 2**20))


def _cache_of_one(server: VLLMServer, model: ModelMemory) -> int:
    """Return the bytes that the cache of one longest request takes on a GPU."""
    a_token = model.cached_token / (2 if (server.kv_cache_dtype or "").startswith("fp8") else 1)
    return int(a_token * server.max_model_len / server.tensor_parallel)


def _bytes(size: str) -> int:
    """Return the bytes of a size as vLLM reads it, 0 if it refuses."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)(?:i?B)?", size.strip())
    return int(float(match[1]) * _UNITS[match[2]]) if match else 0
