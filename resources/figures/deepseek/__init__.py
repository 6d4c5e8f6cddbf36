"""Notes on figures by DeepSeek-OCR's own prompt for them."""
