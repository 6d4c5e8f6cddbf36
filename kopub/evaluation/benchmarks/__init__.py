"""The loaders and scorers of benchmarks, grouped in modules."""
