"""PP-DocLayoutV3's network, and its forward pass reduced to boxes, labels and reading order.

It runs the sub-modules of transformers' `PPDocLayoutV3ForObjectDetection`, without the masks of the decoder layers, the
heads of all but the last layer, and the box proposals that the masks of the encoder replace. Unlike transformers, it
refines boxes in fp32 whatever the precision of the features, and its deformable attention (Zhu et al., 2021) gathers
rows of the feature map instead of using `grid_sample`.
"""

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d
from torch.nn.utils.fusion import fuse_conv_bn_weights
from transformers import PPDocLayoutV3ForObjectDetection
from transformers.models.hgnet_v2.modeling_hgnet_v2 import HGNetV2ConvLayer
from transformers.models.pp_doclayout_v3.modeling_pp_doclayout_v3 import PPDocLayoutV3RepVggBlock

from kopub.errors import EngineError, HubError, first_line
from kopub.layout.regions import LABELS
from kopub.states import phrase
from kopub.weights.fetch import cached_snapshot
from kopub.weights.hub import Weights

_LOADING = threading.Lock()
"""The lock for loading: if two networks are loaded at once, transformers leaves tensors out."""
_EDGE = 1e-5
"""Distance from 0 and 1 within which the logit of a share of the page is cut off."""
Module = Any
"""An `nn.Module` of transformers, whose children type checkers would take for tensors."""


class Memory(NamedTuple):
    """The encoder's feature maps, one after another."""

    rows: Tensor
    """(B, S, dim)."""
    shapes: list[tuple[int, int]]
    """Height and width of each map."""
    sizes: Tensor
    """(levels, 1, 2) width and height, as int32 on the device."""
    starts: Tensor
    """(levels, 1) where each map begins in `rows`, as int32 on the device."""


class RawOutputs(NamedTuple):
    """Outputs for a batch, all fp32 except the masks, which only `polygons` computes."""

    scores: Tensor
    """(B, Q, C) probabilities."""
    boxes: Tensor
    """(B, Q, 4) centre and size, 0 to 1."""
    votes: Tensor
    """(B, Q) votes for being later in the reading order."""
    mask_queries: Tensor | None
    """(B, Q, P); the dot product with `mask_features` is a query's mask before the sigmoid."""
    mask_features: Tensor | None
    """(B, P, 200, 200)."""


def load(repo: str, revision: str) -> PPDocLayoutV3ForObjectDetection:
    """Load the published network in fp32, from a folder or the Hub. Raises `EngineError`."""
    # The annotations of transformers include neither output_loading_info nor a local folder.
    from_pretrained: Any = PPDocLayoutV3ForObjectDetection.from_pretrained
    try:
        folder = repo if Path(repo).is_dir() else cached_snapshot(Weights(repo, revision, ("layout",)))
    except HubError as error:
        raise EngineError(str(error)) from None
    try:
        with _LOADING:
            network, report = from_pretrained(
                folder,
                id2label=dict(enumerate(LABELS)),
                label2id={label: i for i, label in enumerate(LABELS)},
                output_loading_info=True,
            )
    except Exception as error:  # transformers fails on damaged files in many ways
        what = first_line(f"{type(error).__name__}: {error}")
        form = "no PP-DocLayoutV3 weights in {repo}: {remedy} ({error})"
        remedy = "set layout.repo to a folder with config.json and model.safetensors"
        if not Path(repo).exists():
            remedy = "run `kopub pull`, or set layout.repo to a folder with config.json and model.safetensors"
        raise EngineError(form, repo, remedy, what) from error
    lacking = sorted(report["missing_keys"])
    if lacking or not network.config.mask_enhanced:
        form = "{count} tensors such as {tensor} are missing"
        what = phrase(form, len(lacking), lacking[0]) if lacking else "mask_enhanced is off"
        raise EngineError("{repo} is not a whole PP-DocLayoutV3 checkpoint: {error}; download it again", repo, what)
    return network.eval()


