"""The run around its shards: its start, its end, and its progress."""
