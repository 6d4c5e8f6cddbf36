"""The benchmarks, one module each, which loads it and scores its samples."""