def forward(network: PPDocLayoutV3ForObjectDetection, pixels: Tensor, polygons: bool) -> RawOutputs:
    """Detect on `pixels`, uint8 (B, SIDE, SIDE, 3) RGB."""
    model: Module = network.model
    scaled = pixels.permute(0, 3, 1, 2).to(torch.float32) / 255
    stride4, *features = model.backbone.model(scaled.to(model.dtype)).feature_maps
    projected = [project(feature) for project, feature in zip(model.encoder_input_proj, features, strict=True)]
    encoded = model.encoder(projected, (stride4,))
    maps: list[Tensor] = []
    shapes: list[tuple[int, int]] = []
    extents: list[Tensor] = []
    start = 0
    for project, level in zip(model.decoder_input_proj, encoded.last_hidden_state, strict=True):
        feature = project(level)
        height, width = feature.shape[-2:]
        maps.append(feature.flatten(2).transpose(1, 2))
        shapes.append((height, width))
        # They are filled in on the device, because copying them from the host would wait until the device is idle.
        for number in (width, height, start):
            extents.append(torch.full((), number, device=feature.device, dtype=torch.int32))
        start += height * width
    rows, numbers = torch.cat(maps, 1), torch.stack(extents).view(-1, 1, 3)
    memory = Memory(rows, shapes, numbers[..., :2], numbers[..., 2])

    hidden, boxes = _proposals(model, memory, encoded.mask_feat)
    for layer in model.decoder.layers:
        position = model.decoder.query_pos_head(boxes.to(rows.dtype))
        attended, _ = layer.self_attn(hidden_states=hidden, position_embeddings=position)
        hidden = layer.self_attn_layer_norm(hidden + attended)
        attended = _cross_attention(layer.encoder_attn, hidden + position, memory, boxes)
        hidden = layer.encoder_attn_layer_norm(hidden + attended)
        hidden = layer.final_layer_norm(hidden + layer.mlp(hidden))
        boxes = torch.sigmoid(model.decoder.bbox_embed(hidden).float() + boxes.logit(eps=_EDGE))

    out = model.decoder_norm(hidden)
    order = model.decoder_global_pointer(model.decoder_order_head[-1](out))
    return RawOutputs(
        torch.sigmoid(model.decoder.class_embed(out).float()),
        boxes,
        order_votes(order.float()),
        model.mask_query_head(out) if polygons else None,
        encoded.mask_feat if polygons else None,
    )


