"""Search over the stored texts and vectors: a question in, pages out."""
