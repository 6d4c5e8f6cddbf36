"""Commands that make tables."""
