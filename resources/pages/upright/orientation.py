"""Which way up a page is, told by a small network that looks at windows of its text. Pure; no Dagster.

The network (`orientation.npz`, made by `tools/train_orientation.py`) scores how upright a window of two lines looks.
Every window is scored in its four quarter turns; the turn with the highest sum over all windows is the page's.
"""

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from resources.pages.upright.marks import Marks

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WINDOW = 48
"""Side of a window in pixels."""
CHARACTER = 20
"""Height in pixels of a character of a window."""
WINDOWS = 64
"""Windows that are looked at, at most."""
FEWEST_MARKS = 12
"""A page with fewer marks is left as it is: a word or a number may read both ways."""
LEAST_MARGIN = 1.0
"""How much surer the network must be of a turn than of the page as it is, in nats a window."""

_STRIDE = 2


def find_turns(marks: Marks, grey: "NDArray[np.uint8]") -> tuple[int, float]:
    """Return how many quarter turns to the left set the page upright (0 to 3), and how sure that is.

    `grey` is the page that `marks` were found on. Sureness is in nats a window above the next best turn, and above 0
    turns at least `LEAST_MARGIN`.
    """
    import numpy as np

    if len(marks.boxes) < FEWEST_MARKS:
        return 0, 0.0
    score = turn_scores(cut_windows(marks, grey))
    best = int(np.argmax(score))
    if best and score[best] - score[0] < LEAST_MARGIN:
        return 0, 0.0
    return best, float(score[best] - np.delete(score, best).max())


def cut_windows(marks: Marks, grey: "NDArray[np.uint8]") -> "NDArray[np.float32]":
    """Return windows around marks, evenly chosen, as (n, WINDOW, WINDOW) float32 of mean 0 and deviation 1.

    The page is scaled so that its characters are `CHARACTER` pixels high.
    """
    import cv2
    import numpy as np

    scale = CHARACTER / marks.height * marks.scale
    source, scale = (grey, scale) if scale < 1 else (marks.grey, scale / marks.scale)
    page = cv2.resize(source, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    half = WINDOW // 2
    page = cv2.copyMakeBorder(page, half, half, half, half, cv2.BORDER_REPLICATE)
    # Small marks are dots and commas; a third of the height leaves the parts of syllables.
    large = marks.boxes[marks.boxes[:, 2:].max(axis=1) * 3 >= marks.height]
    order = np.lexsort((large[:, 0], large[:, 1]))
    chosen = large[order[np.linspace(0, len(large) - 1, min(WINDOWS, len(large))).round().astype(int)]]
    centres = (chosen[:, :2] + chosen[:, 2:] / 2) * (CHARACTER / marks.height)
    corners = centres.round().astype(int).clip(0, np.array(page.shape[::-1]) - WINDOW)
    windows = np.stack([page[y : y + WINDOW, x : x + WINDOW] for x, y in corners]).astype(np.float32)
    windows -= windows.mean(axis=(1, 2), keepdims=True)
    return windows / (windows.std(axis=(1, 2), keepdims=True) + 8)


def turn_scores(windows: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Return the mean log-probability of each number of quarter turns to the left, (4,), over the windows."""
    import numpy as np

    turned = np.stack([np.rot90(windows, turns, axes=(1, 2)) for turns in range(4)], axis=1)
    logits = _uprightness(turned.reshape(-1, WINDOW, WINDOW)).reshape(-1, 4)
    logits -= logits.max(axis=1, keepdims=True)
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).mean(axis=0)


def _uprightness(windows: "NDArray[np.float32]") -> "NDArray[np.float32]":
    """Return the network's score for each window, (n,)."""
    import numpy as np

    layers = _weights()
    values = windows[..., None]
    for at in range((len(layers) - 2) // 2):
        weight, bias = layers[f"conv{at}_weight"], layers[f"conv{at}_bias"]
        side = weight.shape[0]
        patches = np.lib.stride_tricks.sliding_window_view(values, (1, side, side, 1))
        patches = patches[:, ::_STRIDE, ::_STRIDE, :, 0, :, :, 0].transpose(0, 1, 2, 4, 5, 3)
        shape = patches.shape[:3]
        values = patches.reshape(-1, weight[..., 0].size) @ weight.reshape(-1, weight.shape[-1]) + bias
        values = np.maximum(values, 0).reshape(*shape, -1)
    return values.reshape(len(windows), -1) @ layers["linear_weight"] + layers["linear_bias"]


@cache
def _weights() -> "dict[str, NDArray[np.float32]]":
    """Return the network's weights: convolutions as (side, side, channels in, channels out)."""
    import numpy as np

    with np.load(Path(__file__).with_name("orientation.npz")) as stored:
        return {name: stored[name].astype(np.float32) for name in stored.files}
