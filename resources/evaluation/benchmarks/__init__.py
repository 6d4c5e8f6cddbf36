"""The benchmarks, one module each, with their loaders and scorers."""
