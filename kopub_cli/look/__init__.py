"""Commands that show what was made."""
