"""Question in, pages out: over the vectors that were made."""
