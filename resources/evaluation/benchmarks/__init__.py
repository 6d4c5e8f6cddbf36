"""The benchmarks, one module each: how it is loaded from a folder, and how one sample of it is scored."""
