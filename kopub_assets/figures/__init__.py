"""The assets of the figures of pages, one module each, and what they share."""
