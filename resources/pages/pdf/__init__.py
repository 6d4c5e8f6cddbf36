"""PDFs as a source: their pages are rendered once, by a pool of processes."""
