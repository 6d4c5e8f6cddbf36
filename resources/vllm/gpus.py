"""The GPUs of a server by name, as CUDA_VISIBLE_DEVICES takes them; without PyTorch, which would open a context."""

import os

from resources.errors import EngineError
from resources.gpu.cards import NoGpuFigures, open_cards
from resources.vllm.supervisor.gpu_lock import visible


def named_gpus(indexes: list[int]) -> tuple[str, ...]:
    """Return the names of GPUs from their indexes among the visible ones. Raises `EngineError`."""
    try:
        return visible(indexes, os.environ.get("CUDA_VISIBLE_DEVICES"))
    except ValueError as error:
        raise EngineError(f"{error}; change the server's `gpus`") from None


def all_gpus() -> tuple[str, ...]:
    """Return the names of every GPU that this process may use.

    Raises `EngineError` where there is none.
    """
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is not None:
        names = tuple(name.strip() for name in allowed.split(",") if name.strip())
        if not names:
            raise EngineError("the server's `gpus` are all, and CUDA_VISIBLE_DEVICES hides every one")
        return names
    try:
        return tuple(card.name for card in open_cards())
    except NoGpuFigures as error:
        raise EngineError(f"the server's `gpus` are all, and {error}; list their indexes") from None
