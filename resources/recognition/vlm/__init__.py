"""Vision-language models on a model server: each region of a page is one request."""
