"""Recognition of printed lines by PP-OCR on the CPU."""
