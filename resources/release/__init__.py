"""What others get: a dataset folder with its card, and the files that users of plain scripts read."""
