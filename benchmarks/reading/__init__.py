"""Benchmarks of reading: its quality, and its cost on the host."""
