"""Figures: the images and charts of a page with what stands beside them, and the models that describe them."""
