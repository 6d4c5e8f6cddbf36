"""The figures of a page, and the models that describe them."""
