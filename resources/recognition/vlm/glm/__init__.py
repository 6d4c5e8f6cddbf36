"""GLM-OCR: what it is asked, and its answers."""
