"""The run of a benchmark: its home, its readings, its scores, and their display."""
