"""PaddleOCR-VL's vision encoder for vLLM, with all pictures of a step in one pass.

vLLM's own encoder processes one picture after another, interpolates the learned positions for each, and in each of 27
layers computes cosines and sines and asks the GPU for the longest sequence. Here the pictures are packed, everything is
computed on the host before the first layer and copied from pinned memory, and a layer is eleven kernels.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch  # noqa: TID253 - a model's module is only imported by the server
from torch.nn import functional  # noqa: TID253
from vllm.config import VllmConfig  # noqa: TID253
from vllm.logger import init_logger  # noqa: TID253
from vllm.model_executor.models.paddleocr_vl import (  # noqa: TID253
    PaddleOCRImagePixelInputs,
    PaddleOCRVLForConditionalGeneration,
    Projector,
    SiglipAttention,
    SiglipVisionEmbeddings,
    SiglipVisionTransformer,
)
from vllm.v1.attention.backends.registry import AttentionBackendEnum  # noqa: TID253

from kopub.vllm.plugin.encoder_steps import (
    KNOWN_GRIDS,
    Grid,
    HostImagePlaces,
    on_device,
    patch_positions,
    rope,
    sequence_ends,
)

_log = init_logger(f"vllm.{__name__}")

_NEED_LONGEST = frozenset(
    {AttentionBackendEnum.FLASH_ATTN, AttentionBackendEnum.ROCM_AITER_FA, AttentionBackendEnum.TRITON_ATTN}
)
"""Attention backends that must be given the longest sequence."""


@lru_cache(maxsize=KNOWN_GRIDS)
def neighbours(length: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two of `side` learned positions for each patch, and the second's weight.

    They are (length, 2) and (length,). The interpolation is bilinear with pixels as areas, as in
    `torch.nn.functional.interpolate`.
    """
    scale = np.float32(side) / np.float32(length)
    place = np.maximum((np.arange(length, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5), 0)
    first = np.minimum(place.astype(np.int64), side - 1)
    return np.stack([first, np.minimum(first + 1, side - 1)], 1), place - first.astype(np.float32)


@lru_cache(maxsize=KNOWN_GRIDS)
def raster_indexes(grid: Grid, merge: int) -> np.ndarray:
    """Return the row-major index of each patch in the order of `patch_positions`; (patches,)."""
    frames, rows, columns = grid
    places = patch_positions(grid, merge).astype(np.int64)
    frame = np.repeat(np.arange(frames), rows * columns)
    return (frame * rows + places[:, 0]) * columns + places[:, 1]


def learned_positions(grid: Grid, merge: int, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the four learned positions around each patch and their weights, (patches, 4) each."""
    places = patch_positions(grid, merge)
    (rows, down), (columns, across) = neighbours(grid[1], side), neighbours(grid[2], side)
    row, column = rows[places[:, 0]], columns[places[:, 1]]
    lower, right = down[places[:, 0]], across[places[:, 1]]
    corners = (row[:, :, None] * side + column[:, None, :]).reshape(-1, 4)
    vertical, horizontal = np.stack([1 - lower, lower], 1), np.stack([1 - right, right], 1)
    return corners, (vertical[:, :, None] * horizontal[:, None, :]).reshape(-1, 4)


def encode(
    tower: SiglipVisionTransformer, projector: Projector, pictures: Sequence[torch.Tensor], grids: Sequence[Grid]
) -> tuple[torch.Tensor, ...]:
    """Return the tokens (patches / 4, width) of pictures of patches (patches, 3, 14, 14)."""
    merge, _ = projector.merge_kernel_size
    device = tower.embeddings.patch_embedding.weight.device
    sequences = sequence_ends(grids)
    # It stays on the host, so that reading it in every layer does not block.
    longest = None
    if tower.encoder.attn_backend in _NEED_LONGEST:
        longest = torch.from_numpy(np.diff(sequences)).max()
    places = on_device(np.concatenate([patch_positions(grid, merge) for grid in grids]), device)
    angles = tower.encoder.rotary_pos_emb(max(max(grid[1:]) for grid in grids))[places].flatten(1).float()
    rotation = angles.cos(), angles.sin()
    ends_there = on_device(sequences, device)
    x = _embed(tower.embeddings, pictures, grids, merge)
    for layer in tower.encoder.layers:
        x = x + _attend(layer.self_attn, layer.layer_norm1(x), rotation, ends_there, longest)
        x = x + layer.mlp(layer.layer_norm2(x))
    x = projector.pre_norm(tower.post_layernorm(x)).view(-1, projector.hidden_size)
    x = projector.linear_2(projector.act(projector.linear_1(x)))
    return x.split([frames * rows * columns // merge**2 for frames, rows, columns in grids])


def _embed(
    embeddings: SiglipVisionEmbeddings, pictures: Sequence[torch.Tensor], grids: Sequence[Grid], merge: int
) -> torch.Tensor:
    """Embed all patches, ordered as in `patch_positions`, with learned positions.

    The result is (patches, width).
    """
    patch, table = embeddings.patch_embedding, embeddings.position_embedding.weight
    pixels = torch.cat(tuple(pictures)).to(table.device, table.dtype, non_blocking=True).flatten(1)
    counts = np.cumsum([0, *(frames * rows * columns for frames, rows, columns in grids)])
    order = np.concatenate([start + raster_indexes(grid, merge) for start, grid in zip(counts, grids, strict=False)])
    pixels = pixels.index_select(0, on_device(order, table.device))
    side = round(len(table) ** 0.5)
    corners, weights = zip(*(learned_positions(grid, merge, side) for grid in grids), strict=True)
    around = functional.embedding_bag(
        on_device(np.concatenate(corners), table.device),
        table.float(),
        per_sample_weights=on_device(np.concatenate(weights), table.device),
        mode="sum",
    )
    return functional.linear(pixels, patch.weight.flatten(1), patch.bias) + around.to(table.dtype)


def _attend(
    attention: SiglipAttention,
    x: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    sequences: torch.Tensor,
    longest: torch.Tensor | None,
) -> torch.Tensor:
    heads, width = attention.num_attention_heads_per_partition, attention.hidden_size_per_attention_head
    qkv, _ = attention.qkv_proj(x)
    rope(qkv, *rotation, heads)
    query, key, value = qkv.view(1, len(x), 3, heads, width).unbind(2)
    context = attention.attn(query=query, key=key, value=value, cu_seqlens=sequences, max_seqlen=longest)
    return attention.out_proj(context.reshape(len(x), -1))[0]


class PaddleOcrVl(HostImagePlaces, PaddleOCRVLForConditionalGeneration):
    """vLLM's PaddleOCR-VL with this encoder."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        _log.info("PaddleOCR-VL has the encoder of %s", __name__)

    def _process_image_input(self, image_input: PaddleOCRImagePixelInputs) -> tuple[torch.Tensor, ...]:
        # vLLM keeps the sizes on the host.
        sizes = [grid.tolist() for grid in image_input.image_grid_thw]
        grids: list[Grid] = [(frames, rows, columns) for frames, rows, columns in sizes]
        return encode(self.visual.vision_model, self.mlp_AR, tuple(image_input.pixel_values), grids)
