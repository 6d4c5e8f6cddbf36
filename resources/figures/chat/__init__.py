"""Notes on figures by any chat model that sees pictures."""
