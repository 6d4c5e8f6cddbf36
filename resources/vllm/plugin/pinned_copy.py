"""What keeps the host ahead of the GPU while pictures are encoded: places computed there, copies nobody waits for."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch  # noqa: TID253 - a model's module is only imported by the server

Grid = tuple[int, int, int]
"""Frames, rows and columns of patches of a picture."""
KNOWN_GRIDS = 4096
"""Sizes of pictures whose positions are kept: regions of a corpus have some thousand, of 14 kB on average."""


@lru_cache(maxsize=KNOWN_GRIDS)
def positions(grid: Grid, merge: int) -> np.ndarray:
    """Row and column of each patch, (patches, 2), patches that are merged into one token side by side."""
    frames, rows, columns = grid
    places = np.indices((rows, columns), np.int32).reshape(2, rows // merge, merge, columns // merge, merge)
    return np.tile(places.transpose(1, 3, 2, 4, 0).reshape(-1, 2), (frames, 1))


def ends(grids: Sequence[Grid]) -> np.ndarray:
    """Return where the sequences of attention begin and end: one for each frame, (frames + 1,)."""
    lengths = np.concatenate([np.full(frames, rows * columns) for frames, rows, columns in grids])
    return np.concatenate([[0], lengths.cumsum()]).astype(np.int32)


def on_device(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """Return a copy that the host does not wait for."""
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class PlacesFromHost:
    """Put before a model of vLLM, it finds the places of image tokens on the host, where they are known."""

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
        """Embeddings of the text with those of the pictures in their places, which `is_multimodal` marks."""
        if not multimodal_embeddings or is_multimodal is None or is_multimodal.device.type != "cpu":
            theirs: Any = super()
            return theirs.embed_input_ids(input_ids, multimodal_embeddings, is_multimodal=is_multimodal)
        embeds = self._embed_text_input_ids(
            input_ids, self.get_language_model().embed_input_ids, is_multimodal=is_multimodal
        )
        places = on_device(np.flatnonzero(is_multimodal.numpy()), embeds.device)
        return embeds.index_copy_(0, places, torch.cat(tuple(multimodal_embeddings)).to(embeds.dtype))
