"""How sure a mean over queries is. Pure; NumPy."""

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
    """The 95 % interval of the means of `values` (queries, columns), as (2, columns): low, high.

    Percentile bootstrap over queries (Efron and Tibshirani, 1993; for retrieval Sakai, SIGIR 2006).
    Of differences query by query it is the paired bootstrap of two systems.
    """
    return np.quantile(_counts(len(values)) @ values / len(values), _QUANTILES, axis=0)


@lru_cache(maxsize=16)
def _counts(queries: int) -> np.ndarray:
    """How often each query is in each resample: float64 (resamples, queries)."""
    generator = np.random.default_rng(_SEED)
    return generator.multinomial(queries, np.full(queries, 1 / queries), _RESAMPLES).astype(np.float64)
