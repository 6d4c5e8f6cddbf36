"""Two versions of a shard beside each other: regions, texts, vectors."""
