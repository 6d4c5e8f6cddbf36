"""Tiny random checkpoints of PP-DocLayoutV3 that find boxes which differ from page to page."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kopub.layout.regions import LABELS

if TYPE_CHECKING:
    from transformers import PPDocLayoutV3ForObjectDetection

_OFTEN = ("text", "table", "paragraph_title", "image")


def tiny_pp_doclayout(seed: int = 0, gain: float = 1.3, steady: bool = False) -> "PPDocLayoutV3ForObjectDetection":
    """Return a complete PP-DocLayoutV3 in fp32 with 0.3 million parameters.

    Every position of its feature maps is a query. With `steady` the masks cover the page, so no box depends on the
    sign of a single pixel. `gain` scales the weights, and thereby how much rounding errors grow.
    """
    from transformers import PPDocLayoutV3Config, PPDocLayoutV3ForObjectDetection

    channels, dim = 16, 32
    backbone = {
        "model_type": "hgnet_v2",
        "arch": "L",
        "return_idx": [0, 1, 2, 3],
        "hidden_sizes": [channels] * 4,
        "stem_channels": [3, channels, channels],
        # 800 pixels become maps of 4, 2 and 1, which keeps a pass on one core far under a second.
        "stem_strides": [10, 1, 1, 10, 1],
        "stage_in_channels": [channels] * 4,
        "stage_mid_channels": [channels] * 4,
        "stage_out_channels": [channels] * 4,
        "stage_num_blocks": [1] * 4,
        "stage_numb_of_layers": [1] * 4,
        "out_features": ["stage1", "stage2", "stage3", "stage4"],
    }
    config = PPDocLayoutV3Config(
        backbone_config=backbone,
        encoder_hidden_dim=dim,
        encoder_in_channels=[channels] * 3,
        encoder_ffn_dim=dim,
        encoder_attention_heads=2,
        mask_feature_channels=[dim, dim],
        x4_feat_dim=channels,
        d_model=dim,
        num_prototypes=4,
        num_queries=sum(side * side for side in (4, 2, 1)),
        decoder_in_channels=[dim] * 3,
        decoder_ffn_dim=dim,
        decoder_layers=2,
        decoder_attention_heads=2,
        num_denoising=0,
        global_pointer_head_size=8,
        id2label=dict(enumerate(LABELS)),
        label2id={label: i for i, label in enumerate(LABELS)},
    )
    return lively(PPDocLayoutV3ForObjectDetection(config), seed, gain, steady)


def lively(
    network: "PPDocLayoutV3ForObjectDetection", seed: int = 0, gain: float = 1.3, steady: bool = False
) -> "PPDocLayoutV3ForObjectDetection":
    """Draw new weights, because with the initial ones all queries give the same result."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter, gain=1.3 if "decoder" in name else gain)
            elif name.endswith("bias"):
                nn.init.normal_(parameter, std=0.3)
            else:
                nn.init.ones_(parameter)
        modules: list[Any] = list(network.modules())
        for module in modules:
            if hasattr(module, "running_var"):
                module.weight.fill_(1.0)
                module.bias.normal_(std=0.3)
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 1.5)
        model: Any = network.model
        bias = model.decoder.class_embed.bias
        bias.fill_(-3.0)
        bias[[LABELS.index(label) for label in _OFTEN]] = 0.5
        if steady:
            model.mask_query_head.layers[-1].bias.fill_(2.0)
            model.encoder.encoder_mask_output.conv.bias.fill_(4.0)
            # The decoder starts with a box as wide as the page, a logit of 11.5; two layers shrink it to a third.
            model.decoder.bbox_embed.layers[-1].bias.copy_(torch.tensor([0.0, 0.0, -5.6, -5.6]))
    return network.eval()


def save_pp_doclayout(folder: Path, network: "PPDocLayoutV3ForObjectDetection | None" = None) -> Path:
    """Write a checkpoint in the Hub's layout, by default the tiny one."""
    (network or tiny_pp_doclayout(steady=True)).save_pretrained(folder)
    return folder
