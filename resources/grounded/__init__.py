"""Whole pages read at once: one request to DeepSeek-OCR gives the regions of a page and their texts."""
