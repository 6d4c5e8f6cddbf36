"""The release: a dataset folder, its card, its exports, and its publication."""