def _proposals(model: Module, memory: Memory, mask_features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Q best positions of the feature maps, with boxes around their masks.

    The boxes are (B, Q, 4), centre and size, 0 to 1; all zeros around a mask without a positive value.
    """
    rows = memory.rows
    _, valid = model.generate_anchors(tuple(memory.shapes), device=rows.device, dtype=rows.dtype)
    positions = model.enc_output(valid.to(rows.dtype) * rows)
    best = model.enc_score_head(positions).amax(-1).topk(model.config.num_queries, dim=1).indices
    target = positions.gather(1, best[..., None].expand(-1, -1, positions.shape[-1]))
    queries = model.mask_query_head(model.decoder_norm(target))
    # Queries come last, so that the extents of all masks are read along contiguous memory.
    masks = torch.bmm(mask_features.flatten(2).transpose(1, 2), queries.transpose(1, 2))
    masks = masks.unflatten(1, mask_features.shape[-2:])
    extents: list[tuple[Tensor, Tensor]] = []
    for line in (masks.amax(1), masks.amax(2)):
        length = line.shape[1]
        places = torch.arange(length, device=line.device, dtype=torch.float32)[:, None]
        first = torch.where(line > 0, places, length).amin(1)
        last = torch.where(line > 0, places + 1, 0).amax(1)
        extents.append((torch.minimum(first, last) / length, last / length))
    (left, right), (top, bottom) = extents
    boxes = torch.stack([(left + right) / 2, (top + bottom) / 2, right - left, bottom - top], -1)
    return target, torch.sigmoid(boxes.logit(eps=_EDGE))


def _cross_attention(attention: Module, query: Tensor, memory: Memory, boxes: Tensor) -> Tensor:
    """Return what each query takes from bilinear samples of the feature maps, zero outside."""
    batch, queries, _ = query.shape
    heads, levels, points = attention.n_heads, attention.n_levels, attention.n_points
    value = attention.value_proj(memory.rows).unflatten(-1, (heads, -1))
    offsets = attention.sampling_offsets(query).view(batch, queries, heads, levels, points, 2).float()
    weights = attention.attention_weights(query).view(batch, queries, heads, -1).float().softmax(-1)
    weights = weights.view(batch, queries, heads, levels, points)
    box = boxes[:, :, None, None, None]
    # The pixels of a map, counted from the centre of its first one.
    exact = (box[..., :2] + offsets / points * box[..., 2:] / 2) * memory.sizes - 0.5
    low = exact.floor()
    part_x, part_y = (exact - low).unbind(-1)
    low_x, low_y = low.to(torch.int32).unbind(-1)
    width, height = memory.sizes.unbind(-1)
    page = torch.arange(batch, device=value.device)[:, None, None]
    head = torch.arange(heads, device=value.device)
    total = torch.zeros((), device=value.device)
    # Summed term by term, the compiler makes one kernel that reads whole rows of `value`. A gather with an axis to sum
    # over would be one line, but took 1 ms per layer instead of 0.2 (H200, 64 pages).
    for y, share_y in ((low_y, 1 - part_y), (low_y + 1, part_y)):
        for x, share_x in ((low_x, 1 - part_x), (low_x + 1, part_x)):
            inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
            rows = memory.starts + y.clamp(min=0).minimum(height - 1) * width + x.clamp(min=0).minimum(width - 1)
            rows, factors = rows.flatten(3), torch.where(inside, weights * share_x * share_y, 0).flatten(3)
            for point in range(rows.shape[-1]):
                total = total + value[page, rows[..., point], head].float() * factors[..., point, None]
    return attention.output_proj(total.to(value.dtype).flatten(2))


def order_votes(logits: Tensor) -> Tensor:
    """Count the queries that each one comes after, (B, Q).

    A positive `logits[i, j]`, i < j, means that i comes before j.
    """
    before = logits.sigmoid()
    after = 1 - before.transpose(1, 2)
    return before.triu(1).sum(1) + after.tril(-1).sum(1)


def fuse(network: PPDocLayoutV3ForObjectDetection) -> None:
    """Fold batch norms into convolutions, and RepVGG's two branches into one (Ding et al., 2021)."""
    for parent in list(network.modules()):
        children: list[tuple[str, Module]] = list(parent.named_children())
        for (_, conv), (name, norm) in pairwise(children):
            if isinstance(conv, nn.Conv2d) and hasattr(norm, "running_var"):
                # The frozen batch norm of transformers has the usual eps, but not as an attribute.
                eps = getattr(norm, "eps", 1e-5)
                conv.weight, conv.bias = fuse_conv_bn_weights(
                    conv.weight, conv.bias, norm.running_mean, norm.running_var, eps, norm.weight, norm.bias
                )
                setattr(parent, name, nn.Identity())
    for parent in list(network.modules()):
        for name, block in list(parent.named_children()):
            if isinstance(block, PPDocLayoutV3RepVggBlock):
                wide: Module = block.conv1.conv
                point: Module = block.conv2.conv
                wide.weight.data += nn.functional.pad(point.weight.data, (1, 1, 1, 1))
                wide.bias.data += point.bias.data
                setattr(parent, name, nn.Sequential(wide, block.activation))


class ReluFusionError(RuntimeError):
    """The lack of a cuDNN kernel for some convolution with bias and ReLU."""


@torch.library.custom_op("kopub::conv_relu", mutates_args=())
def conv_relu(x: Tensor, weight: Tensor, bias: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    """Run cuDNN's convolution with bias and ReLU, as an operator that the compiler understands."""
    try:
        return torch.ops.aten.cudnn_convolution_relu(x, weight, bias, stride, padding, [1, 1], 1)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ReluFusionError(str(error)) from error


@conv_relu.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    return conv2d(x, weight, bias, stride, padding)


@conv_relu.register_kernel("cpu")
def _(x: Tensor, weight: Tensor, bias: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    return conv2d(x, weight, bias, stride, padding).relu_()


class ConvRelu(nn.Module):
    """A convolutional layer of the backbone, run with its bias and ReLU as one kernel."""

    def __init__(self, plain: nn.Module) -> None:
        super().__init__()
        self.plain = plain

    def forward(self, x: Tensor) -> Tensor:
        """Return the activated features."""
        conv: Module = self.plain.convolution
        return conv_relu(x, conv.weight, conv.bias, list(conv.stride), list(conv.padding))


def fuse_relu(network: PPDocLayoutV3ForObjectDetection) -> None:
    """Fuse bias and ReLU into the backbone's convolutions, where cuDNN can.

    This comes after `fuse`. Neither eager mode nor the compiler does it: both write the convolution's output and read
    it again. Raises `RuntimeError` and changes nothing if cuDNN has no such kernel. The fused network raises
    `ReluFusionError` if cuDNN refuses one of its shapes at run time: see `unfuse_relu`.
    """
    weight = torch.zeros(8, 8, 3, 3, device=network.device, dtype=network.dtype).to(memory_format=torch.channels_last)
    conv_relu(weight, weight, weight.new_zeros(8), [1, 1], [1, 1])

    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if (
                isinstance(layer, HGNetV2ConvLayer)
                and isinstance(layer.activation, nn.ReLU)
                and isinstance(layer.lab, nn.Identity)
                and layer.convolution.groups == 1
            ):
                setattr(parent, name, ConvRelu(layer))


def unfuse_relu(network: PPDocLayoutV3ForObjectDetection) -> None:
    """Undo what `fuse_relu` did."""
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if (plain := getattr(layer, "plain", None)) is not None:
                setattr(parent, name, plain)
