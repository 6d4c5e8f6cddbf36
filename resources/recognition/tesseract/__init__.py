"""Tesseract 5: Korean and English, tables by their cells."""
