"""Recognition by Tesseract 5 on the CPU."""
