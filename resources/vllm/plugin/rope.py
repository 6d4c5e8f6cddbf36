"""The rotation of queries and keys, with and without their norms, in place, as one GPU kernel."""

import torch  # noqa: TID253 - a kernel's module is only imported by the server
from vllm.triton_utils import tl, triton  # noqa: TID253

_ROWS = 16
"""Patches of one program: 16 rows of 128 bytes keep all lanes of a warp loading."""


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
    """RMS norm of each head of queries and keys, then rotary embedding of its halves, in `qkv` itself.

    `qkv` (patches, 3 x heads x width) holds queries, keys and values one after the other; `cosines` and
    `sines` are (patches, width / 2), the weights (width,). Computed in float32, rounded once.
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
    """Rotary embedding of the halves of each head of queries and keys, in `qkv` itself.

    `qkv` (patches, 3 x heads x width) holds queries, keys and values one after the other; `cosines` and
    `sines` are (patches, width / 2) in float32. Computed in float32, rounded once.
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
