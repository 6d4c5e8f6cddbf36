"""Recognition by vision-language models on a model server: each region is one request."""
