"""Comparison of two versions of a shard: regions, texts, vectors."""
