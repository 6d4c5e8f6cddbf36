"""The benchmarks by name: the one place where an adapter is registered."""
