"""Measure MaxSim over the first pages of a search, and the size of its vectors.

    OMP_NUM_THREADS=1 python -m benchmarks.finding.late_interaction [--pages 40781] [--first 1000]

Each page has several vectors instead of one (ColPali, Faysse et al., 2024), in float16 or int8. Times are CPU
milliseconds of NumPy on one thread for a question of 20 vectors, the median of 15, with the vectors in memory.
"""

import argparse
import time

import numpy as np

SHAPES = ((32, 128), (32, 320), (128, 128))
"""(vectors a page, dimensions): EVIE's smallest, its size with 320, and the 128 tokens of others."""
QUESTION, RUNS = 20, 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=40_781)
    parser.add_argument("--first", type=int, default=1000)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    for count, dim in SHAPES:
        question = random.normal(size=(QUESTION, dim)).astype(np.float32)
        floats = random.normal(size=(options.first * 4, count, dim)).astype(np.float16)
        chosen = np.sort(random.choice(len(floats), options.first, replace=False))
        for name, vectors in (("float16", floats), ("int8", (floats * 32).astype(np.int8))):
            taken = sorted(milliseconds(vectors, chosen, question) for _ in range(RUNS))
            size = vectors[0].nbytes
            print(
                f"{count} x {dim} {name}: {size:,} bytes a page, {size * options.pages / 1e9:.2f} GB, "
                f"{taken[RUNS // 2]:.0f} ms"
            )


def milliseconds(vectors: np.ndarray, chosen: np.ndarray, question: np.ndarray) -> float:
    """Return the CPU ms of MaxSim for the chosen pages.

    MaxSim is the sum, over the question's vectors, of the best product with a page's.
    """
    started = time.process_time()
    pages = vectors[chosen].astype(np.float32)
    products = pages.reshape(-1, pages.shape[2]) @ question.T
    products.reshape(len(chosen), -1, QUESTION).max(axis=1).sum(axis=1).argsort()
    return 1000 * (time.process_time() - started)


if __name__ == "__main__":
    main()
