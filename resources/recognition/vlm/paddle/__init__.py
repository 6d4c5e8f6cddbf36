"""PaddleOCR-VL: what it is asked, its pictures, its answers."""
