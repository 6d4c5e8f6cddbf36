"""The weights that a profile pins, in the Hub's cache."""
