"""PDFs as a source: drawn once, in processes of their own."""
