"""Documents out: the pages of a document as one markdown file, or as one DoclingDocument."""
