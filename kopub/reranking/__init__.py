"""Reading a question and a page together, to rank the pages that were found."""
