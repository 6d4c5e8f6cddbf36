"""Find where the text, tables, formulas and pictures of a page are."""
