"""Steps of the vision encoders that keep the host ahead of the GPU.

Positions are computed on the host, copies come from pinned memory, and the rotation of queries and keys is one kernel.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch  # noqa: TID253 - only the server imports it
from vllm.triton_utils import tl, triton  # noqa: TID253

Grid = tuple[int, int, int]
"""Frames, rows and columns of patches of a picture."""
KNOWN_GRIDS = 4096
"""Picture sizes whose positions are cached: the regions of a corpus have some thousand, of 14 kB on average."""


@lru_cache(maxsize=KNOWN_GRIDS)
def patch_positions(grid: Grid, merge: int) -> np.ndarray:
    """Return each patch's row and column, (patches, 2), with a token's patches adjacent."""
    frames, rows, columns = grid
    places = np.indices((rows, columns), np.int32).reshape(2, rows // merge, merge, columns // merge, merge)
    return np.tile(places.transpose(1, 3, 2, 4, 0).reshape(-1, 2), (frames, 1))


def sequence_ends(grids: Sequence[Grid]) -> np.ndarray:
    """Return the boundaries of the attention sequences, one per frame, (frames + 1,)."""
    lengths = np.concatenate([np.full(frames, rows * columns) for frames, rows, columns in grids])
    return np.concatenate([[0], lengths.cumsum()]).astype(np.int32)


def on_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return a copy for which the host does not wait."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class HostImagePlaces:
    """A mixin for vLLM models that finds image tokens on the host."""

    _embed_text_input_ids: Any
    get_language_model: Any

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def embed_input_ids(
        self,
        input_ids: torch.Tensor,
        multimodal_embeddings: Sequence[torch.Tensor] | None = None,
        *,
        is_multimodal: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the text's embeddings, with those of pictures where `is_multimodal` is set."""
        if not multimodal_embeddings or is_multimodal is None or is_multimodal.device.type != "cpu":
            theirs: Any = super()
            return theirs.embed_input_ids(input_ids, multimodal_embeddings, is_multimodal=is_multimodal)
        embeds = self._embed_text_input_ids(
            input_ids, self.get_language_model().embed_input_ids, is_multimodal=is_multimodal
        )
        places = on_device(np.flatnonzero(is_multimodal.numpy()), embeds.device)
        return embeds.index_copy_(0, places, torch.cat(tuple(multimodal_embeddings)).to(embeds.dtype))


_ROWS = 16
"""Patches per program: 16 rows of 128 bytes keep all lanes of a warp loading."""


@triton.jit
def _norm_rope_kernel(
    qkv,
    cosines,
    sines,
    query_weight,
    key_weight,
    patches,
    stride,
    epsilon,
    HEADS: tl.constexpr,
    HALF: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1)  # those of the keys follow those of the queries
    column = tl.arange(0, HALF)
    there = (row < patches)[:, None]
    places = qkv + row[:, None].to(tl.int64) * stride + head * 2 * HALF + column[None, :]
    turns = row[:, None] * HALF + column[None, :]
    first = tl.load(places, mask=there, other=0.0).to(tl.float32)
    second = tl.load(places + HALF, mask=there, other=0.0).to(tl.float32)
    scale = tl.rsqrt((tl.sum(first * first, 1) + tl.sum(second * second, 1)) / (2 * HALF) + epsilon)[:, None]
    weight = query_weight if head < HEADS else key_weight
    first = first * scale * tl.load(weight + column).to(tl.float32)[None, :]
    second = second * scale * tl.load(weight + HALF + column).to(tl.float32)[None, :]
    cosine = tl.load(cosines + turns, mask=there, other=0.0).to(tl.float32)
    sine = tl.load(sines + turns, mask=there, other=0.0).to(tl.float32)
    kind = qkv.dtype.element_ty
    tl.store(places, (first * cosine - second * sine).to(kind), mask=there)
    tl.store(places + HALF, (second * cosine + first * sine).to(kind), mask=there)


def norm_rope(
    qkv: torch.Tensor,
    cosines: torch.Tensor,
    sines: torch.Tensor,
    query_weight: torch.Tensor,
    key_weight: torch.Tensor,
    epsilon: float,
) -> None:
    """Apply RMS norm, then rotary embedding, to each head of queries and keys in place.

    `qkv` (patches, 3 x heads x width) holds queries, keys and values one after another; `cosines` and `sines` are
    (patches, width / 2), the weights (width,). The result is computed in float32 and rounded once.
    """
    patches, columns = qkv.shape
    width = len(query_weight)
    heads = columns // (3 * width)
    if qkv.is_cuda:
        _norm_rope_kernel[(triton.cdiv(patches, _ROWS), 2 * heads)](  # pyright: ignore[reportIndexIssue] - jit made it one
            qkv, cosines, sines, query_weight, key_weight, patches, qkv.stride(0), epsilon,
            HEADS=heads, HALF=width // 2, ROWS=_ROWS,
        )  # fmt: skip
        return
    for part, weight in enumerate((query_weight, key_weight)):
        place = qkv[:, part * heads * width : (part + 1) * heads * width].view(patches, heads, width)
        values = place.float()
        values = values * torch.rsqrt(values.square().mean(-1, keepdim=True) + epsilon) * weight.float()
        first, second = values.chunk(2, -1)
        cosine, sine = cosines.float()[:, None], sines.float()[:, None]
        place.copy_(torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1))


@triton.jit
def _rope_kernel(
    qkv,
    cosines,
    sines,
    patches,
    stride,
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    head = tl.program_id(1)  # those of the keys follow those of the queries
    column = tl.arange(0, BLOCK)
    there = (row < patches)[:, None] & (column < HALF)[None, :]
    places = qkv + row[:, None].to(tl.int64) * stride + head * 2 * HALF + column[None, :]
    turns = row[:, None] * HALF + column[None, :]
    first = tl.load(places, mask=there, other=0.0).to(tl.float32)
    second = tl.load(places + HALF, mask=there, other=0.0).to(tl.float32)
    cosine = tl.load(cosines + turns, mask=there, other=0.0)
    sine = tl.load(sines + turns, mask=there, other=0.0)
    kind = qkv.dtype.element_ty
    tl.store(places, (first * cosine - second * sine).to(kind), mask=there)
    tl.store(places + HALF, (second * cosine + first * sine).to(kind), mask=there)


def rope(qkv: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, heads: int) -> None:
    """Apply rotary embedding to each head of queries and keys in place.

    `qkv` (patches, 3 x heads x width) holds queries, keys and values one after another; `cosines` and `sines` are
    (patches, width / 2) in float32. The result is computed in float32 and rounded once.
    """
    patches, half = cosines.shape
    if qkv.is_cuda:
        _rope_kernel[(triton.cdiv(patches, _ROWS), 2 * heads)](  # pyright: ignore[reportIndexIssue] - jit made it one
            qkv, cosines, sines, patches, qkv.stride(0),
            HALF=half, BLOCK=triton.next_power_of_2(half), ROWS=_ROWS,
        )  # fmt: skip
        return
    place = qkv[:, : 4 * heads * half].view(patches, 2 * heads, 2 * half)
    first, second = place.float().chunk(2, -1)
    cosine, sine = cosines[:, None], sines[:, None]
    place.copy_(torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1))
