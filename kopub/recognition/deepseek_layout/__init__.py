"""Layout and texts of whole pages by one request to DeepSeek-OCR."""
