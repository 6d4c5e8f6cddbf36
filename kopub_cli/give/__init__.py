"""Commands that give away what was made."""
