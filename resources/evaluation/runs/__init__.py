"""A benchmark that is read and scored: its home, its readings, its runs, and what is shown of them."""
