"""The profile of a run: observations, the arithmetic of its time, and a report."""
