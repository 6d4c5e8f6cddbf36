"""Benchmarks of searching, viewing and publishing a corpus of the reference's size."""
