"""Tesseract 5 with Korean and English data; tables by their cells."""
