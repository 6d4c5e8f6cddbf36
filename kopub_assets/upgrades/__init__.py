"""What is stale, what making it again costs, and the nightly run that does it."""
