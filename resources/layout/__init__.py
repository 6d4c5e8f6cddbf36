"""Page to regions: where the text, tables, formulas and figures are, in reading order."""
