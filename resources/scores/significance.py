"""How sure a mean is, and how sure a change of it. Pure; NumPy.

Percentile bootstrap (Efron and Tibshirani, 1993; for retrieval Sakai, SIGIR 2006) over queries or documents. Of
differences within each of them it is the paired bootstrap of two systems.
"""

from functools import lru_cache

import numpy as np

_RESAMPLES = 2000
_SEED = 20_251_104
"""Any fixed number: the same scores give the same interval."""
_QUANTILES = (0.025, 0.975)

FEWEST = 6
"""Below six queries that changed not even a drop of every one is significant: 2 x 0.5^5 > 0.05, by the sign test.
The bootstrap alone is too sure of so few: it takes four that lost and none that gained for a drop."""


def interval(values: np.ndarray) -> np.ndarray:
    """The 95 % interval of the means of `values` (queries, columns), as (2, columns): low, high."""
    return np.quantile(_counts(len(values)) @ values / len(values), _QUANTILES, axis=0)


def ratio_interval(*ratios: tuple[np.ndarray, np.ndarray]) -> tuple[float, float]:
    """The 95 % interval of a mean over groups of samples, or of the difference of two means, first minus second.

    A mean is (sums, weights), each (groups,): that of its samples' weighted values, and of their weights.
    """
    means = [_resampled(sums, weights) for sums, weights in ratios]
    low, high = np.nanquantile(means[0] - sum(means[1:]), _QUANTILES)
    return float(low), float(high)


def _resampled(sums: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The mean of each resample; NaN of one whose groups weigh nothing."""
    counts = _counts(len(sums))
    total = counts @ weights
    return np.divide(counts @ sums, total, out=np.full(len(total), np.nan), where=total > 0)


@lru_cache(maxsize=16)
def _counts(groups: int) -> np.ndarray:
    """How often each query or document is in each resample: float64 (resamples, groups)."""
    generator = np.random.default_rng(_SEED)
    return generator.multinomial(groups, np.full(groups, 1 / groups), _RESAMPLES).astype(np.float64)
