"""How sure a mean is. Pure; NumPy."""

from functools import lru_cache

import numpy as np

_RESAMPLES = 2000
_SEED = 20_251_104
"""Any fixed number: the same scores give the same interval."""
_QUANTILES = (0.025, 0.975)

FEWEST = 6
"""Below six samples that changed not even a drop of every one is significant: 2 x 0.5^5 > 0.05, by the sign test.
The bootstrap alone is too sure of so few: it takes four that lost and none that gained for a drop."""


def interval(values: np.ndarray, sizes: np.ndarray | None = None) -> np.ndarray:
    """The 95 % interval of the means of `values` (samples, columns), as (2, columns): low, high.

    Percentile bootstrap over samples (Efron and Tibshirani, 1993; for retrieval Sakai, SIGIR 2006).
    Of differences sample by sample it is the paired bootstrap of two systems. With `sizes` (samples) the values are
    sums over what each sample holds, a document's pages, and the means are those of all that was drawn.
    """
    counts = _counts(len(values))
    drawn = len(values) if sizes is None else (counts @ sizes)[:, None]
    return np.quantile(counts @ values / drawn, _QUANTILES, axis=0)


@lru_cache(maxsize=16)
def _counts(samples: int) -> np.ndarray:
    """How often each sample is in each resample: float64 (resamples, samples)."""
    generator = np.random.default_rng(_SEED)
    return generator.multinomial(samples, np.full(samples, 1 / samples), _RESAMPLES).astype(np.float64)
