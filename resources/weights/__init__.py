"""The weights that a profile pins, in the Hub's cache: whether they are whole, and how they get there."""
