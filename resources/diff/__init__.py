"""Two versions of a shard compared: regions, texts, vectors."""
