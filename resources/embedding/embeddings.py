"""A vector of a page, a text or a query."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from resources.states import State

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, slots=True)
class Embedding:
    """`vector` is float32 of shape (dim,) with L2 norm 1, or None unless the state is `ok`."""

    id: str
    state: State
    vector: "np.ndarray | None" = None
    reason: str | None = None
