"""The commands, one module each, named after them."""
