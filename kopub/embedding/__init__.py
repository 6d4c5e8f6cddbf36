"""Image, text and query to vector."""
