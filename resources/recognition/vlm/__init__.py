"""Vision-language models on a model server, asked region by region."""
