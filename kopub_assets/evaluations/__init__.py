"""Evaluations: a benchmark is read in a home of its own by the same assets, and scored."""
