"""What happens around the shards of a run: its start, its end, and what a person sees of it."""
