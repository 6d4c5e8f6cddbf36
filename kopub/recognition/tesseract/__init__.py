"""Recognition by Tesseract 5 on the CPU."""

LANGUAGES = ("kor", "eng")
"""The languages of the reference corpus."""
