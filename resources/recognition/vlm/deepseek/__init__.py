"""DeepSeek-OCR: what it is asked, its pictures, its answers."""
