"""How well queries find their pages, and whether that changed."""
