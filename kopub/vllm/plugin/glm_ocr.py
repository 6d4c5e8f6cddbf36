"""GLM-OCR's vision encoder for vLLM, so that the host is always ahead of the GPU.

vLLM's own encoder asks the GPU for the longest sequence in each of 24 layers, copies positions from pageable memory,
and finds the places of image tokens with a blocking copy: the GPU idles a third of the time while Python catches up.
Here everything is computed on the host before the first layer and copied from pinned memory, and a layer is nine
kernels: norms, additions, rotations and copies are fused.
"""

import numpy as np
import torch  # noqa: TID253 - a model's module is only imported by the server
from vllm.config import VllmConfig  # noqa: TID253
from vllm.logger import init_logger  # noqa: TID253
from vllm.model_executor.models.glm_ocr import (  # noqa: TID253
    GlmOcrForConditionalGeneration,
    GlmOcrVisionAttention,
    GlmOcrVisionTransformer,
)

from kopub.vllm.plugin.encoder_steps import (
    Grid,
    HostImagePlaces,
    norm_rope,
    on_device,
    patch_positions,
    sequence_ends,
)

_log = init_logger(f"vllm.{__name__}")


class Encoder(GlmOcrVisionTransformer):
    """The vision transformer, with the weights of vLLM's own."""

    def forward(
        self, x: torch.Tensor, grid_thw: torch.Tensor | list[list[int]], encoder_metadata: None = None
    ) -> torch.Tensor:
        """Return the tokens (patches / merged, width) of all pictures' patches `x`."""
        sizes = grid_thw if isinstance(grid_thw, list) else grid_thw.tolist()
        grids: list[Grid] = [(frames, rows, columns) for frames, rows, columns in sizes]
        boundaries = sequence_ends(grids)
        # It is computed from a tensor on the host, so that reading it in every layer does not block.
        longest = self.compute_attn_mask_seqlen(torch.from_numpy(boundaries))
        sequences = on_device(boundaries, self.device)
        # The cosines and sines for each patch, (patches, half a head).
        places = np.concatenate([patch_positions(grid, self.spatial_merge_size) for grid in grids])
        cosines, sines = self.rotary_pos_emb.get_cos_sin(max(max(grid[1:]) for grid in grids))
        index = on_device(places, cosines.device)
        cosines, sines = cosines[index].flatten(1), sines[index].flatten(1)
        if hasattr(self, "input_norm"):
            # A vLLM version that sends pixels as bytes includes the layer that normalises them.
            x = self.input_norm(x.to(self.device, non_blocking=True), self.dtype)
        else:
            x = x.to(self.device, self.dtype, non_blocking=True)
        x = self.patch_embed(x)
        residual = x
        x = self.blocks[0].norm1(x)
        # The norm after a layer is the next layer's first one, fused with the addition before it into one kernel.
        norms = [*(block.norm1 for block in self.blocks[1:]), self.post_layernorm]
        for block, following in zip(self.blocks, norms, strict=True):
            x = self._attend(block.attn, x, cosines, sines, sequences, longest)
            x, residual = block.norm2(x, residual=residual)
            x, residual = following(block.mlp(x), residual=residual)
        x = x.view(-1, self.spatial_merge_size, self.spatial_merge_size, x.shape[-1]).permute(0, 3, 1, 2)
        return self.merger(self.downsample(x).view(-1, self.out_hidden_size))

    @staticmethod
    def _attend(
        attention: GlmOcrVisionAttention,
        x: torch.Tensor,
        cosines: torch.Tensor,
        sines: torch.Tensor,
        sequences: torch.Tensor,
        longest: torch.Tensor | None,
    ) -> torch.Tensor:
        qkv, _ = attention.qkv(x)
        query_norm, key_norm = attention.q_norm, attention.k_norm
        norm_rope(qkv, cosines, sines, query_norm.weight, key_norm.weight, query_norm.variance_epsilon)
        query, key, value = qkv.view(1, len(x), 3, -1, attention.head_dim).unbind(2)
        context = attention.attn(query=query, key=key, value=value, cu_seqlens=sequences, max_seqlen=longest)
        return attention.proj(context.reshape(len(x), -1))[0]


class GlmOcr(HostImagePlaces, GlmOcrForConditionalGeneration):
    """vLLM's GLM-OCR with this encoder."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        # vLLM has built the encoder with its weights' names; only its computation is replaced.
        self.visual.__class__ = Encoder
        _log.info("GLM-OCR has the encoder of %s", __name__)
